//! What the parts below refuse, on a store that has a group with an index file.

use super::*;
use crate::entry::Source;
use crate::files::RowFile;
use crate::manifest::{FileMeta, Role, Step, commit};
use io::sim::SimEnv;

/// A store with three records in a group that is storage; and its index file.
fn sealed() -> (LogStore, FileMeta) {
    let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
    let store = LogStore::open(&SimEnv::new(1).env(), Path::new("/logs"), &options).unwrap();
    let log = store.create_log("a").unwrap();
    (1..=3).for_each(|lsn| log.append(lsn, &[7; 100], Durability::Durable).unwrap());
    store.seal().unwrap();
    store.settle().unwrap();
    let state = store.core().manifest.state();
    let index = state.files.values().find(|file| matches!(file.role, Role::Index { .. })).copied().unwrap();
    (store, index)
}

#[test]
fn an_index_of_another_group_or_a_block_without_the_record_is_damage() {
    let (store, index) = sealed();
    let Role::Index { ltn } = index.role else { unreachable!("{index:?}") };
    let open = |role| RowFile::open(store.core().context(), &FileMeta { role, ..index });
    let (_, directory) = open(index.role).unwrap();
    let e = open(Role::Index { ltn: ltn + 1 }).unwrap_err();
    let why = format!("an index of group {ltn} where that of group {} belongs", ltn + 1);
    assert!(e.is_corruption() && e.message() == why && e.file().is_some(), "{e}");
    let rows = &directory.logs[0];
    let find = |lsn| store.core().rows.entry(Source::Group(ltn), rows.log, lsn, rows.blocks[0]);
    assert_eq!(find(3).unwrap().lsn, 3);
    let e = find(4).unwrap_err();
    assert!(e.is_corruption() && e.message().contains("is not in the block of"), "{e}");
}

#[test]
fn a_floor_never_sinks() {
    let (store, _) = sealed();
    let manifest = &store.core().manifest;
    let floor = manifest.state().floor;
    assert!(floor > 1);
    let step = Step { floor: Some(floor - 1), ..Step::default() };
    let e = manifest.commit(commit(step, Vec::new())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("the floor") && manifest.state().floor == floor, "{e}");
}

/// Between the look at the index and the read of the block the file was lost and another has come, with other blocks in its places.
#[test]
fn a_block_that_was_found_before_rows_were_taken_in_is_looked_for_again() {
    let (store, index) = sealed();
    let (core, source) = (store.core(), index.source().unwrap());
    let (_, directory) = RowFile::open(core.context(), &index).unwrap();
    let rows = &directory.logs[0];
    let then = base::sync::read(&core.logs).taken_in();
    let read =
        |taken_in| core.with_rows(source, taken_in, || core.rows.entry(source, rows.log, 1, rows.blocks[0]));
    assert_eq!(read(then).unwrap().lsn, 1);
    base::sync::write(&core.logs).took_in();
    assert_eq!(read(then).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read(then + 1).unwrap().lsn, 1);
}

/// As if a collection had moved it each time: the index leads to a file of rows that is not known any more.
#[test]
fn who_never_finds_a_record_where_it_was_is_told_to_read_again() {
    let (store, index) = sealed();
    let log = store.open_log("a").unwrap();
    store.core().rows.forget(index.source().unwrap());
    let read = log.read(1).unwrap_err();
    let scanned = log.scan(1).read_next().unwrap_err();
    for (e, way_out) in [(read, "read it again"), (scanned, "read on")] {
        assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        assert!(e.message().contains("moved again and again") && e.message().ends_with(way_out), "{e}");
    }
    store.core().rows.add(&index);
    assert_eq!(log.read(1).unwrap().as_deref(), Some(&[7; 100][..]));
}
