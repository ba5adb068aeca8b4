//! At the limit, with live data only: deletes work, and writes resume by themselves.

use crate::common::*;
use crate::limits::least_limit;
use crate::overwrites::{Filled, bytes, kept, limited, occupied};
use lavastore_lavakv::{
    Db, Durability, ErrorKind, FamilyOptions, Options, SpaceLimit, WriteBatch,
    io::{DirEntry, Rng},
    sim::{CrashKind, SimEnv},
};
use std::path::Path;

/// Writes new keys until there is no room. Returns their number.
fn fill_up(s: &mut Filled, from: u64, len: usize) -> u64 {
    for n in from..1_000_000 {
        if !s.put(n, bytes(n, 0, len)) {
            return n - from;
        }
    }
    panic!("it never filled up");
}

#[test]
fn deletes_make_room_at_the_limit() {
    for (seed, len, min_blob_size) in [(1, 3000, 512), (2, 300, 512), (3, 3000, 0), (4, 40_000, 512)] {
        let limit = 3 << 20;
        let mut options = limited(limit);
        options.family = FamilyOptions { min_blob_size, ..options.family };
        let mut s = Filled::new(seed, options.clone(), limit);
        let n = fill_up(&mut s, 0, len);
        let taken = n * len as u64;
        assert!(taken > limit / 3, "only {taken} bytes of values fit: {}", s.db.describe());
        // Overwrites of a full store succeed or are refused, and never exceed the limit.
        let mut rng = Rng::new(seed);
        for round in 1..200 {
            let k = rng.below(n);
            s.put(k, bytes(k, round, len));
            s.steps(1);
        }
        assert!(contents(&s.db) == s.model);
        for k in 0..n / 3 {
            s.delete(k);
        }
        // Without a reopen or a flush, writes continue.
        let again = fill_up(&mut s, n, len);
        assert!(again * len as u64 > taken / 5, "seed {seed}: {again} of {n}, {}", s.db.describe());
        assert!(contents(&s.db) == s.model);
        s.db.delete_range(&key(0), &key(n)).unwrap();
        (0..n).for_each(|k| drop(s.model.remove(&key(k))));
        let last = fill_up(&mut s, 2 * n, len);
        assert!(last * len as u64 > taken / 3, "seed {seed}: {last} of {n}, {}", s.db.describe());
        s.check(options);
    }
}

/// A stream of unknown length is refused before it exceeds the limit, and leaves no file.
#[test]
fn large_values_are_admitted_before_they_are_written() {
    let limit = 3 << 20;
    let mut s = Filled::new(9, limited(limit), limit);
    let n = fill_up(&mut s, 0, 200_000);
    assert!(n > 3, "{n}");
    let mut stream = s.db.put_stream(s.db.default_column_family(), b"stream", Default::default()).unwrap();
    let refused = (0..100).find_map(|_| {
        let result = stream.append(&[7; 50_000]);
        kept(&s.sim, limit);
        result.err()
    });
    assert_eq!(refused.unwrap().kind(), ErrorKind::NoSpace);
    drop(stream);
    s.delete(0);
    s.delete(1);
    s.delete(2);
    assert!(s.put(n, bytes(n, 1, 200_000)), "{}", s.db.describe());
    s.check(limited(limit));
}

/// A lower limit at the next open: the store opens, refuses writes, and shrinks by deletes.
#[test]
fn a_store_above_its_limit_comes_back_below_it() {
    let sim = SimEnv::new(11);
    let mut model = Model::new();
    let mut options = limited(8 << 20);
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    for n in 0..1500 {
        db.put(&key(n), &bytes(n, 0, 2500)).unwrap();
        model.insert(key(n), bytes(n, 0, 2500));
    }
    db.close().unwrap();
    options.space_limit = Some(SpaceLimit::Bytes(2 << 20));
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    fails(db.put(&key(0), &bytes(0, 1, 2500)), ErrorKind::NoSpace);
    assert!(contents(&db) == model);
    for n in 200..1500 {
        db.delete(&key(n)).unwrap_or_else(|e| panic!("{n}: {e}"));
        model.remove(&key(n));
        db.run_background_step();
    }
    db.put(&key(0), &bytes(0, 1, 2500)).unwrap_or_else(|e| panic!("{e}\n{}", db.describe()));
    model.insert(key(0), bytes(0, 1, 2500));
    assert!(contents(&db) == model);
    settle(&db);
    kept(&sim, 2 << 20);
}

