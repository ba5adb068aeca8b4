//! `buffered_age_ms_max`: pages superseded by a flush in time are never written to the log, and
//! crashes leave the same states as without it.

use crate::common::*;
use crate::crashes::CrashRun;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{CrashKind, Policy, SimEnv};
use lavastore_lavakv::{Db, Durability, Options, ReadOptions, Result, WriteOptions};
use std::path::Path;

const MINUTE_MS: u64 = 60_000;

fn aging(buffered_age_ms_max: u64) -> Options {
    Options { memory_bytes: 512 << 10, ..small() }
        .expert(|expert| expert.buffered_age_ms_max = Some(buffered_age_ms_max))
}

fn open_aging(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, aging(MINUTE_MS)).unwrap()
}

/// Puts, with all due background work after each.
fn overwrite(db: &Db, rounds: u64, len: usize) -> u64 {
    for round in 0..rounds {
        for i in 0..50 {
            let value: Vec<u8> = value(i, round).into_iter().cycle().take(len).collect();
            db.put(&key(i), &value).unwrap();
            while db.run_background_step() {}
        }
    }
    rounds * 50 * (key(0).len() + len) as u64
}

#[test]
fn overwrites_flushed_in_time_write_no_log_bytes() {
    for len in [200, 4000, 16_000] {
        let written = |options: Options| {
            let sim = SimEnv::new(1);
            let db = Db::open_in(env(&sim), DIR, options).unwrap();
            // Groups and ring reach their full length.
            overwrite(&db, 20, len);
            let before = db.stats();
            let user = overwrite(&db, 20, len) as f64;
            let after = db.stats();
            assert!(after.flushes > before.flushes + 3, "{after:?}");
            let log = (after.wal_bytes_written - before.wal_bytes_written) as f64 / user;
            let skipped = (after.wal_bytes_skipped - before.wal_bytes_skipped) as f64 / user;
            println!("{len} B: {log:.3} log bytes per user byte, {skipped:.3} skipped");
            (log, skipped)
        };
        let (log, skipped) = written(aging(0));
        assert!(log > 0.95 && skipped == 0.0, "{log} {skipped}");
        let (log, skipped) = written(aging(MINUTE_MS));
        assert!(log == 0.0 && skipped > 0.8, "{len}: {log} {skipped}");
    }
}

/// Length of the staging file, which holds the waiting pages.
fn ring_bytes(db: &Db, sim: &SimEnv) -> u64 {
    while db.run_background_step() {}
    env(sim).fs.metadata(&Path::new(DIR).join("STAGING")).unwrap().len
}

/// A store with durable writes only, or without waiting buffered pages, has no ring for them.
#[test]
fn the_tail_buffer_is_long_only_for_waiting_buffered_writes() {
    let options =
        Options { memtable_bytes: 1 << 20, memory_bytes: 16 << 20, ..aging(MINUTE_MS) }.expert(|expert| {
            expert.log_group_bytes = 1 << 20;
            expert.wal_bytes_max = 8 << 20;
        });
    let short = store::commit::tail_buffer_len(options.expert.log_group_bytes) as u64;
    let write = |db: &Db, how: &WriteOptions, mb: u64| {
        for i in 0..mb << 8 {
            db.put_opt(db.default_column_family(), &key(i % 300), &[i as u8; 4000], how).unwrap();
            while db.run_background_step() {}
        }
    };
    for durability in [Durability::Buffered, Durability::Durable] {
        let sim = SimEnv::new(8);
        let db = Db::open_in(env(&sim), DIR, Options { durability, ..options.clone() }).unwrap();
        write(&db, &WriteOptions::durable(), 12);
        let durable = ring_bytes(&db, &sim);
        assert!(durable <= short, "{durable} bytes of a ring for nothing, more than {short}");
        let occupied = db.space().unwrap().total_bytes;
        // Then buffered writes: a minute later they wait, as many as the device can write in the
        // stall budget.
        sim.advance_ns(60_000_000_000);
        write(&db, &WriteOptions::buffered(), 12);
        let mixed = ring_bytes(&db, &sim);
        assert!(mixed > durable && mixed <= 3 << 20, "{mixed} after {durable}");
        let now = db.space().unwrap().total_bytes;
        println!("{durability:?}: ring of {durable}, then of {mixed}; {occupied} bytes occupied, then {now}");
    }
    let sim = SimEnv::new(8);
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    write(&db, &WriteOptions::buffered(), 12);
    assert_eq!(ring_bytes(&db, &sim), 3 << 20, "a memtable and two groups");
}

/// Durable writes write the waiting pages too: the log is written as usual.
#[test]
fn durable_writes_also_write_waiting_buffered_pages() {
    let sim = SimEnv::new(2);
    let db = open_aging(&sim);
    for i in 0..200 {
        db.put(&key(i), &value(i, 0)).unwrap();
        let how = if i % 50 == 49 { WriteOptions::durable() } else { WriteOptions::buffered() };
        db.put_opt(db.default_column_family(), &key(1000 + i), &value(i, 1), &how).unwrap();
    }
    let after = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 1);
    let db = open_aging(&after);
    assert_eq!(contents(&db).len(), 400);
}

