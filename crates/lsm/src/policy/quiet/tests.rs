use super::*;
use crate::policy::tests::tables::of_values as table;
use crate::policy::{CompactionPolicy, InProgress, Leveled, SetAside};
use std::sync::Arc;
use version::{FileMeta, Version};

fn pick_quiet(version: &Version, busy: &InProgress) -> Option<Compaction> {
    Leveled::default().quiet(&PickInputs { version, set_aside: &SetAside::default(), busy })
}

fn picked(levels: Vec<(usize, FileMeta)>) -> Option<(usize, usize)> {
    let mut tree = vec![Vec::new(); 7];
    levels.into_iter().for_each(|(level, file)| tree[level].push(Arc::new(file)));
    let version = Version::with_files(0, tree);
    let picked = pick_quiet(&version, &InProgress::default());
    picked.map(|c| {
        assert_eq!(c.reason, Reason::Quiet);
        (c.level, c.output_level)
    })
}

#[test]
fn idle_compaction_merges_references_only() {
    let bottom = |values: u64| table(1, 0..1000, 1000, 30_000 + values, 0);
    // A tenth of the keys is overwritten: 3 kB of references expose 1.6 MB of values; inline it
    // would be 1.6 MB for 17 MB.
    let separated = table(1, 0..1000, 1000, 30_000, 16_000_000);
    assert_eq!(
        picked(vec![(0, table(9, 0..1000, 100, 3_000, 1_600_000)), (6, separated.clone())]),
        Some((0, 6))
    );
    assert_eq!(
        picked(vec![(5, table(9, 0..1000, 100, 3_000, 1_600_000)), (6, separated.clone())]),
        Some((5, 6))
    );
    assert_eq!(picked(vec![(0, table(9, 0..1000, 100, 1_603_000, 0)), (6, bottom(16_000_000))]), None);
    // New keys after all others free nothing, and one level alone is at rest.
    assert_eq!(picked(vec![(0, table(9, 1000..1100, 100, 3_000, 1_600_000)), (6, separated.clone())]), None);
    assert_eq!(picked(vec![(6, separated)]), None);
    assert_eq!(picked(vec![(0, table(9, 0..1000, 100, 3_000, 1_600_000))]), None);
    assert_eq!(picked(vec![]), None);
}

#[test]
fn bytes_hidden_by_tombstones_count() {
    let bottom = table(1, 0..1000, 1000, 16_000_000, 0);
    let tombstones =
        |n, hidden_bytes| FileMeta { tombstones: n, hidden_bytes, ..table(9, 0..1000, n, 30 * n, 0) };
    assert_eq!(picked(vec![(5, tombstones(900, 14_400_000)), (6, bottom.clone())]), Some((5, 6)));
    assert_eq!(picked(vec![(5, tombstones(100, 1_600_000)), (6, bottom.clone())]), None);
    // One range tombstone covers nearly everything; files move through an empty level on their way
    // to the entries that they hide.
    let range = FileMeta { range_tombstones: 1, ..tombstones(1, 15_000_000) };
    assert_eq!(picked(vec![(5, range.clone()), (6, bottom.clone())]), Some((5, 6)));
    assert_eq!(picked(vec![(3, range), (6, bottom)]), Some((3, 4)));
}

/// Every pick moves entries down, so the process ends.
#[test]
fn idle_compaction_avoids_running_compactions() {
    let separated = Arc::new(table(1, 0..1000, 1000, 30_000, 16_000_000));
    let upper = Arc::new(table(9, 0..1000, 100, 3_000, 1_600_000));
    let mut tree = vec![Vec::new(); 7];
    (tree[5], tree[6]) = (vec![upper], vec![separated]);
    let version = Version::with_files(0, tree);
    let mut busy = InProgress::default();
    let first = pick_quiet(&version, &busy).unwrap();
    busy.add(&first);
    assert!(pick_quiet(&version, &busy).is_none());
}
