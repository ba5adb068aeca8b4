use super::*;
use crate::policy::tests::tables::of_values as table;
use crate::policy::{CompactionPolicy, InProgress, Leveled, SetAside};
use std::sync::Arc;
use version::Version;

fn picked(
    levels: Vec<(usize, FileMeta)>,
    rewrite_bytes_max: u64,
    released: &[u64],
) -> Option<(usize, usize, u64)> {
    let mut tree = vec![Vec::new(); 7];
    levels.into_iter().for_each(|(level, file)| tree[level].push(Arc::new(file)));
    let version = Version::with_files(0, tree);
    let (set_aside, busy) = (SetAside::default(), InProgress::default());
    let facts = PickInputs { version: &version, set_aside: &set_aside, busy: &busy };
    let has_released = |number| released.contains(&number);
    let request = RestRequest { reason: Reason::Rest, rewrite_bytes_max, has_released: &has_released };
    Leveled::default().rest(&facts, &request).map(|c| {
        assert_eq!(c.reason, Reason::Rest);
        let first = c.input_files().next().map_or(0, |(_, f)| f.number);
        (c.level, c.output_level, first)
    })
}

fn tombstones(number: u64, count: u64) -> FileMeta {
    FileMeta { tombstones: count, ..table(number, 0..1000, 1000, 30_000, 0) }
}

const ALL: u64 = u64::MAX;

#[test]
fn tombstones_move_down_within_the_byte_budget() {
    let bottom = table(1, 0..1000, 1000, 16_000_000, 0);
    assert_eq!(picked(vec![(5, tombstones(9, 1)), (6, bottom.clone())], ALL, &[]), Some((5, 6, 9)));
    assert_eq!(picked(vec![(5, tombstones(9, 1)), (6, bottom.clone())], 1_000_000, &[]), None);
    let plain = tombstones(9, 0);
    assert_eq!(picked(vec![(5, plain.clone()), (6, bottom.clone())], ALL, &[]), None, "nothing is deleted");
    assert_eq!(picked(vec![(5, plain), (6, bottom.clone())], ALL, &[9]), Some((5, 6, 9)));
    assert_eq!(picked(vec![(0, tombstones(9, 1)), (6, bottom)], ALL, &[]), Some((0, 6, 9)));
}

#[test]
fn level_0_moves_down_if_other_levels_are_empty() {
    let plain = |number| table(number, 0..1000, 1000, 30_000, 0);
    assert!(picked(vec![(0, plain(9)), (0, plain(8))], ALL, &[]).is_some());
    assert_eq!(picked(vec![(0, plain(9))], ALL, &[]), None, "one table hides nothing of itself");
    assert!(picked(vec![(0, tombstones(9, 1))], ALL, &[]).is_some());
}

#[test]
fn tombstones_or_released_versions_rewrite_the_deepest_level() {
    assert_eq!(picked(vec![(6, tombstones(9, 125))], ALL, &[]), Some((6, 6, 9)));
    assert_eq!(picked(vec![(6, tombstones(9, 124))], ALL, &[]), None);
    assert_eq!(picked(vec![(6, tombstones(9, 0))], ALL, &[9]), Some((6, 6, 9)));
    assert_eq!(picked(vec![(6, tombstones(9, 0))], 29_999, &[9]), None);
}
