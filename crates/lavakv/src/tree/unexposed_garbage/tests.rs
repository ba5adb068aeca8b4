use super::*;
use base::{ValueKind, key};
use datadriven::TestCase;
use io::Rng;
use std::collections::BTreeMap;

const TABLE: u64 = 10;

/// A table of references to `bytes` of values.
fn references(number: u64, keys: std::ops::RangeInclusive<u8>, bytes: u64) -> Arc<FileMeta> {
    let end = |k: &u8| key::encode(&[*k], number, ValueKind::Value);
    Arc::new(FileMeta {
        number,
        len: TABLE,
        smallest: end(keys.start()),
        largest: end(keys.end()),
        min_seq: number,
        max_seq: number,
        raw_bytes: TABLE + bytes,
        ..FileMeta::default()
    })
}

/// Parses a table of references: `level 6 table 1 keys 0-9 values 5000`, with
/// `hides 250000 ppm, 2000 B` at the end if the estimate is known.
fn table(line: &str) -> (usize, Arc<FileMeta>) {
    let (table, hides) =
        line.split_once(" hides ").map_or((line, None), |(table, hides)| (table, Some(hides)));
    let words: Vec<&str> = table.split_whitespace().collect();
    let ["level", level, "table", number, "keys", keys, "values", bytes] = words[..] else {
        panic!("{line}")
    };
    let (low, high) = keys.split_once('-').unwrap();
    let keys = low.parse().unwrap()..=high.parse().unwrap();
    let mut meta = FileMeta::clone(&references(number.parse().unwrap(), keys, bytes.parse().unwrap()));
    if let Some(hides) = hides {
        let numbers: Vec<u64> = hides.split(' ').filter_map(|word| word.parse().ok()).collect();
        let hides = Hides { keys_ppm: numbers[0], record_bytes: numbers[1] };
        meta.known = std::mem::take(&mut meta.known).with_hides(Some(hides));
    }
    (level.parse().unwrap(), Arc::new(meta))
}

fn run(case: &mut TestCase) -> Result<String, String> {
    let tables: Vec<(usize, Arc<FileMeta>)> = case.input.lines().map(table).collect();
    match &*case.directive {
        "hidden" => {
            let mut levels = vec![Vec::new(); 7];
            tables.into_iter().for_each(|(level, table)| levels[level].push(table));
            let hiding = UnexposedGarbage::of(&Version::with_files(0, levels));
            Ok(format!("at most {} B, likely {} B\n", hiding.bytes(), hiding.likely_bytes()))
        }
        "alone" => {
            let files: Vec<_> = tables.into_iter().map(|(_, table)| table).collect();
            let mut alone: Vec<u64> = alone(&files).into_iter().collect();
            alone.sort_unstable();
            Ok(format!("tables {alone:?}\n"))
        }
        other => Err(format!("no command is called {other}")),
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/unexposed_garbage/scripts", |file| file.run(run));
}

/// Updates from version to version equal a full computation, for any added, removed, moved or
/// changed table and any last level.
#[test]
fn incremental_unexposed_garbage_equals_a_full_computation() {
    let (mut rng, mut kept_whole) = (Rng::new(7), 0);
    for _ in 0..200 {
        let mut tables: BTreeMap<u64, (usize, u8, u8, u64, bool)> = BTreeMap::new();
        let (mut version, mut hiding, mut number) =
            (Version::with_files(0, Vec::new()), UnexposedGarbage::default(), 0);
        for _ in 0..30 {
            let before: Vec<u64> = tables.keys().copied().collect();
            for _ in 0..rng.range(1, 6) {
                number += 1;
                let (level, low) = (rng.below(6) as usize, rng.below(200) as u8);
                let table = (level, low, low + rng.below(20) as u8, rng.below(5000), rng.one_in(3));
                // Below level 0 the tables of a level do not overlap.
                let meets = |other: &(usize, u8, u8, u64, bool)| {
                    other.0 == level && level > 0 && other.1 <= table.2 && table.1 <= other.2
                };
                tables.retain(|_, other| !meets(other));
                tables.insert(number, table);
            }
            for number in before {
                match rng.below(8) {
                    0 => drop(tables.remove(&number)),
                    1 => {
                        tables
                            .entry(number)
                            .and_modify(|table| table.3 += 1)
                            .or_insert((0, 1, 2, 3, false))
                            .0 = 0
                    }
                    _ => {}
                }
            }
            let mut levels = vec![Vec::new(); 7];
            for (number, (level, low, high, bytes, is_exclusive)) in &tables {
                // An unchanged table keeps its metadata object.
                let same = version.files(*level).iter().find(|file| file.number == *number).cloned();
                let mut new = FileMeta::clone(&references(*number, *low..=*high, *bytes));
                if *is_exclusive && low < high {
                    new.largest = [&[*high][..], &u64::MAX.to_be_bytes()].concat();
                }
                levels[*level].push(same.filter(|file| **file == new).unwrap_or_else(|| Arc::new(new)));
            }
            let next = Version::with_files(0, levels);
            hiding = hiding.after(&version, &next);
            assert_eq!(hiding, UnexposedGarbage::of(&next));
            kept_whole += u64::from(hiding.between.len() > 5 && hiding.bytes() > 0);
            version = next;
        }
    }
    assert!(kept_whole > 1000, "{kept_whole}");
}
