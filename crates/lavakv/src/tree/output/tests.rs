use super::*;
use base::range_del::RangeTombstone;
use base::{ValueKind, key};
use datadriven::TestCase;
use std::error::Error;

fn table(keys: std::ops::Range<u8>, seq: u64, entries: u64, raw_bytes: u64) -> Arc<FileMeta> {
    let end = |k: u8| key::encode(&[k], seq, ValueKind::Value);
    let (smallest, largest) = (end(keys.start), end(keys.end - 1));
    let (min_seq, max_seq) = (seq, seq);
    Arc::new(FileMeta {
        number: seq,
        smallest,
        largest,
        min_seq,
        max_seq,
        entries,
        raw_bytes,
        ..FileMeta::default()
    })
}

fn tree(files: &[(usize, Arc<FileMeta>)]) -> Version {
    let mut levels = vec![Vec::new(); 7];
    files.iter().for_each(|(level, f)| levels[*level].push(f.clone()));
    Version::with_files(0, levels)
}

/// Parses the tree of a script: `level 6 table 1 keys 0-50 entries 100 bytes 100000`; the last key
/// is exclusive.
fn tree_of(input: &str) -> Version {
    let file = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["level", level, "table", number, "keys", keys, "entries", entries, "bytes", bytes] = words[..]
        else {
            panic!("{line} is no table")
        };
        let table =
            table(range(keys), number.parse().unwrap(), entries.parse().unwrap(), bytes.parse().unwrap());
        (level.parse().unwrap(), table)
    };
    tree(&input.lines().map(file).collect::<Vec<_>>())
}

fn range(text: &str) -> std::ops::Range<u8> {
    let (start, end) = text.split_once('-').unwrap();
    start.parse().unwrap()..end.parse().unwrap()
}

/// Returns the bytes hidden by a new table of sequence 9 with point tombstones or range tombstones.
fn hidden(version: &Version, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (level, keys): (usize, String) = (case.take_arg("level")?, case.take_arg("keys")?);
    let tombstones = case.try_take_arg("tombstones")?.unwrap_or(0);
    let ranges: Vec<String> = case.try_take_args("ranges")?.unwrap_or_default();
    let table = table(range(&keys), 9, tombstones, 10);
    let meta = FileMeta { tombstones, range_tombstones: ranges.len() as u64, ..(*table).clone() };
    let tombstone = |text: &String| {
        let keys = range(text);
        RangeTombstone { start: vec![keys.start], end: vec![keys.end], seq: meta.max_seq }
    };
    let all: Vec<_> = ranges.iter().map(tombstone).collect();
    Ok(format!("{} B\n", hidden_bytes(version, level, &meta, &FragmentedRangeTombstones::new(&all))))
}

fn run(version: &mut Version, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "tree" => {
            *version = tree_of(&case.input);
            String::new()
        }
        "hidden" => hidden(version, case)?,
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/output/scripts", |file| {
        let mut version = tree(&[]);
        file.run(|case| run(&mut version, case));
    });
}
