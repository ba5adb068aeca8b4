//! `buffered_age_ms_max` with several families: they are flushed in one edit, and a power loss
//! leaves a prefix over all of them.

use crate::common::*;
use crate::crashes::CrashRun;
use lavastore_lavakv::io::sim::threads::Plan;
use lavastore_lavakv::io::{Priority, Rng};
use lavastore_lavakv::sim::{CrashKind, Policy, SimEnv};
use lavastore_lavakv::{ColumnFamily, Db, ErrorKind, Options, Result, WriteBatch, WriteOptions};
use std::sync::Arc;

const MINUTE_MS: u64 = 60_000;

fn aging(buffered_age_ms_max: u64) -> Options {
    Options { memory_bytes: 512 << 10, ..small() }
        .expert(|expert| expert.buffered_age_ms_max = Some(buffered_age_ms_max))
}

fn with_families(sim: &SimEnv, options: Options, count: u64) -> (Db, Vec<ColumnFamily>) {
    let db = Db::open_in(env(sim), DIR, options).unwrap();
    let made = (1..count).map(|n| db.create_column_family(&format!("{n}"), small_family()).unwrap());
    let families = [db.default_column_family().clone()].into_iter().chain(made).collect();
    (db, families)
}

/// Puts into the families, one in `one_in` to the others in turn and the rest to the first. Returns
/// the bytes.
fn overwrite(db: &Db, families: &[ColumnFamily], rounds: u64, one_in: u64) -> u64 {
    let len = 900;
    for round in 0..rounds {
        for i in 0..50 {
            let nth = round * 50 + i;
            let other = if nth % one_in == 0 { nth / one_in % families.len() as u64 } else { 0 };
            let value: Vec<u8> = value(i, round).into_iter().cycle().take(len).collect();
            db.put_cf(&families[other as usize], &key(i), &value).unwrap();
            while db.run_background_step() {}
        }
    }
    rounds * 50 * (key(0).len() + len) as u64
}

/// Returns log bytes and skipped bytes per user byte, and the number of flushes.
fn written(options: Options, count: u64, one_in: u64) -> (f64, f64, u64) {
    let sim = SimEnv::new(1);
    let (db, families) = with_families(&sim, options, count);
    // Groups and ring reach their full length.
    overwrite(&db, &families, 30, one_in);
    let before = db.stats();
    let user = overwrite(&db, &families, 30, one_in) as f64;
    let after = db.stats();
    let log = (after.wal_bytes_written - before.wal_bytes_written) as f64 / user;
    let skipped = (after.wal_bytes_skipped - before.wal_bytes_skipped) as f64 / user;
    println!("{count} families, {one_in}: {log:.3} log bytes per user byte, {skipped:.3} skipped");
    (log, skipped, after.flushes - before.flushes)
}

#[test]
fn families_flushed_atomically_write_no_log_bytes() {
    // Equal families; some with few changes; one with none.
    for (count, one_in) in [(2, 1), (3, 1), (4, 1), (3, 20), (2, 1_000_000)] {
        let (log, skipped, flushes) = written(aging(MINUTE_MS), count, one_in);
        assert!(flushes > 3, "{flushes}");
        assert!(log == 0.0 && skipped > 0.8, "{count} {one_in}: {log} {skipped}");
    }
    let (log, skipped, _) = written(aging(0), 3, 1);
    assert!(log > 0.95 && skipped == 0.0, "{log} {skipped}");
}

/// Where a joint flush would create many short tables, the log is written as usual.
#[test]
fn small_families_are_not_flushed_along() {
    let (log, _, _) = written(aging(MINUTE_MS), 8, 4);
    assert!(log > 0.5, "{log}");
    let (log, _, _) = written(aging(MINUTE_MS), 20, 1);
    assert!(log > 0.5, "{log}");
}

/// A flush ends with one half of a batch, whose other half is in another family: with an age or
/// without.
#[test]
fn a_flush_keeps_cross_family_batches_whole() {
    for age in [0, MINUTE_MS] {
        let sim = SimEnv::new(2);
        let (db, families) = with_families(&sim, aging(age), 2);
        let mut batch = WriteBatch::new();
        // Short values fill the memtable.
        (0..400).for_each(|i| batch.put(&key(i), &value(i, 0)));
        batch.put_cf(&families[1], b"half", b"other");
        db.write(&batch).unwrap();
        db.put(b"next", b"freezes it").unwrap();
        while db.run_background_step() {}
        assert!(db.stats().flushes > 0);
        let after = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 1);
        let db = Db::open_in(env(&after), DIR, aging(age)).unwrap();
        assert!(contents(&db).len() >= 400, "what is in tables is there");
        let other = db.column_family("1").unwrap();
        assert_eq!(db.get_cf(&other, b"half").unwrap().as_deref(), Some(&b"other"[..]), "{age}");
    }
}

