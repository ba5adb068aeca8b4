//! The log under schedules: several threads append, sync, write out and leave watermarks, and the power fails anywhere.
//!
//! Every schedule ends (no wake-up is lost), a sync that returned has made its page durable, and after a crash at any
//! operation everything is back that was promised by then, in order, without a gap.

use super::*;
use crate::RecoveryMode;
use crate::caller::{Expectation, Manifest, Written, dir, path_of, payload, recover_all, store};
use base::sync::{Mutex as Lock, lock as take};
use io::sim::threads::{Plan, Ran, Stuck};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{Access, Priority, Rng};
use std::sync::Arc;

/// Seeds that every change is tried with.
const SEEDS: u64 = 400;

/// A log, and what was written to it.
struct Shared {
    wal: Wal,
    sim: SimEnv,
    written: Lock<Vec<Written>>,
}

/// A log in one group, with a ring of 5 pages.
fn started(sim: &SimEnv, env: &Env) -> Wal {
    env.fs.create_dir_all(dir()).unwrap();
    env.fs.sync_dir("/".as_ref()).unwrap();
    let file = env.fs.create_in_place(&path_of(1), 400 * PAGE as u64, Access::Direct).unwrap();
    env.fs.sync_dir(dir()).unwrap();
    let options = WalOptions { staging_len: 5 * PAGE, ..crate::caller::options() };
    let first = PreparedGroup { ltn: 1, file };
    assert!(sim.op_count() > 0);
    Wal::start(env, dir(), options, store(), 0, first, History::default()).unwrap()
}

/// Appends a batch.
fn append(shared: &Shared, rng: &mut Rng) -> (usize, Position) {
    let len = [20, 20, 900, 5000][rng.below(4) as usize];
    let mut written = take(&shared.written);
    let seq = written.len() as u64 + 1;
    let bytes = payload(rng, seq, len);
    let begun_op = shared.sim.op_count();
    written.push(Written {
        seq,
        payload: bytes.clone(),
        position: None,
        begun_op,
        buffered_op: None,
        durable_op: None,
    });
    let position = shared.wal.append(&[&bytes], seq, seq, Durability::Durable, 0).unwrap();
    let batch = written.last_mut().unwrap();
    (batch.position, batch.buffered_op) = (Some(position), Some(shared.sim.op_count()));
    (seq as usize - 1, position)
}

/// Of six batches of a client so many are followed by a sync; after others the log is written out or given a watermark.
fn client(shared: &Shared, mut rng: Rng, syncs: u64) {
    for _ in 0..rng.range(1, 6) {
        let (nth, position) = append(shared, &mut rng);
        match rng.below(6) {
            n if n >= syncs => match rng.below(3) {
                0 => drop(shared.wal.write_out().unwrap()),
                1 => drop(shared.wal.persist_watermark().unwrap()),
                _ => {}
            },
            _ => {
                shared.wal.sync(position).unwrap();
                let op = shared.sim.op_count();
                assert!(shared.wal.stats().durable_end > position.lpn, "a sync that returned");
                take(&shared.written)[nth].durable_op = Some(op);
            }
        }
    }
}

fn run(seed: u64) -> (SimEnv, Result<Ran<Vec<Written>>, Stuck>) {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let ran = sim.run_threads(&Plan { patience_ns: 200_000_000, ..Plan::new(seed) }, move |env| {
        let mut rng = Rng::new(seed);
        let shared = Arc::new(Shared {
            wal: started(&machine, env),
            sim: machine.clone(),
            written: Lock::new(Vec::new()),
        });
        let spawner = env.spawner.clone().unwrap();
        let (clients, syncs) = (rng.range(2, 6), rng.range(2, 6));
        let threads = (0..clients).map(|n| {
            let (shared, rng) = (shared.clone(), rng.fork());
            let body = Box::new(move || client(&shared, rng, syncs));
            spawner.spawn(&format!("client-{n}"), Priority::Foreground, body).unwrap()
        });
        let threads: Vec<_> = threads.collect();
        assert!(threads.into_iter().all(|thread| thread.join()));
        if rng.one_in(2) {
            shared.wal.close().unwrap();
        }
        std::mem::take(&mut *take(&shared.written))
    });
    (sim, ran)
}

/// After a crash at an operation the promises made by then hold.
fn check_crash(sim: &SimEnv, written: &[Written], rng: &mut Rng) {
    let record = sim.record();
    let ops = record.mutations();
    let op = ops[rng.below(ops.len() as u64) as usize];
    let policy = Policy::ALL[rng.below(5) as usize];
    let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLossWith(policy) };
    let after = record.crash_at(op, kind, rng.next_u64());
    let open = after.env().fs.open_in_place(&path_of(1), Access::Direct);
    if open.is_err() || written.first().is_none_or(|first| first.begun_op > op) {
        return;
    }
    let manifest = Manifest { groups: [(1, None)].into(), next_ltn: 2 };
    let (_, replayed) = recover_all(&after, &manifest, RecoveryMode::ReadWrite).unwrap();
    let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
    let begun: Vec<Written> = written.iter().filter(|w| w.begun_op <= op).cloned().collect();
    let durable = begun.iter().rposition(|w| passed(w.durable_op)).map_or(0, |i| i + 1);
    let buffered = begun.iter().rposition(|w| passed(w.buffered_op)).map_or(0, |i| i + 1);
    let required = if kind == CrashKind::ProcessKill { buffered } else { durable };
    let next_seq = begun.len() as u64 + 1;
    Expectation { manifest, begun, required, durable, floor: 1, next_seq }.check(&replayed);
}

#[test]
fn no_schedule_loses_a_wake_up_or_a_promise() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = first.unwrap_or(1)..first.unwrap_or(1) + count.unwrap_or(SEEDS);
    for seed in seeds {
        let (sim, ran) = run(seed);
        let written = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        let mut rng = Rng::new(seed ^ 0x6372_6173_6800);
        for _ in 0..8 {
            check_crash(&sim, &written, &mut rng);
        }
    }
}
