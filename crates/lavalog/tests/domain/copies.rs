//! Checkpoints of a store with both engines: the copy has each batch of both engines completely or
//! not at all, under concurrent writes.

use crate::life::{DIR, log_options, open, open_at, write_both};
use base::ErrorKind;
use base::sync::{Mutex, lock, rank};
use io::sim::threads::Plan;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use io::{Env, Priority, Rng};
use lavakv::{Db, Durability, WriteBatch};
use lavalog::{LogHandle, LogStore};
use std::path::Path;
use std::sync::Arc;

const COPY: &str = "/copy";
/// Number of schedules for every change.
const SEEDS: u64 = 40;

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 20 + (n as usize * 37) % 700]
}

fn key(writer: usize, n: u64) -> Vec<u8> {
    format!("{writer}-{n:06}").into_bytes()
}

/// The value that a writer puts after its nth batch, in the lane of the keys.
fn alone(writer: usize, n: u64) -> Vec<u8> {
    format!("alone {writer} {n}").into_bytes()
}

/// Writes the nth batch of a writer, a key and a record. A key alone follows some batches.
fn write(db: &Db, log: &LogHandle, writer: usize, n: u64, durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(&key(writer, n), &value(n));
    write_both(db, &batch, log, n, &value(n), durability).unwrap();
    if n.is_multiple_of(5) {
        db.put(&alone(writer, n), &value(n)).unwrap();
    }
}

/// Counts the batches of a writer. They must be a prefix, the same in both engines.
fn count(db: &Db, logs: &LogStore, writer: usize) -> u64 {
    let Ok(log) = logs.open_log(&format!("log {writer}")) else {
        assert!(db.get(&key(writer, 1)).unwrap().is_none(), "a key without its record");
        return 0;
    };
    let mut records = 0;
    for record in log.scan(0) {
        let (lsn, bytes) = record.unwrap();
        records += 1;
        assert_eq!((lsn, bytes), (records, value(records)));
        let half = db.get(&key(writer, lsn)).unwrap().map(|found| found.to_vec());
        assert_eq!(half, Some(value(lsn)), "the key of record {lsn} of writer {writer}");
        // The earlier write in the other lane belongs to the same moment or an earlier one.
        if lsn > 1 && (lsn - 1).is_multiple_of(5) {
            let before = db.get(&alone(writer, lsn - 1)).unwrap().map(|found| found.to_vec());
            assert_eq!(before, Some(value(lsn - 1)), "what writer {writer} put before record {lsn}");
        }
    }
    assert!(db.get(&key(writer, records + 1)).unwrap().is_none(), "a key without record {}", records + 1);
    records
}

fn copied(env: &Env, writers: usize) -> Vec<u64> {
    let (db, logs) = open_at(env, COPY).unwrap();
    assert!(logs.verify().is_sound() && db.verify().unwrap().errors.is_empty());
    let counts = (0..writers).map(|writer| count(&db, &logs, writer)).collect();
    logs.close().unwrap();
    db.close().unwrap();
    counts
}

#[test]
fn writers_go_on_while_a_copy_of_both_is_taken() {
    let (mut copies, mut cut_off, mut between) = (0, 0, 0);
    for seed in 0..SEEDS {
        let sim = SimEnv::new(seed);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan { patience_ns: 500_000_000, ..Plan::new(seed) }, move |env| {
            let mut rng = Rng::new(seed);
            let (db, logs) = open(env).unwrap();
            let db = Arc::new(db);
            let writers = rng.range(1, 3) as usize;
            let done: Arc<Vec<Mutex<u64, rank::Outside>>> =
                Arc::new((0..writers).map(|_| Mutex::default()).collect());
            let mut threads = Vec::new();
            for writer in 0..writers {
                let (db, logs, done) = (db.clone(), logs.clone(), done.clone());
                let mut rng = rng.fork();
                let body = Box::new(move || {
                    let log = logs.log(&format!("log {writer}")).unwrap();
                    for n in 1..=rng.range(20, 120) {
                        let durable = rng.one_in(3);
                        let durability = if durable { Durability::Durable } else { Durability::Buffered };
                        write(&db, &log, writer, n, durability);
                        *lock(&done[writer]) = n;
                        if rng.one_in(30) {
                            logs.seal().unwrap();
                        }
                    }
                });
                let spawner = env.spawner.clone().unwrap();
                threads.push(spawner.spawn(&format!("writer-{writer}"), Priority::Foreground, body).unwrap());
            }
            let waits = rng.below(40);
            while *lock(&done[0]) < waits && *lock(&done[0]) < 20 {
                env.clock.sleep_ns(100_000);
            }
            let before: Vec<u64> = done.iter().map(|done| *lock(done)).collect();
            let begun = machine.op_count();
            db.checkpoint(COPY).unwrap();
            let ended = machine.op_count();
            let after: Vec<u64> = done.iter().map(|done| *lock(done)).collect();
            assert!(threads.into_iter().all(|thread| thread.join()));
            let counts: Vec<u64> = (0..writers).map(|writer| count(&db, &logs, writer)).collect();
            drop(logs);
            Arc::into_inner(db).unwrap().close().unwrap();
            (before, after, counts, begun, ended)
        });
        let (before, after, counts, begun, ended) =
            ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        let found = copied(&sim.env(), before.len());
        for (writer, n) in found.iter().enumerate() {
            assert!(
                (before[writer]..=after[writer] + 1).contains(n),
                "seed {seed}: {before:?} {found:?} {after:?}"
            );
            between += u64::from(before[writer] < *n && *n < counts[writer]);
        }
        copies += 1;
        cut_off += die(&sim, seed, (begun, ended), before.len());
    }
    assert!(copies == SEEDS && cut_off > 20 && between > 5, "{copies} {cut_off} {between}");
}

