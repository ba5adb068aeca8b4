use super::*;
use base::{ValueKind, key};
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

fn hidden(tables: &[(usize, Arc<FileMeta>)]) -> u64 {
    let mut levels = vec![Vec::new(); 7];
    tables.iter().for_each(|(level, table)| levels[*level].push(table.clone()));
    Hiding::of(&Version::with_files(0, levels)).bytes()
}

#[test]
fn what_meets_nothing_hides_nothing() {
    let last = [(6, references(1, 0..=9, 5000)), (6, references(2, 10..=19, 3000))];
    let above = |level, keys, bytes| hidden(&[&last[..], &[(level, references(3, keys, bytes))]].concat());
    assert_eq!(hidden(&last), 0, "nothing is above the last level");
    assert_eq!((above(0, 20..=29, 1000), above(5, 20..=29, 1000)), (0, 0), "keys that come in order");
    assert_eq!((above(0, 5..=29, 1000), above(5, 9..=9, 1000)), (1000, 1000), "each entry may hide one");
    assert_eq!(above(0, 15..=29, 4000), 3000, "no more than there is");
    assert_eq!(above(5, 5..=29, 9000), 8000);
}

#[test]
fn older_tables_of_level_0_and_of_levels_between_are_underneath() {
    let last = (6, references(1, 0..=9, 100));
    let (old, new) = ((0, references(2, 20..=29, 1000)), (0, references(3, 25..=39, 3000)));
    assert_eq!(hidden(&[last.clone(), old.clone(), new]), 1000, "the newer hides what the older has");
    let between = (5, references(4, 20..=29, 700));
    assert_eq!(hidden(&[last, between, old]), 700);
}

#[test]
fn a_table_hides_by_the_part_of_its_keys_that_older_tables_hold() {
    let last = [(6, references(1, 0..=9, 5000)), (6, references(2, 10..=19, 3000))];
    let of = |hides: Option<Hides>| {
        let mut above = FileMeta::clone(&references(3, 0..=19, 1000));
        above.known = std::mem::take(&mut above.known).with_hides(hides);
        let mut levels = vec![Vec::new(); 7];
        last.iter().for_each(|(level, table)| levels[*level].push(table.clone()));
        levels[3].push(Arc::new(above));
        let hiding = Hiding::of(&Version::with_files(0, levels));
        (hiding.bytes(), hiding.likely_bytes())
    };
    let hides = |keys_ppm, record_bytes| Some(Hides { keys_ppm, record_bytes });
    assert_eq!(of(None), (1000, 1000), "each entry may hide one");
    assert_eq!(of(hides(0, 0)), (0, 0), "a load of new keys");
    assert_eq!(of(hides(250_000, 2000)), (250, 2000), "a quarter overwrites longer values");
    assert_eq!(of(hides(1_000_000, 9999)), (1000, 8000), "no more than there is");
}

#[test]
fn tables_that_touch_another_are_not_alone() {
    let of = |tables: &[(u64, std::ops::RangeInclusive<u8>)]| {
        let files: Vec<_> = tables.iter().map(|(n, keys)| references(*n, keys.clone(), 1)).collect();
        let mut alone: Vec<u64> = alone(&files).into_iter().collect();
        alone.sort_unstable();
        alone
    };
    assert_eq!(of(&[(3, 20..=29), (2, 10..=19), (1, 0..=9)]), [1, 2, 3]);
    assert_eq!(of(&[(3, 20..=29), (2, 10..=20), (1, 0..=9)]), [1], "they have a key in common");
    assert_eq!(of(&[(4, 50..=59), (3, 0..=40), (2, 10..=12), (1, 30..=31)]), [4], "one reaches over others");
}

/// From version to version what is kept is what a walk finds, whatever comes, goes, changes its level or its description, and wherever the last level is.
#[test]
fn what_is_kept_from_version_to_version_is_what_a_walk_finds() {
    let (mut rng, mut kept_whole) = (Rng::new(7), 0);
    for _ in 0..200 {
        let mut tables: BTreeMap<u64, (usize, u8, u8, u64, bool)> = BTreeMap::new();
        let (mut version, mut hiding, mut number) =
            (Version::with_files(0, Vec::new()), Hiding::default(), 0);
        for _ in 0..30 {
            let before: Vec<u64> = tables.keys().copied().collect();
            for _ in 0..rng.range(1, 6) {
                number += 1;
                let (level, low) = (rng.below(6) as usize, rng.below(200) as u8);
                let table = (level, low, low + rng.below(20) as u8, rng.below(5000), rng.one_in(3));
                // Below level 0 tables of a level are apart.
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
                // As long as nothing changes it is the same.
                let same = version.files(*level).iter().find(|file| file.number == *number).cloned();
                let mut new = FileMeta::clone(&references(*number, *low..=*high, *bytes));
                if *is_exclusive && low < high {
                    new.largest = [&[*high][..], &u64::MAX.to_be_bytes()].concat();
                }
                levels[*level].push(same.filter(|file| **file == new).unwrap_or_else(|| Arc::new(new)));
            }
            let next = Version::with_files(0, levels);
            hiding = hiding.after(&version, &next);
            assert_eq!(hiding, Hiding::of(&next));
            kept_whole += u64::from(hiding.between.len() > 5 && hiding.bytes() > 0);
            version = next;
        }
    }
    assert!(kept_whole > 1000, "{kept_whole}");
}
