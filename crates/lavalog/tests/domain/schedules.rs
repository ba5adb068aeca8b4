//! Both engines under schedules: writers of keys, of batches of both engines, and of records, with
//! background work and power failures at any point.
//!
//! The test checks the rule of the two lanes (`lavakv::write::embedded_batch`): *a batch with
//! key-value changes is appended to a lane only when everything logged before it in the other lane
//! is durable.* Before each write, a writer notes how many writes of each writer have returned. All
//! of these were logged earlier, in one lane or the other. So if a write survives a crash, all
//! writes noted before it must survive as well. A batch of both engines has both halves or neither,
//! and acknowledged writes are there.

use crate::life::{open, write_both};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use io::sim::threads::{Plan, Ran, Stuck};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{Priority, Rng};
use lavakv::{Db, Durability, WriteBatch, WriteOptions};
use lavalog::LogStore;
use std::sync::Arc;

/// Number of seeds for every change, and of crashes per seed.
const SEEDS: u64 = 100;
const CRASHES: u64 = 6;
const PATIENCE_NS: u64 = 400_000_000;

/// A write with key-value changes.
#[derive(Clone, Debug)]
struct Write {
    /// LSN of its record, if it has one.
    lsn: Option<u64>,
    /// Number of writes of each writer that had returned before it began.
    seen: Vec<u64>,
    buffered_op: Option<u64>,
    durable_op: Option<u64>,
}

struct Shared {
    db: Db,
    logs: LogStore,
    sim: SimEnv,
    writes: Vec<Mutex<Vec<Write>, rank::Outside>>,
    /// Number of returned writes of each writer.
    returned: Vec<AtomicU64>,
}

fn key(writer: usize, nth: usize) -> Vec<u8> {
    format!("w{writer}-{nth:04}").into_bytes()
}

fn value(writer: usize, nth: usize) -> Vec<u8> {
    vec![(writer * 50 + nth) as u8; 30 + (nth * 97) % 400]
}

fn writer(shared: &Shared, n: usize, mut rng: Rng) {
    let log = shared.logs.log(&format!("log {n}")).unwrap();
    let mut next_lsn = 1;
    for nth in 0..rng.range(4, 16) as usize {
        let durability = if rng.one_in(3) { Durability::Durable } else { Durability::Buffered };
        let lsn = rng.one_in(2).then_some(next_lsn);
        let seen = shared.returned.iter().map(|returned| returned.load(Ordering::SeqCst)).collect();
        lock(&shared.writes[n]).push(Write { lsn, seen, buffered_op: None, durable_op: None });
        let (key, value) = (key(n, nth), value(n, nth));
        let mut changes = WriteBatch::new();
        changes.put(&key, &value);
        match lsn {
            Some(lsn) => {
                write_both(&shared.db, &changes, &log, lsn, &value, durability).unwrap();
                next_lsn += 1;
            }
            None => {
                let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
                shared.db.write_opt(&changes, &options).unwrap();
            }
        }
        let op = Some(shared.sim.op_count());
        if let Some(last) = lock(&shared.writes[n]).last_mut() {
            last.buffered_op = op;
            last.durable_op = op.filter(|_| durability == Durability::Durable);
        }
        shared.returned[n].store(nth as u64 + 1, Ordering::SeqCst);
        assert_eq!(shared.db.get(&key).unwrap().unwrap().to_vec(), value);
        if rng.one_in(12) {
            shared.db.flush().unwrap();
        }
        if rng.one_in(12) {
            shared.logs.seal().unwrap();
        }
    }
}

/// Appends records only, to which the rule does not apply.
fn appender(shared: &Shared, mut rng: Rng) {
    let log = shared.logs.log("records").unwrap();
    for lsn in 1..=rng.range(2, 12) {
        let durability = if rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
        log.append(lsn, &[lsn as u8; 500], durability).unwrap();
    }
}

/// The writes of each writer, and the operation after the open; or the reason that a schedule does
/// not end.
type Outcome = Result<Ran<(u64, Vec<Vec<Write>>)>, Stuck>;

