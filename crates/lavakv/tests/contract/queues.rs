//! A read of a queue in key order costs almost nothing, whatever the number of elements taken.

use crate::common::*;
use lavastore_lavakv::{Db, ReadOptions, sim::SimEnv};

const DEPTH: u64 = 50;
const POPS: u64 = 3000;

/// Keys in the order of the queue.
fn place(nth: u64, forward: bool) -> Vec<u8> {
    key(if forward { nth } else { 900_000 - nth })
}

/// Reads the next element. Returns its key, and the number of passed entries.
fn next(db: &Db, forward: bool) -> (Option<Vec<u8>>, u64) {
    let mut iter = db.iter(ReadOptions::default()).unwrap();
    if forward { iter.seek_to_first() } else { iter.seek_to_last() }.unwrap();
    (iter.valid().then(|| iter.key().to_vec()), iter.hidden_entries())
}

/// Runs a queue in one memtable. Returns the entries that its reads passed.
fn run(db: &Db, forward: bool) -> u64 {
    let put = |nth| db.put(&place(nth, forward), b"element").unwrap();
    (0..DEPTH).for_each(put);
    let mut all = 0;
    for nth in 0..POPS {
        put(nth + DEPTH);
        let (found, passed) = next(db, forward);
        assert_eq!(found, Some(place(nth, forward)));
        db.delete(&place(nth, forward)).unwrap();
        all += passed;
    }
    all
}

#[test]
fn queue_head_is_found_without_scanning_tombstones() {
    for forward in [true, false] {
        let sim = SimEnv::new(1);
        let db = Db::open_in(env(&sim), DIR, small()).unwrap();
        let passed = run(&db, forward);
        assert!(passed < 80 * POPS, "{passed} entries passed, forward {forward}");
    }
}

#[test]
fn a_drained_queue_is_found_empty_at_once() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    (0..POPS).for_each(|k| db.put(&key(k), b"element").unwrap());
    (0..POPS).for_each(|k| db.delete(&key(k)).unwrap());
    // The first read walks over the tombstones, the second one does so while the range is watched.
    (0..2).for_each(|_| assert_eq!(next(&db, true).0, None));
    let (found, passed) = next(&db, true);
    assert!(found.is_none() && passed < 80, "{passed} entries passed");
    db.put(&key(7), b"again").unwrap();
    assert_eq!(next(&db, true).0, Some(key(7)));
    assert_eq!(next(&db, false).0, Some(key(7)));
}

/// A snapshot older than the deletes sees the elements that later reads skip.
#[test]
fn an_older_snapshot_sees_dequeued_elements() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    (0..POPS).for_each(|k| db.put(&key(k), b"element").unwrap());
    let snapshot = db.snapshot();
    (0..POPS - 1).for_each(|k| db.delete(&key(k)).unwrap());
    (0..3).for_each(|_| assert_eq!(next(&db, true).0, Some(key(POPS - 1))));
    let options = || ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    let mut iter = db.iter(options()).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), key(0));
    let entries = db.iter(options()).unwrap().entries();
    assert_eq!(
        entries.map(|entry| entry.unwrap().0).collect::<Vec<_>>(),
        (0..POPS).map(key).collect::<Vec<_>>()
    );
}

/// Fragments of range tombstones are not recomputed for each read between them.
#[test]
fn range_deletes_and_scans_in_turn_see_the_same() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    (0..POPS).for_each(|k| db.put(&key(k), b"element").unwrap());
    for k in (0..POPS - 10).step_by(10) {
        db.delete_range(&key(k), &key(k + 10)).unwrap();
        assert_eq!(next(&db, true).0, Some(key(k + 10)));
        assert_eq!(db.get(&key(k + 9)).unwrap(), None);
    }
}