/// The same where the log holds more than the memtables may at the next open.
#[test]
fn recovery_above_the_limit_comes_back_below_it() {
    let (sim, mut model) = (SimEnv::new(12), Model::new());
    let options = Options { memtable_bytes: 1 << 20, memory_bytes: 3 << 20, ..limited(13 << 20) };
    let db = Db::open_in(env(&sim), DIR, options.expert(|expert| expert.wal_bytes_max = 4 << 20)).unwrap();
    for n in 0..300 {
        db.put(&key(n), &bytes(n, 0, 2500)).unwrap();
        model.insert(key(n), bytes(n, 0, 2500));
    }
    let sim = sim.crash(CrashKind::ProcessKill, 1);
    let db = Db::open_in(env(&sim), DIR, limited(1 << 20)).unwrap();
    assert!(contents(&db) == model);
    (0..300).for_each(|n| db.delete(&key(n)).unwrap_or_else(|e| panic!("{n}: {e}")));
    db.put(&key(0), &bytes(0, 1, 2500)).unwrap_or_else(|e| panic!("{e}\n{}", db.describe()));
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    kept(&sim, 1 << 20);
}

/// Versions of a snapshot take room. After its release the room returns, though all of it is in the
/// last level.
#[test]
fn releasing_a_snapshot_frees_its_space() {
    for min_blob_size in [512, 0] {
        let limit = 7 << 19;
        let mut options = limited(limit);
        options.family.min_blob_size = min_blob_size;
        let mut s = Filled::new(21, options.clone(), limit);
        let n = 800;
        (0..n).for_each(|k| assert!(s.put(k, bytes(k, 0, 2000))));
        let snapshot = s.db.snapshot();
        let mut round = 1;
        while s.put(round * 7 % n, bytes(round * 7 % n, round, 2000)) {
            round += 1;
            assert!(round < 4000, "the snapshot keeps nothing");
        }
        assert_eq!(
            s.db.get_opt(
                s.db.default_column_family(),
                &key(7),
                &lavastore_lavakv::ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() },
            )
            .unwrap()
            .as_deref(),
            Some(&bytes(7, 0, 2000)[..])
        );
        drop(snapshot);
        for more in 0..1200 {
            let k = more * 13 % n;
            assert!(
                s.put(k, bytes(k, round + more, 2000)),
                "write {more}: {} {}",
                s.refusal,
                s.db.describe()
            );
        }
        s.check(options);
    }
}

/// A volume that really fills up is handled in the same way: no job fails, deletes make room, and
/// room freed by other programs is used.
#[test]
fn a_volume_that_fills_up_refuses_writes_until_deletes() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    fills_up(limited(1 << 40));
}

/// This needs no configured limit.
#[test]
fn a_volume_that_fills_up_under_a_store_without_a_limit() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    fills_up(Options { space_limit: None, ..limited(1 << 40) });
}

fn fills_up(options: Options) {
    let capacity = 3 << 20;
    let mut s = Filled::new(31, options.clone(), capacity);
    s.sim.set_capacity(Some(capacity));
    s.sim.advance_ns(200_000_000);
    assert!(s.put(0, bytes(0, 1, 3000)));
    s.db.flush().unwrap();
    let n = fill_up(&mut s, 0, 3000);
    assert!(n * 3000 > capacity / 3, "{n}: {}", s.db.describe());
    (0..n / 3).for_each(|k| s.delete(k));
    s.sim.advance_ns(200_000_000);
    let again = fill_up(&mut s, n, 3000);
    assert!(again > n / 6, "{again} of {n}: {} {}", s.refusal, s.db.describe());
    assert_eq!(s.db.stats().background_errors, 0);
    s.sim.set_capacity(Some(2 * capacity));
    s.limit = 2 * capacity;
    s.sim.advance_ns(200_000_000);
    let more = fill_up(&mut s, 2 * n, 3000);
    assert!(more > n / 2, "{more} of {n}: {}", s.db.describe());
    assert_eq!(s.db.stats().background_errors, 0);
    s.check(options);
}