/// Crashes the machine during a checkpoint. Returns how often that interrupted it.
fn die(sim: &SimEnv, seed: u64, (begun, ended): (u64, u64), writers: usize) -> u64 {
    let (record, mut rng, mut cut_off) = (sim.record(), Rng::new(seed), 0);
    for _ in 0..4 {
        let op = begun + rng.below(ended - begun + 1);
        let left = record.crash_at(op, CrashKind::PowerLoss, seed);
        if left.env().fs.exists(&Path::new(COPY).join("CURRENT")).unwrap() {
            copied(&left.env(), writers);
        } else if left.env().fs.exists(&Path::new(COPY).join("UNFINISHED")).unwrap() {
            let e = open_at(&left.env(), COPY).map(drop).unwrap_err();
            assert!(e.kind() == ErrorKind::NotFound && e.message().contains("was interrupted"), "{e}");
            cut_off += 1;
        }
        let (db, logs) = open(&left.env()).unwrap();
        (0..writers).for_each(|writer| assert!(count(&db, &logs, writer) < 1000));
    }
    cut_off
}

#[test]
fn a_copy_of_both_works_with_both_and_each_alone() {
    let sim = SimEnv::new(3);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.log("log 0").unwrap();
    for n in 1..=400 {
        write(&db, &log, 0, n, Durability::Buffered);
        if n % 90 == 0 {
            logs.seal().unwrap();
            db.flush().unwrap();
            logs.wait_idle().unwrap();
        }
    }
    assert!(logs.statistics().sealed_groups > 0);
    db.checkpoint(COPY).unwrap();
    write(&db, &log, 0, 401, Durability::Durable);
    assert_eq!(copied(&sim.env(), 1), [400]);
    // All embedded batches are in tables: LavaKV can open it alone, and so can LavaLog.
    let alone = Db::open_in(sim.env(), COPY, crate::life::kv_options()).unwrap();
    assert_eq!(alone.get(&key(0, 400)).unwrap().unwrap().to_vec(), value(400));
    alone.close().unwrap();
    let alone = LogStore::open(&sim.env(), Path::new(COPY), &log_options()).unwrap();
    assert_eq!(alone.open_log("log 0").unwrap().last_lsn().unwrap(), Some(400));
    // One engine alone makes no checkpoint: it would have half of the store.
    let e = alone.checkpoint(Path::new("/other")).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("engine LavaKV"), "{e}");
    let e = logs.checkpoint(Path::new("/other")).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("engine lavakv"), "{e}");
    alone.close().unwrap();
    drop(log);
    logs.close().unwrap();
    db.close().unwrap();
    let db = Db::open_in(sim.env(), DIR, crate::life::kv_options()).unwrap();
    let e = db.checkpoint("/other").unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("LavaLog"), "{e}");
    assert!(!sim.env().fs.exists(Path::new("/other")).unwrap());
}

/// As for another file system: the files of both engines are copied, and the copy needs no others.
#[test]
fn a_copy_without_links_needs_no_file_of_the_source() {
    for seed in 0..6 {
        let sim = SimEnv::new(seed);
        let (db, logs) = open(&sim.env()).unwrap();
        let log = logs.log("log 0").unwrap();
        for n in 1..=300 {
            write(&db, &log, 0, n, Durability::Buffered);
            if n % 70 == 0 {
                logs.seal().unwrap();
                db.flush().unwrap();
                logs.wait_idle().unwrap();
            }
        }
        let plan = FaultPlan::nth(seed, FaultEffect::Unsupported).kinds(&[OpKind::Link]);
        sim.inject(if seed < 3 { plan.sticky() } else { plan });
        db.checkpoint(COPY).unwrap();
        assert!(sim.faults_fired() > 0, "nothing was to be linked");
        write(&db, &log, 0, 301, Durability::Durable);
        drop(log);
        logs.close().unwrap();
        db.close().unwrap();
        let of_the_store = sim.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(DIR));
        of_the_store.for_each(|path| sim.erase(&path).unwrap());
        assert_eq!(copied(&sim.crash(CrashKind::PowerLoss, seed).env(), 1), [300], "seed {seed}");
    }
}