#[test]
fn buffered_writes_older_than_the_age_survive_power_loss() {
    if on_lavafs() {
        return;
    }
    let sim = SimEnv::new(3);
    let db = Db::open_in(env(&sim), DIR, aging(100)).unwrap();
    for i in 0..30 {
        db.put(&key(i), &value(i, 0)).unwrap();
        while db.run_background_step() {}
    }
    sim.advance_ns(100_000_000);
    while db.run_background_step() {}
    db.put(&key(99), b"young").unwrap();
    let after = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 1);
    drop(db);
    // Data in the staging file may survive too.
    assert!(contents(&Db::open_in(env(&after), DIR, aging(100)).unwrap()).len() >= 30);
}

/// Crashes at any operation, during recovery too; the next open has the option or not.
#[test]
fn every_crash_keeps_acknowledged_writes() {
    for seed in 0..8 {
        let sim = SimEnv::new(700 + seed);
        let options = aging([1, 50, MINUTE_MS][seed as usize % 3]);
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let (mut run, mut rng) = (CrashRun::new(seed, &sim), Rng::new(seed));
        for round in 0..160 {
            let (i, durable) = (rng.below(6), rng.below(12) == 0);
            let len = [20, 700, 3000, 9000][rng.below(4) as usize];
            let v: Vec<u8> = value(i, round).into_iter().cycle().take(len).collect();
            run.put(durable, (key(i), v), |k, v, how| db.put_opt(db.default_column_family(), k, v, how));
            if rng.below(20) == 0 {
                db.flush().unwrap();
            }
            while rng.below(3) > 0 && db.run_background_step() {}
        }
        let kinds = [CrashKind::ProcessKill, CrashKind::PowerLoss];
        run.crash_all_over(&kinds, 40, &mut rng, |after, at, kind, rng| {
            check(&run, after, (at, kind), &options, rng)
        });
        assert!(seed % 3 == 0 || db.stats().wal_bytes_skipped > 0, "seed {seed}");
    }
}

fn check(
    run: &CrashRun,
    after: &SimEnv,
    (at, kind): (u64, CrashKind),
    options: &Options,
    rng: &mut Rng,
) -> Result<()> {
    let mut after = after.clone();
    // Sometimes recovery crashes too.
    if rng.below(3) == 0 {
        let start = after.op_count();
        drop(Db::open_in(env(&after), DIR, options.clone())?);
        let within = start + rng.below(after.op_count() - start + 1);
        let second = if kind == CrashKind::ProcessKill { kind } else { CrashKind::PowerLoss };
        after = after.record().crash_at(within, second, rng.next_u64());
    }
    // A reader sees the same.
    let seen = match Db::open_read_only_in(env(&after), Path::new(DIR), options.clone()) {
        Ok(db) => Some(contents(&db)),
        Err(_) => None,
    };
    let next = if rng.below(2) == 0 { options.clone() } else { aging(0) };
    let db = Db::open_in(env(&after), DIR, next)?;
    let found = contents(&db);
    assert!(seen.is_none_or(|seen| seen == found), "a reader sees something else");
    run.assert_explains(at, kind, &found);
    db.put_opt(db.default_column_family(), b"new", &[7; 2000], &WriteOptions::durable())?;
    for i in 0..rng.below(60) {
        db.put(b"other", &value(i, 3).repeat(20))?;
        while rng.below(2) > 0 && db.run_background_step() {}
    }
    let again = after.crash(CrashKind::PowerLoss, rng.next_u64());
    drop(db);
    let db = Db::open_in(env(&again), DIR, options.clone())?;
    assert!(db.get(b"new")?.is_some_and(|v| *v == [7; 2000]));
    let mut now = contents(&db);
    now.remove(&b"new"[..]);
    now.remove(&b"other"[..]);
    assert!(now == found, "recovery kept something that the next one lost");
    settle(&db);
    assert!(db.verify()?.errors.is_empty());
    assert!(db.iter(ReadOptions::default()).is_ok());
    Ok(())
}

/// The check of an open store reads the log from its begin.
#[test]
fn a_store_that_skips_log_pages_is_verified_and_copied() {
    let sim = SimEnv::new(5);
    let db = open_aging(&sim);
    overwrite(&db, 20, 900);
    assert!(db.stats().wal_bytes_skipped > 0);
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let expected = contents(&db);
    db.checkpoint("/copy").unwrap();
    db.sync().unwrap();
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    assert_eq!(contents(&Db::open_in(env(&sim), DIR, aging(0)).unwrap()), expected);
    assert_eq!(contents(&Db::open_in(env(&sim), "/copy", aging(0)).unwrap()), expected);
}