/// The first byte of a key names its family; `b`: both of them.
fn put_where_it_belongs(
    db: &Db,
    families: &[ColumnFamily],
    k: &[u8],
    v: &[u8],
    how: &WriteOptions,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    for (name, family) in [b'0', b'1'].into_iter().zip(families) {
        if k[0] == name || k[0] == b'b' {
            batch.put_cf(family, k, v);
        }
    }
    db.write_opt(&batch, how)
}

/// Returns the contents of both families. Keys put into both must be equal.
fn of_both(db: &Db) -> Model {
    let (zero, one) = (contents(db), contents_cf(db, &db.column_family("1").unwrap()));
    let of_both = |model: &Model| -> Model {
        model.iter().filter(|(k, _)| k[0] == b'b').map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    assert!(of_both(&zero) == of_both(&one), "a batch was torn between the families");
    zero.into_iter().chain(one).collect()
}

#[test]
fn every_crash_leaves_a_prefix_over_all_families() {
    for seed in 0..6 {
        let sim = SimEnv::new(800 + seed);
        let options = aging([MINUTE_MS, 50, 0][seed as usize % 3]);
        let (db, families) = with_families(&sim, options.clone(), 2);
        let (mut run, mut rng) = (CrashRun::new(seed, &sim), Rng::new(seed));
        for round in 0..160 {
            let (i, durable) = (rng.below(6), rng.below(16) == 0);
            let name = [b'0', b'0', b'0', b'1', b'b'][rng.below(5) as usize];
            let len = [20, 700, 3000, 9000][rng.below(4) as usize];
            let v: Vec<u8> = value(i, round).into_iter().cycle().take(len).collect();
            let k = [&[name], &*key(i)].concat();
            run.put(durable, (k, v), |k, v, how| put_where_it_belongs(&db, &families, k, v, how));
            if rng.below(30) == 0 {
                db.flush().unwrap();
            }
            while rng.below(3) > 0 && db.run_background_step() {}
        }
        run.crash_all_over(
            &[CrashKind::ProcessKill, CrashKind::PowerLoss],
            40,
            &mut rng,
            |after, at, kind, rng| {
                let db = Db::open_in(env(after), DIR, options.clone())?;
                let found = of_both(&db);
                run.assert_explains(at, kind, &found);
                let again = after.crash(CrashKind::PowerLoss, rng.next_u64());
                drop(db);
                let db = Db::open_in(env(&again), DIR, options.clone())?;
                assert!(of_both(&db) == found, "recovery kept something that the next one lost");
                assert!(db.verify()?.errors.is_empty());
                Ok(())
            },
        );
        assert!(
            options.expert.buffered_age_ms_max < Some(50) || db.stats().wal_bytes_skipped > 0,
            "seed {seed}"
        );
    }
}

/// Two writers of batches over two families, and flushes: after a power loss each batch is in both
/// or in neither.
#[test]
fn no_schedule_tears_a_batch_between_families() {
    if on_lavafs() {
        return;
    }
    let (mut opened, mut held) = (0, 0);
    for seed in 0..60 {
        let sim = SimEnv::new(900 + seed);
        let age = if seed % 3 == 0 { 0 } else { MINUTE_MS };
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let options = Options { background_threads: 1, ..aging(age) };
            let db = Arc::new(Db::open_in(env.clone(), DIR, options).unwrap());
            let other = db.create_column_family("1", small_family()).unwrap();
            let writer = |n: u64| {
                let (db, other) = (db.clone(), other.clone());
                let work = Box::new(move || {
                    for i in 0..12 {
                        let (k, v) = ([&b"b"[..], &*key(n * 100 + i)].concat(), value(i, n).repeat(40));
                        let mut batch = WriteBatch::new();
                        batch.put(&k, &v);
                        batch.put_cf(&other, &k, &v);
                        db.write(&batch).unwrap();
                        db.put(&key(n * 100 + i), &v).unwrap();
                    }
                });
                env.spawner.as_ref().unwrap().spawn("writer", Priority::Foreground, work).unwrap()
            };
            let threads = [writer(0), writer(1)];
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a writer panicked"));
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
        let (record, mut rng) = (sim.record(), Rng::new(seed));
        let ops = record.mutations();
        for _ in 0..6 {
            let at = ops[rng.below(ops.len() as u64) as usize];
            let after = record.crash_at(at, CrashKind::PowerLoss, rng.next_u64());
            let db = match Db::open_in(after.env(), DIR, aging(age)) {
                Err(e) if e.kind() == ErrorKind::InvalidArgument => continue,
                db => db.unwrap(),
            };
            if db.column_family("1").is_some() {
                held += of_both(&db).len();
                opened += 1;
            }
        }
    }
    println!("{opened} states, {held} keys");
    assert!(opened > 100 && held > 500, "{opened} {held}");
}