fn run(seed: u64) -> (SimEnv, Outcome) {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let ran = sim.run_threads(&Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) }, move |env| {
        let mut rng = Rng::new(seed);
        let (db, logs) = open(env).unwrap();
        let opened = machine.op_count();
        let count = rng.range(2, 4) as usize;
        let writes = (0..count).map(|_| Mutex::default()).collect();
        let returned = (0..count).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { db, logs, sim: machine.clone(), writes, returned });
        let spawner = env.spawner.clone().unwrap();
        let mut threads = Vec::new();
        for n in 0..count {
            let (shared, rng) = (shared.clone(), rng.fork());
            let body = Box::new(move || writer(&shared, n, rng));
            threads.push(spawner.spawn(&format!("writer-{n}"), Priority::Foreground, body).unwrap());
        }
        let (of, draws) = (shared.clone(), rng.fork());
        let body = Box::new(move || appender(&of, draws));
        threads.push(spawner.spawn("appender", Priority::Foreground, body).unwrap());
        assert!(threads.into_iter().all(|thread| thread.join()));
        let Shared { db, logs, writes, .. } = Arc::into_inner(shared).unwrap();
        let writes = writes.iter().map(|writes| lock(writes).clone()).collect();
        if rng.one_in(2) {
            logs.close().unwrap();
            db.close().unwrap();
        }
        (opened, writes)
    });
    (sim, ran)
}

/// Counts the surviving writes of each writer, which must be a prefix; nothing else may exist.
fn survivors(db: &Db, logs: &LogStore, writes: &[Vec<Write>]) -> Result<Vec<u64>, String> {
    let mut counts = Vec::new();
    for (n, writes) in writes.iter().enumerate() {
        let log = logs.open_log(&format!("log {n}"));
        let mut there = Vec::new();
        for (nth, write) in writes.iter().enumerate() {
            let found = db.get(&key(n, nth)).unwrap().map(|found| found.to_vec());
            if found.as_ref().is_some_and(|found| *found != value(n, nth)) {
                return Err(format!("write {nth} of writer {n} is another"));
            }
            if let Some(lsn) = write.lsn {
                let record = log.as_ref().ok().and_then(|log| log.read(lsn).unwrap());
                if record != found {
                    return Err(format!("of write {nth} of writer {n} one half is there"));
                }
            }
            there.push(found.is_some());
        }
        let count = there.iter().take_while(|there| **there).count();
        if there[count..].contains(&true) {
            return Err(format!("write {count} of writer {n} is missing, and a later one is there"));
        }
        counts.push(count as u64);
    }
    Ok(counts)
}

/// Judges the contents after a crash at an operation.
fn judge(found: &[u64], writes: &[Vec<Write>], op: u64, kind: CrashKind) -> Result<(), String> {
    let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
    for (n, writes) in writes.iter().enumerate() {
        for (nth, write) in writes.iter().enumerate() {
            let promised =
                passed(write.durable_op) || kind == CrashKind::ProcessKill && passed(write.buffered_op);
            let is_there = (nth as u64) < found[n];
            if promised && !is_there {
                return Err(format!("write {nth} of writer {n} was promised"));
            }
            if is_there && write.seen.iter().zip(found).any(|(seen, found)| seen > found) {
                return Err(format!(
                    "write {nth} of writer {n} had seen {:?}, of which {found:?} are there",
                    write.seen
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn surviving_writes_form_a_prefix_over_both_lanes() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let (mut lost, mut across) = (0, 0);
    for seed in (0..count.unwrap_or(SEEDS)).map(|nth| first.unwrap_or(1) + nth) {
        let (sim, ran) = run(seed);
        let (opened, writes) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        let mut rng = Rng::new(seed ^ 0x6372_6173_6800);
        for _ in 0..CRASHES {
            let record = sim.record();
            let op = opened + rng.below(record.op_count() - opened + 1);
            let policy = Policy::ALL[rng.below(5) as usize];
            let kind = if rng.one_in(4) { CrashKind::ProcessKill } else { CrashKind::PowerLossWith(policy) };
            let (db, logs) = open(&record.crash_at(op, kind, rng.next_u64()).env()).unwrap();
            let found = survivors(&db, &logs, &writes);
            let judged = found.clone().and_then(|found| judge(&found, &writes, op, kind));
            judged.unwrap_or_else(|why| panic!("seed {seed}, operation {op}, {kind:?}: {why}"));
            let found = found.unwrap_or_default();
            lost += u64::from(found.iter().zip(&writes).any(|(found, writes)| *found < writes.len() as u64));
            let saw = |(n, writes): (usize, &Vec<Write>)| {
                let there = writes.iter().take(found[n] as usize);
                there.flat_map(|write| &write.seen).sum::<u64>()
            };
            across += writes.iter().enumerate().map(saw).sum::<u64>();
        }
    }
    assert!(
        lost > 100 && across > 1000,
        "{lost} crashes lost something, {across} writes were seen by what survived"
    );
}