/// Other programs take all free space: flushes fail and are retried, and writers do not wait for
/// them.
#[test]
fn a_volume_filled_by_other_programs_stalls_no_writer() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let options = limited(1 << 40);
    let mut s = Filled::new(41, options.clone(), 1 << 40);
    (0..100).for_each(|n| assert!(s.put(n, bytes(n, 0, 600))));
    s.sim.set_capacity(Some(s.sim.used()));
    let n = fill_up(&mut s, 100, 600);
    assert!(s.longest_ns < 1_000_000_000 && n < 1000, "{n} more, one after {} ns", s.longest_ns);
    assert!(contents(&s.db) == s.model);
    s.sim.set_capacity(None);
    s.sim.advance_ns(200_000_000);
    settle(&s.db);
    assert!(s.put(0, bytes(0, 1, 600)), "{}", s.refusal);
    s.check(options);
}

/// A durable delete takes a page of the log, however short it is. On a full volume the log still
/// keeps its bound: otherwise it could take the room that flushes need.
#[test]
fn small_durable_deletes_are_admitted_on_a_full_volume() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let capacity = 3 << 20;
    let options = Options { durability: Durability::Durable, ..limited(1 << 40) };
    let mut s = Filled::new(33, options.clone(), capacity);
    s.sim.set_capacity(Some(capacity));
    s.sim.advance_ns(200_000_000);
    let n = fill_up(&mut s, 0, 3000);
    // Deleted keys may be deleted any number of times.
    for round in 0..3000 {
        s.delete(round % (n / 3));
        let log: u64 = env(&s.sim).fs.list(Path::new(DIR)).unwrap().iter().map(log_bytes).sum();
        assert!(
            log <= options.expert.wal_bytes_max + 3 * options.expert.log_group_bytes,
            "{log} bytes of log"
        );
    }
    s.sim.advance_ns(200_000_000);
    let again = fill_up(&mut s, n, 3000);
    assert!(again > n / 6, "{again} of {n}: {} {}", s.refusal, s.db.describe());
    assert_eq!(s.db.stats().background_errors, 0);
    s.check(options);
}

fn log_bytes(entry: &DirEntry) -> u64 {
    if entry.name.ends_with(".log") { entry.allocated } else { 0 }
}

/// Recovery's outputs fit below the limit beside the existing files: free log groups, and leftovers
/// of jobs.
#[test]
fn an_open_after_a_crash_keeps_the_limit() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    for seed in [35, 36] {
        let mut options = limited(0);
        let limit = least_limit(options.clone());
        options.space_limit = Some(SpaceLimit::Bytes(limit));
        let (mut s, mut rng) = (Filled::new(seed, options.clone(), limit), Rng::new(seed));
        for round in 0..4000 {
            let k = rng.below(60);
            match rng.below(4) {
                0 => s.delete(k),
                _ => drop(s.put(k, bytes(k, round, 100 + rng.below(6000) as usize))),
            }
            s.steps(rng.below(3));
            if round % 20 == 0 {
                let after = s.sim.crash(CrashKind::ProcessKill, round);
                after.watch(DIR);
                let db =
                    Db::open_in(after.env(), DIR, options.clone()).unwrap_or_else(|e| panic!("{round}: {e}"));
                assert!(after.peak() <= limit, "{round}: {} of {limit} bytes", after.peak());
                assert!(contents(&db) == s.model, "{round}");
            }
        }
        s.check(options);
    }
}

