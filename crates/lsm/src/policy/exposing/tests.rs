use super::*;
use crate::policy::tests::tables::of_values;
use crate::policy::{CompactionPolicy, InProgress, Leveled, SetAside, Vlsm, VlsmOptions};
use std::sync::Arc;
use version::FileMeta;

/// Returns a table of references of 32 bytes to values of `value_bytes`.
fn table(number: u64, keys: std::ops::Range<u32>, entries: u64, value_bytes: u64) -> FileMeta {
    of_values(number, keys, entries, entries * 32, entries * value_bytes)
}

fn version(tables: &[(usize, FileMeta)]) -> Version {
    let mut levels = vec![Vec::new(); 7];
    tables.iter().for_each(|(level, table)| levels[*level].push(Arc::new(table.clone())));
    levels[0].sort_by_key(|f| std::cmp::Reverse(f.number));
    Version::with_files(0, levels)
}

/// Returns the level and the first table of the pick, which must be the same for both policies.
fn picked_beside(tables: &[(usize, FileMeta)], busy: &InProgress) -> Option<(usize, u64)> {
    let (version, set_aside) = (version(tables), SetAside::default());
    let (facts, met) =
        (PickInputs { version: &version, set_aside: &set_aside, busy }, OverlapStats::of(&version));
    let vlsm = Vlsm::new(VlsmOptions::default(), Leveled::default());
    let [first, second] = [Leveled::default().exposing(&facts, &met, 1.0), vlsm.exposing(&facts, &met, 1.0)]
        .map(|picked| {
            picked.map(|c| {
                assert_eq!(c.reason, Reason::Exposes);
                (c.level, c.inputs[0].1[0].number)
            })
        });
    assert_eq!(first, second);
    first
}

fn picked(tables: &[(usize, FileMeta)]) -> Option<(usize, u64)> {
    picked_beside(tables, &InProgress::default())
}

#[test]
fn level_0_is_exposed_if_intermediate_levels_are_empty() {
    let last = (6, table(1, 0..1000, 1000, 1000));
    assert_eq!(picked(std::slice::from_ref(&last)), None, "nothing is hidden");
    assert_eq!(picked(&[last.clone(), (0, table(2, 0..1000, 100, 1000))]), Some((0, 2)));
    assert_eq!(picked(&[last.clone(), (0, table(2, 1000..2000, 100, 1000))]), None, "keys in order");
    assert_eq!(picked(&[(0, table(2, 0..1000, 100, 1000))]), None, "nothing is below it");
}

/// The level between has a tenth of the keys that come down, and the last level has all: the
/// garbage is there.
#[test]
fn intermediate_levels_go_first_if_they_hide_more() {
    let last = (0..10).map(|n| (6, table(10 + n, n as u32 * 100..n as u32 * 100 + 100, 1000, 1000)));
    let mut tables: Vec<_> = last.collect();
    tables.push((5, table(3, 0..500, 500, 1000)));
    // The same number of entries in fewer keys overlaps less.
    tables.push((5, table(4, 500..700, 500, 1000)));
    tables.push((0, table(5, 0..1000, 1000, 1000)));
    assert_eq!(picked(&tables), Some((5, 4)));
    // Running compactions and their overlap are left out.
    let version = version(&tables);
    let set_aside = SetAside::default();
    let mut busy = InProgress::default();
    let facts = PickInputs { version: &version, set_aside: &set_aside, busy: &InProgress::default() };
    let met = OverlapStats::of(&version);
    busy.add(&Leveled::default().exposing(&facts, &met, 1.0).unwrap());
    assert_eq!(picked_beside(&tables, &busy), Some((5, 3)));
}

#[test]
fn exposing_is_skipped_if_it_writes_more_than_it_frees() {
    // The same with short values, and with empty ones.
    for (value_bytes, goes) in [(1000, true), (300, false), (0, false)] {
        let tables = [(6, table(1, 0..1000, 1000, value_bytes)), (0, table(2, 0..1000, 100, value_bytes))];
        assert_eq!(picked(&tables).is_some(), goes, "{value_bytes}");
    }
    // 95 entries meet one below: 95 kB exposed for 35 kB written.
    let version = version(&[(6, table(1, 0..1000, 1000, 1000)), (0, table(2, 0..1000, 100, 1000))]);
    let facts =
        PickInputs { version: &version, set_aside: &SetAside::default(), busy: &InProgress::default() };
    let met = OverlapStats::of(&version);
    let goes = |worth| Leveled::default().exposing(&facts, &met, worth).is_some();
    assert_eq!((goes(0.0), goes(2.6), goes(2.8)), (true, true, false));
}

/// Each pick moves entries down, so the process ends.
#[test]
fn exposing_terminates() {
    let mut tables = vec![(6, table(1, 0..1000, 1000, 4000)), (5, table(2, 0..1000, 100, 4000))];
    tables.push((0, table(3, 0..1000, 100, 4000)));
    let mut steps = 0;
    while let Some((level, number)) = picked(&tables) {
        let at = tables.iter().position(|(_, f)| f.number == number).unwrap();
        let (_, moved) = tables.remove(at);
        let below = if level == 0 && tables.iter().any(|(level, _)| *level == 5) { 5 } else { 6 };
        let into = tables.iter().position(|(level, _)| *level == below);
        let (_, merged) = tables.remove(into.unwrap());
        tables.push((below, table(10 + steps, 0..1000, merged.entries.max(moved.entries), 4000)));
        steps += 1;
        assert!(steps < 4, "{tables:?}");
    }
    assert_eq!((steps, tables.len()), (2, 1));
}
