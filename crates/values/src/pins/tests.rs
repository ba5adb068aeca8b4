use super::*;
use crate::pick::tests::{Shop, dependency};
use version::FileMeta;

/// Returns the blob ids that tables use.
fn used(tables: &[Arc<FileMeta>]) -> Vec<u64> {
    used_names(tables.iter().filter_map(|f| f.uses.list()))
}

#[test]
fn a_name_is_pinned_until_the_last_guard_is_gone() {
    let pins = Pins::new();
    let mut first = pins.pin([1, 2, 2]);
    let second = pins.pin([2, 3]);
    first.extend([4]);
    assert_eq!(first.names(), [1, 2, 2, 4]);
    assert_eq!(pins.len(), 4);
    drop(first);
    let pinned = |name| pins.is_pinned(1, name);
    assert!(!pinned(1) && pinned(2) && pinned(3) && !pinned(4));
    drop(second);
    assert!(pins.is_empty());
}

/// At no time is a blob id of the guard unpinned: the family is released last.
#[test]
fn a_guard_releases_the_family_after_pinning_names() {
    let pins = Pins::new();
    let mut guard = pins.hold(1);
    let is_held = |name: &u64| assert!(pins.is_pinned(1, *name), "{name}");
    guard.narrow([5, 6].into_iter().inspect(is_held));
    let pinned = [5, 6, 7].map(|name| pins.is_pinned(1, name));
    assert_eq!(pinned, [true, true, false]);
}

#[test]
fn a_job_pins_the_names_of_its_tables_and_their_targets() {
    let mut shop = Shop::new();
    shop.vsst(10, 100).vsst(11, 100).vsst(12, 100).alias(5, &[10, 11]).alias(6, &[12]);
    shop.table(1, &[dependency(5, 1, 10)])
        .table(2, &[dependency(10, 1, 10)])
        .table(3, &[dependency(6, 1, 10)]);
    let version = shop.version();
    let names = |tables: &[Arc<FileMeta>]| names_to_pin(&version, &used(tables));
    let files = version.files(1);
    assert_eq!(names(&files[..1]), [5, 10, 11]);
    assert_eq!(names(&files[1..2]), [10]);
    assert_eq!(names(files), [5, 6, 10, 11, 12]);
    assert!(names(&[]).is_empty());
}

#[test]
fn an_outline_resolves_names_without_holding_files() {
    let mut shop = Shop::new();
    shop.vsst(10, 100).vsst(11, 100).vsst(12, 100).alias(5, &[10, 11]);
    shop.table(1, &[dependency(5, 1, 10), dependency(10, 1, 10)]).table(2, &[dependency(12, 1, 10)]);
    let version = shop.version();
    let holders =
        |number| version.vssts.get(&number).map(|v| (Arc::strong_count(v), Arc::strong_count(&v.copies)));
    let before = [10, 11, 12].map(holders);
    let used = used(&version.files(1)[..1]);
    let outline = outline(&version, &used, &[]);
    assert_eq!([10, 11, 12].map(holders), before);
    for name in [5, 10] {
        let leads = |version: &Version| version.resolve_all(name).map(|v| v.number).collect::<Vec<_>>();
        assert_eq!(leads(&outline), leads(&version));
    }
    assert!(outline.files(1).len() == 2 && !outline.vssts.contains_key(&12), "of the files asked about");
    let reads = super::outline(&version, &used, &[11]);
    assert!(holders(11) > before[1] && holders(10) == before[0] && reads.vssts.len() == 2);
}

#[test]
fn a_held_family_is_not_pruned_until_names_are_pinned() {
    let mut shop = Shop::new();
    shop.vsst(10, 100).vsst(12, 100).alias(6, &[10]).alias(7, &[12]);
    shop.table(1, &[dependency(10, 1, 10)]);
    let (version, pins) = (shop.version(), Pins::new());
    let pruned = || describe(prune(&version, &Ledger::of(&version), &pins));
    let mut first = pins.hold(1);
    let second = pins.hold(1);
    let elsewhere = pins.hold(2);
    assert_eq!(pruned(), (vec![], vec![]));
    assert!(pins.is_pinned(1, 99) && !pins.is_pinned(3, 99));
    assert_eq!(pins.len(), 2, "families");
    first.narrow([6]);
    assert_eq!(pins.len(), 3, "families, and a name");
    assert_eq!(pruned(), (vec![], vec![]), "the other one does not know yet");
    drop(second);
    assert_eq!(pruned(), (vec![7], vec![12]));
    drop(first);
    assert_eq!(pruned(), (vec![6, 7], vec![12]));
    assert!(!pins.is_empty());
    drop(elsewhere);
    assert!(pins.is_empty());
}

fn describe(pruned: (Vec<Record>, Vec<Arc<VsstMeta>>)) -> (Vec<u64>, Vec<u64>) {
    let (mut aliases, mut files) = (Vec::new(), Vec::new());
    for record in &pruned.0 {
        match record {
            Record::DropAlias { family: 1, blob_id } => aliases.push(*blob_id),
            Record::RemoveVsst { family: 1, number } => files.push(*number),
            other => panic!("{other:?}"),
        }
    }
    assert!(pruned.1.iter().map(|v| v.number).eq(files.iter().copied()));
    (aliases, files)
}

#[test]
fn unreferenced_and_unpinned_files_are_pruned() {
    let mut shop = Shop::new();
    // 10 is used by its own blob id, 11 by an alias only, 12 not at all.
    shop.vsst(10, 100).vsst(11, 100).vsst(12, 100).alias(5, &[11]).alias(6, &[11]).alias(7, &[12]);
    shop.table(1, &[dependency(5, 1, 10), dependency(10, 1, 10)]);
    let version = shop.version();
    let pins = Pins::new();
    assert_eq!(describe(prune(&version, &Ledger::of(&version), &pins)), (vec![6, 7], vec![12]));
    {
        let _guard = pins.pin([6]);
        assert_eq!(describe(prune(&version, &Ledger::of(&version), &pins)), (vec![7], vec![12]));
    }
    {
        let _guard = pins.pin([12]);
        assert_eq!(
            describe(prune(&version, &Ledger::of(&version), &pins)),
            (vec![6, 7], vec![]),
            "the file by its own name"
        );
    }
    {
        let _guard = pins.pin([7]);
        assert_eq!(
            describe(prune(&version, &Ledger::of(&version), &pins)),
            (vec![6], vec![]),
            "the file by its alias"
        );
    }
    assert_eq!(describe(prune(&Shop::new().version(), &Ledger::default(), &pins)), (vec![], vec![]));
}
