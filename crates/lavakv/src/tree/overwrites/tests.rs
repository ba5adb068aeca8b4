use super::*;
use base::hash::key_hash;
use base::{Dependency, ValueKind, key};
use datadriven::TestCase;
use std::error::Error;
use version::TableStats;

fn user_key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn sample(keys: impl Iterator<Item = u64>) -> KeySample {
    let mut sample = KeySample::default();
    keys.for_each(|i| sample.add(key_hash(&user_key(i))));
    sample.union(KeySample::default())
}

/// A table of references to records of 100 bytes: every `step`-th key of the range.
fn table(number: u64, keys: std::ops::Range<u64>, step: usize) -> FileMeta {
    let all = || keys.clone().step_by(step);
    let count = all().count() as u64;
    let end = |i: u64| key::encode(&user_key(i), number, ValueKind::Value);
    let notes = TableNotes { keys: count, sample: sample(all()), ..TableNotes::default() };
    let dependency = Dependency { blob_id: 1, count, stored_bytes: 100 * count, ..Dependency::default() };
    FileMeta {
        number,
        smallest: end(keys.start),
        largest: end(keys.end),
        min_seq: number,
        max_seq: number,
        entries: count,
        uses: vec![dependency].into(),
        known: TableStats::from(notes),
        ..FileMeta::default()
    }
}

fn hides(version: &Version, level: usize, file: &FileMeta) -> Option<Hides> {
    OlderTables::than_table(version, level, file, |_| false).hidden_by(file, file.known.notes().unwrap())
}

fn version(files: &[(usize, FileMeta)]) -> Version {
    let mut levels = vec![Vec::new(); 7];
    files.iter().for_each(|(level, file)| levels[*level].push(Arc::new(file.clone())));
    Version::with_files(0, levels)
}

/// Parses a table of a script: `level 6 table 1 keys 0-1000 step 2`, the last key exclusive;
/// `unknown` at the end if its keys were never sampled.
fn table_of(line: &str) -> (usize, FileMeta) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["level", level, "table", number, "keys", keys, "step", step, ..] = words[..] else {
        panic!("{line} is no table")
    };
    let mut table = table(number.parse().unwrap(), range(keys), step.parse().unwrap());
    if words.last() == Some(&"unknown") {
        table.known = TableStats::default();
    }
    (level.parse().unwrap(), table)
}

fn range(text: &str) -> std::ops::Range<u64> {
    let (start, end) = text.split_once('-').unwrap();
    start.parse().unwrap()..end.parse().unwrap()
}

fn said(hides: Option<Hides>) -> String {
    hides.map_or("unknown\n".into(), |hides| {
        let Hides { keys_ppm, record_bytes } = hides;
        format!("{} % of the keys, records of {record_bytes} B\n", (keys_ppm + 5_000) / 10_000)
    })
}

fn run(older: &mut Version, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "tables" => {
            *older = version(&case.input.lines().map(table_of).collect::<Vec<_>>());
            String::new()
        }
        "table-hides" => {
            let (keys, step): (String, usize) = (case.take_arg("keys")?, case.take_arg("step")?);
            said(hides(older, case.take_arg("level")?, &table(9, range(&keys), step)))
        }
        // A table with one key that is in no sample.
        "unsampled-key-hides" => {
            let is_unsampled = |i: &u64| key_hash(&user_key(*i)).leading_zeros() == 0;
            let key = (0..100).find(is_unsampled).ok_or("all keys are in the sample")?;
            let Some(hides) = hides(older, case.take_arg("level")?, &table(9, key..key + 1, 1)) else {
                return Err("the estimate is unknown".into());
            };
            format!("{} ppm of the keys, records of {} B\n", hides.keys_ppm, hides.record_bytes)
        }
        // A wide table over many narrow ones.
        "wide-table-hides" => {
            let wide = |tables: u64| {
                let below = (0..tables).map(|nth| (6, table(1 + nth, nth * 8000..(nth + 1) * 8000 - 1, 1)));
                let new = table(tables + 9, 4..tables * 8000, tables as usize / 8);
                let hides = hides(&version(&below.collect::<Vec<_>>()), 0, &new).unwrap();
                format!("{tables} tables: {} ppm of the keys\n", hides.keys_ppm)
            };
            case.take_args("tables")?.into_iter().map(wide).collect()
        }
        "lookups-max" => {
            let max = |tables: usize| format!("{tables} tables: {} hashes\n", hashes_max(tables));
            case.take_args("tables")?.into_iter().map(max).collect()
        }
        // A memtable, and frozen ones behind it.
        "memtable-hides" => {
            let keys = range(&case.take_arg::<String>("keys")?);
            let behind: Vec<String> = case.try_take_args("behind")?.unwrap_or_default();
            let behind: Vec<KeySample> = behind.iter().map(|keys| sample(range(keys))).collect();
            let (low, high) = (user_key(keys.start), user_key(keys.end - 1));
            let newer = (keys.end - keys.start, &sample(keys));
            let behind: Vec<&KeySample> = behind.iter().collect();
            said(OlderTables::than_memtables(older).hidden_by_keys((&low, &high), newer, &behind))
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/overwrites/scripts", |file| {
        let mut older = version(&[]);
        file.run(|case| run(&mut older, case));
    });
}
