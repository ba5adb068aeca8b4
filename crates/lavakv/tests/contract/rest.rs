//! An idle store frees deleted data by itself, also after a reopen.

use crate::common::*;
use crate::overwrites::{bytes, occupied};
use lavastore_lavakv::{Db, Options, ReadOptions, sim::SimEnv};

/// Files of an empty store: a log group with its reserve and ring, manifest and copies.
const EMPTY: u64 = 1 << 20;

/// Values of 2,500 bytes, separated or inline.
fn options(separated: bool) -> Options {
    let mut options = small();
    options.family.min_blob_size = if separated { 512 } else { 16 << 10 };
    options.family = options.family.expert(|expert| {
        expert.file_bytes = 128 << 10;
        expert.level_base_bytes = 256 << 10;
    });
    options.expert(|expert| expert.log_group_bytes = 256 << 10)
}

/// Leaves the store without writes for `seconds` of simulated time.
fn leave_alone(sim: &SimEnv, db: &Db, seconds: u64) {
    let clock = env(sim).clock;
    let end_ns = clock.now_ns() + seconds * 1_000_000_000;
    while clock.now_ns() < end_ns {
        if !db.run_background_step() {
            clock.sleep_ns(100_000_000);
        }
    }
}

fn put_all(db: &Db, keys: std::ops::Range<u64>, round: u64) {
    keys.for_each(|k| db.put(&key(k), &bytes(k, round, 2500)).unwrap());
}

/// Checks that the store has at most a tenth more than its live data.
#[track_caller]
fn is_small(sim: &SimEnv, db: &Db, live_keys: u64) {
    let (there, live) = (occupied(sim), live_keys * 2540);
    assert!(
        there < live + live / 10 + EMPTY,
        "{there} bytes for {live}\n{}\n{:?}",
        db.describe(),
        db.space()
    );
    ledger_adds_up(db, there);
}

#[test]
fn deletes_without_a_later_write_free_their_room() {
    for separated in [true, false] {
        let sim = SimEnv::new(1);
        let db = Db::open_in(env(&sim), DIR, options(separated)).unwrap();
        put_all(&db, 0..4000, 0);
        settle(&db);
        (0..4000).filter(|k| k % 5 < 3).for_each(|k| db.delete(&key(k)).unwrap());
        assert!(occupied(&sim) > 4000 * 2500);
        leave_alone(&sim, &db, 70);
        is_small(&sim, &db, 1600);
        assert_eq!(contents(&db).len(), 1600);
        let written = db.stats().compaction_bytes_written;
        leave_alone(&sim, &db, 600);
        assert_eq!(db.stats().compaction_bytes_written, written, "rest work ends");
    }
}

#[test]
fn deletes_before_a_reopen_free_their_room_after_it() {
    for separated in [true, false] {
        let sim = SimEnv::new(1);
        let db = Db::open_in(env(&sim), DIR, options(separated)).unwrap();
        put_all(&db, 0..4000, 0);
        settle(&db);
        db.delete_range(&key(0), &key(3000)).unwrap();
        db.close().unwrap();
        let db = Db::open_in(env(&sim), DIR, options(separated)).unwrap();
        leave_alone(&sim, &db, 70);
        is_small(&sim, &db, 1000);
    }
}

/// Versions retained in the last level for a released snapshot; `reopened`: the process has ended
/// too.
fn kept_for_a_snapshot(separated: bool, reopened: bool, by_hand: bool) {
    let sim = SimEnv::new(1);
    let mut db = Db::open_in(env(&sim), DIR, options(separated)).unwrap();
    put_all(&db, 0..1500, 0);
    let snapshot = db.snapshot_named("report");
    (1..4).for_each(|round| put_all(&db, 0..1500, round));
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    leave_alone(&sim, &db, 70);
    assert!(occupied(&sim) > 2 * 1500 * 2500, "the snapshot keeps what it reads");
    drop(snapshot);
    if reopened {
        db.close().unwrap();
        db = Db::open_in(env(&sim), DIR, options(separated)).unwrap();
    }
    if by_hand {
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
    }
    leave_alone(&sim, &db, 70);
    is_small(&sim, &db, 1500);
}

#[test]
fn versions_of_a_dropped_snapshot_free_their_room() {
    for separated in [true, false] {
        kept_for_a_snapshot(separated, false, false);
        kept_for_a_snapshot(separated, true, false);
    }
}

#[test]
fn a_compaction_of_a_range_frees_versions_of_a_dropped_snapshot() {
    for separated in [true, false] {
        kept_for_a_snapshot(separated, true, true);
    }
}

/// A queue: puts at the end, deletes at the front. `depth`: its length when it is read.
fn drained_queue(sim: &SimEnv, depth: u64) -> Db {
    let db = Db::open_in(env(sim), DIR, options(true)).unwrap();
    (0..4000 + depth).for_each(|k| db.put(&key(k), &value(k, 0)).unwrap());
    (0..4000).for_each(|k| db.delete(&key(k)).unwrap());
    db.flush().unwrap();
    while db.run_background_step() {}
    db
}

/// Returns the entries that a read of the first key passes.
fn passed_by_first(db: &Db) -> u64 {
    let mut iter = db.iter(ReadOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), key(4000));
    iter.hidden_entries()
}

/// Reads that pass tombstones cause compactions that remove them, also under continuous writes.
#[test]
fn tombstones_skipped_by_reads_are_compacted() {
    let sim = SimEnv::new(1);
    let db = drained_queue(&sim, 1);
    let first = passed_by_first(&db);
    assert!(first > 1000, "{first} entries passed\n{}", db.describe());
    for round in 0..200 {
        db.put(b"z", &round.to_string().into_bytes()).unwrap();
        passed_by_first(&db);
        while db.run_background_step() {}
    }
    assert!(db.stats().compaction_for_reads > 0);
    let last = passed_by_first(&db);
    assert!(last * 20 < first, "{last} entries passed of {first}\n{}", db.describe());
}

/// A tree with level 0 only is compacted without reads and writes.
#[test]
fn level_0_of_an_idle_store_is_compacted() {
    let sim = SimEnv::new(1);
    let db = drained_queue(&sim, 1);
    leave_alone(&sim, &db, 70);
    assert_eq!(db.stats().compaction_for_reads, 0);
    assert_eq!(passed_by_first(&db), 0, "{}", db.describe());
}

/// Returns the allocated bytes of the log's files.
fn log_bytes(sim: &SimEnv) -> u64 {
    let listed = env(sim).fs.list(DIR.as_ref()).unwrap();
    listed.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.allocated).sum()
}

/// The log of a closed store holds only changes that are in no table.
#[test]
fn a_closed_store_has_no_unused_log_space() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    for round in 0..4 {
        let db = Db::open_in(env(&sim), DIR, options(false)).unwrap();
        assert_eq!(contents(&db), model);
        fill(&db, &mut model, 0..3000, round);
        db.flush().unwrap();
        fill(&db, &mut model, 0..50, 10 + round);
        let open = log_bytes(&sim);
        db.close().unwrap();
        // The reserve has three of the shortest groups, of 64 KiB each. The last group has 256 KiB,
        // partly used.
        let closed = log_bytes(&sim);
        assert!(closed < (3 << 16) + (160 << 10), "{closed} bytes of {open} in round {round}");
        assert!(open > 2 * closed, "{closed} bytes of {open} in round {round}");
    }
    let db = Db::open_in(env(&sim), DIR, options(false)).unwrap();
    assert_eq!(contents(&db), model);
    assert!(db.verify().unwrap().errors.is_empty());
}
