use super::*;
use base::{ValueKind, key};

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
    hidden_at_most(&Version::with_files(0, levels))
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