/// The metrics file in the store's directory counts towards the limit. If it does not fit, it is
/// not written, which is counted; the previous one stays, and no write is refused because of it.
#[test]
fn the_file_of_metrics_keeps_the_limit() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let limit = 3 << 20;
    let options = Options { metrics_file: Some("METRICS".into()), ..limited(limit) };
    let mut s = Filled::new(43, options.clone(), limit);
    let page = |s: &Filled| env(&s.sim).fs.read_all(&path("METRICS"), 8 << 20).unwrap();
    let turn = |s: &Filled| {
        s.sim.advance_ns(400_000_000_000);
        while s.db.run_background_step() {}
    };
    turn(&s);
    let first = page(&s);
    let n = fill_up(&mut s, 0, 3000);
    s.sim.watch(DIR);
    turn(&s);
    assert_eq!(s.db.stats().metrics_write_errors, 0, "there is room for a page of the usual length");
    let second = page(&s);
    assert!(first != second);
    // Each name makes the file longer: first there is room for one and not for two, then not even
    // for one.
    for pages in [2, 1] {
        let room = limit - occupied(&s.sim);
        let mut held = Vec::new();
        while s.db.metrics().unwrap().len() as u64 * pages < room + (64 << 10) {
            held.push(s.db.snapshot_named(&format!("{:0>2000}", held.len())));
        }
        let before = s.db.stats().metrics_write_errors;
        (0..2).for_each(|_| turn(&s));
        assert!(s.sim.peak() <= limit, "{pages}: {} of {limit} bytes", s.sim.peak());
        assert!(s.db.stats().metrics_write_errors > before, "{pages}: {:?}", s.db.stats());
    }
    assert!(!page(&s).is_empty() && files_like(&s.sim, "METRICS").len() == 1);
    // Without the names the file is as short as before: it fits in place of the last one, though
    // the store is full.
    let before = s.db.stats().metrics_write_errors;
    turn(&s);
    assert!(page(&s) != second, "it is written again: {}", s.db.stats().metrics_write_errors - before);
    (0..n / 3).for_each(|k| s.delete(k));
    turn(&s);
    assert_eq!((s.db.stats().metrics_write_errors, s.db.stats().background_errors), (before, 0));
    let again = fill_up(&mut s, n, 3000);
    assert!(again > n / 6, "{again} of {n}: {} {}", s.refusal, s.db.describe());
    turn(&s);
    assert!(s.sim.peak() <= limit, "{} of {limit} bytes", s.sim.peak());
    s.check(options);
}

/// Default sizes are derived from the limit, which leaves the rest for data.
#[test]
fn most_of_a_limit_is_usable_with_the_default_options() {
    for (mib, len, least_percent) in [(4, 1000, 50), (8, 4000, 65), (64, 4000, 85)] {
        let limit = mib << 20;
        let options = Options { space_limit: Some(SpaceLimit::Bytes(limit)), ..Options::default() };
        let mut s = Filled::new(mib, options.clone(), limit);
        let n = fill_up(&mut s, 0, len);
        let percent = n * len as u64 * 100 / limit;
        assert!(percent >= least_percent, "{mib} MiB, {len} B: {percent} %, {}", s.db.describe());
        (0..n / 4).for_each(|k| s.delete(k));
        assert!(fill_up(&mut s, n, len) > n / 8, "{mib} MiB, {len} B: {}", s.db.describe());
        s.check(options);
    }
}

/// A queue with a counter in one batch, on a full store.
#[test]
fn a_batch_that_frees_space_is_admitted_at_the_limit() {
    for (seed, len, min_blob_size) in [(1, 3000, 512), (2, 300, 512), (3, 3000, 0)] {
        let limit = 3 << 20;
        let mut options = limited(limit);
        options.family = FamilyOptions { min_blob_size, ..options.family };
        let mut s = Filled::new(seed, options.clone(), limit);
        let n = fill_up(&mut s, 0, len);
        let pop = |s: &mut Filled, first: u64, counter: &[u8]| {
            let mut batch = WriteBatch::new();
            batch.put(b"counter", counter);
            (first..first + 3).for_each(|k| batch.delete(&key(k)));
            let done = s.db.write(&batch);
            kept(&s.sim, limit);
            done
        };
        for first in (0..n - 3).step_by(3) {
            let done = pop(&mut s, first, b"12345678");
            done.unwrap_or_else(|e| panic!("seed {seed}, {first} of {n}: {e}\n{}", s.db.describe()));
            (first..first + 3).for_each(|k| drop(s.model.remove(&key(k))));
            s.model.insert(b"counter".to_vec(), b"12345678".to_vec());
        }
        // Deletes of missing keys free nothing, so such batches may be refused; batches of deletes
        // alone are still admitted.
        let from = 500_000;
        let m = fill_up(&mut s, from, len);
        for round in 0..4 * m {
            if pop(&mut s, 700_000 + 3 * round, &bytes(round, 0, 100)).is_ok() {
                s.model.insert(b"counter".to_vec(), bytes(round, 0, 100));
            }
        }
        (from..from + m).for_each(|k| s.delete(k));
        // A batch with more data than it frees is refused.
        let m = fill_up(&mut s, from, len);
        let e = pop(&mut s, from, &bytes(0, 0, 20_000)).expect_err("it takes more than it frees");
        assert!(m > 0 && e.kind() == ErrorKind::NoSpace, "{e}");
        s.check(options);
    }
}
