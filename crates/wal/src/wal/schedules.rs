//! The log under schedules: several threads append, sync, write out, write watermarks and lengthen
//! the tail buffer, and the power fails anywhere.
//!
//! Every schedule ends (no wake-up is lost), and a sync that returned has made its page durable.
//! After a crash at any operation every batch promised by then is recovered, in order, without a
//! gap. In some runs pages are kept until flushes supersede them, and a thread moves the beginning
//! of the log meanwhile.

use super::*;
use crate::check::{GroupToCheck, LogCheck, LogFindings};
use crate::history::LogBegin;
use crate::recover::{LoggedBatch, RecoveryMode};
use crate::store_model::{
    Expectation, Manifest, Written, dir, floors_of_all, keeping_pages, options, path_of, payload,
    recover_all, store, uid_of,
};
use base::sync::{lock as take, rank};
use io::sim::threads::{Plan, Ran, Stuck};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{Access, Priority, Rng};
use std::sync::Arc;

type Lock<T> = Mutex<T, rank::Outside>;

/// Seeds of a regular run.
const SEEDS: u64 = 3_000;
/// One seed in this many is also tested with crashes.
const CRASHES_ONE_IN: u64 = 8;
/// Groups of a log.
const GROUPS: u64 = 12;
const PATIENCE_NS: u64 = 200_000_000;

/// A log, and the batches written to it.
struct Shared {
    wal: Wal,
    env: Env,
    sim: SimEnv,
    written: Lock<Vec<Written>>,
    /// Beginnings of the log in the order of the operations that recorded them in the manifest,
    /// each with its floor.
    begins: Lock<Vec<Began>>,
    lane: Lane,
    /// Batches encountered by checks of the log.
    checked: Lock<u64>,
    /// Every batch is durable and followed by a sync, and there is no other work, so that most
    /// rounds run beside each other.
    all_sync: bool,
}

/// See [`Shared::begins`].
#[derive(Clone, Copy)]
struct Began {
    op: u64,
    floor: u64,
    ltn: u64,
    begin: LogBegin,
}

/// Returns whether pages stay in the tail buffer: in some runs of the first lane.
fn keeps_pages(seed: u64) -> bool {
    seed.is_multiple_of(3) && lane_of(seed) == Lane::FIRST
}

fn options_of(seed: u64) -> WalOptions {
    let (lane, loggers) = (lane_of(seed), loggers_of(seed));
    WalOptions { lane, loggers, ..if keeps_pages(seed) { keeping_pages(seed) } else { options() } }
}

/// Returns the lane: every other run of schedules uses the one with pages of several lengths.
fn lane_of(seed: u64) -> Lane {
    Lane::ALL[(seed / CRASHES_ONE_IN % 2) as usize]
}

/// In some runs rounds are concurrent whenever possible, in some never, and in some the number
/// changes.
fn loggers_of(seed: u64) -> Loggers {
    let always = |writes_max| Loggers { writes_max, threads_min: 0 };
    [always(3), always(2), Loggers::ONE, always(0), always(0)][(seed % 5) as usize]
}

/// Starts a log with a tail buffer of 5 pages and enough small groups.
fn started(env: &Env, options: &WalOptions) -> Wal {
    env.fs.create_dir_all(dir()).unwrap();
    env.fs.sync_dir("/".as_ref()).unwrap();
    let group = |ltn| {
        let file = env.fs.create_in_place(&path_of(ltn), options.group_len, Access::Direct).unwrap();
        PreparedGroup { ltn, uid: uid_of(ltn), file }
    };
    let groups: Vec<_> = (1..=GROUPS).map(group).collect();
    env.fs.sync_dir(dir()).unwrap();
    let mut groups = groups.into_iter();
    let first = groups.next().unwrap();
    let wal = Wal::start(env, dir(), options.clone(), store(), 0, first, History::default()).unwrap();
    groups.for_each(|spare| wal.content().add_group(spare).unwrap());
    wal
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
    let durability =
        if !shared.all_sync && rng.one_in(2) { Durability::Buffered } else { Durability::Durable };
    let position = shared.wal.append(TenantId::FIRST, &[&bytes], seq, seq, durability, 0).unwrap();
    let batch = written.last_mut().unwrap();
    batch.position = Some(position);
    batch.buffered_op = (durability == Durability::Buffered).then(|| shared.sim.op_count());
    (seq as usize - 1, position)
}

/// A flush: batches up to some sequence are in tables. The log then begins behind the pages that
/// are no longer needed.
fn flush(shared: &Shared, rng: &mut Rng) {
    let floor = {
        let written = take(&shared.written);
        let before = take(&shared.begins).last().map_or(1, |began| began.floor);
        let all = written.len() as u64 + 1;
        before.max(if rng.one_in(2) { all } else { 1 + rng.below(all) })
    };
    let Some(overtaken) = shared.wal.deferred().overtaken(&floors_of_all(floor)) else { return };
    // The edit.
    shared.env.fs.sync_dir(dir()).unwrap();
    let UnrecordedBegin { ltn, begin, .. } = overtaken;
    take(&shared.begins).push(Began { op: shared.sim.op_count(), floor, ltn, begin });
    shared.wal.deferred().skip_to(&overtaken).unwrap();
}

/// Sleeps for a moment, or long enough to reveal a forgotten waiter.
fn rest(shared: &Shared, rng: &mut Rng) {
    match rng.below(4) {
        0 => {}
        1 => shared.env.clock.sleep_ns(rng.below(200_000)),
        _ => shared.env.clock.sleep_ns(PATIENCE_NS + rng.below(2 * PATIENCE_NS)),
    }
}

/// Appends batches; `syncs` of six are followed by a sync.
fn client(shared: &Shared, mut rng: Rng, syncs: u64) {
    for _ in 0..rng.range(1, 6) {
        let (nth, position) = append(shared, &mut rng);
        if !shared.all_sync && rng.below(6) >= syncs {
            continue;
        }
        shared.wal.syncer().sync(position).unwrap();
        let op = shared.sim.op_count();
        assert!(shared.wal.stats().durable_end > position.lpn, "a sync that returned");
        take(&shared.written)[nth].durable_op = Some(op);
        if !shared.all_sync {
            rest(shared, &mut rng);
        }
    }
}

/// Makes the tail buffer longer, or meets a full volume and leaves its length unchanged.
fn lengthen_staging(shared: &Shared, rng: &mut Rng) {
    let (before, full) = (shared.wal.content().tail_buffer_len(), rng.one_in(3));
    let wanted = before + rng.range(1, 6) as usize * PAGE;
    if full {
        shared.sim.set_capacity(Some(shared.sim.used()));
    }
    let lengthened = shared.wal.lengthen_staging(&shared.env, dir(), wanted);
    shared.sim.set_capacity(None);
    let refused = lengthened.map_err(|e| e.kind()).err();
    assert_eq!(refused, full.then_some(ErrorKind::NoSpace));
    assert_eq!(shared.wal.content().tail_buffer_len(), if full { before } else { wanted });
}

/// Checks the files beside the writers: nothing is damaged.
fn check(shared: &Shared) {
    let groups = shared.wal.content().groups().into_iter().map(|group| GroupToCheck {
        ltn: group.ltn,
        uid: Some(uid_of(group.ltn)),
        file: shared.env.fs.open_in_place(&path_of(group.ltn), Access::Direct).unwrap(),
        begins: group.begins,
        filled: group.filled,
    });
    let (mut found, mut last) = (LogFindings::default(), 0);
    let mut check = LogCheck::of_lane(store(), shared.lane, groups.collect());
    let mut on_batch = |batch: &LoggedBatch<'_>| {
        assert!(batch.first_seq > last, "each batch once, in order");
        last = batch.first_seq;
    };
    while check.step(&mut found, &mut on_batch) {}
    check.staged(&shared.wal, (&shared.env, dir()), &mut found, &mut on_batch);
    let living: Vec<u64> = shared.wal.content().groups().iter().map(|group| group.ltn).collect();
    found.errors.retain(|(ltn, _)| living.contains(ltn));
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    *take(&shared.checked) += found.batches;
}

/// Does the background work of the log.
fn upkeep(shared: &Shared, mut rng: Rng) {
    let jobs = if shared.wal.keeps_pages() { 16 } else { 4 };
    for _ in 0..if shared.all_sync { 0 } else { rng.below(8) } {
        match rng.below(jobs) {
            4.. => flush(shared, &mut rng),
            0 => drop(shared.wal.deferred().write_out().unwrap()),
            1 => lengthen_staging(shared, &mut rng),
            _ => drop(shared.wal.persist_watermark().unwrap()),
        }
        rest(shared, &mut rng);
        if rng.one_in(3) {
            check(shared);
        }
    }
}

/// Batches; beginnings of the log; waits for a commit group; concurrent writes and trials of their
/// number; batches encountered by checks.
type Done = (Vec<Written>, Vec<Began>, u64, (u64, u64), u64);

fn run(seed: u64) -> (SimEnv, Result<Ran<Done>, Stuck>) {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let ran = sim.run_threads(&Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) }, move |env| {
        let mut rng = Rng::new(seed);
        let shared = Arc::new(Shared {
            wal: started(env, &options_of(seed)),
            env: env.clone(),
            sim: machine.clone(),
            written: Lock::new(Vec::new()),
            begins: Lock::new(Vec::new()),
            lane: lane_of(seed),
            checked: Lock::new(0),
            all_sync: matches!(loggers_of(seed).writes_max, 0 | 3) && !keeps_pages(seed),
        });
        let spawner = env.spawner.clone().unwrap();
        let (clients, syncs) = (rng.range(2, 7), rng.range(2, 6));
        let syncs = if keeps_pages(seed) { syncs / 3 } else { syncs };
        let threads = (0..clients).map(|n| {
            let (shared, rng) = (shared.clone(), rng.fork());
            let body = Box::new(move || client(&shared, rng, syncs));
            spawner.spawn(&format!("client-{n}"), Priority::Foreground, body).unwrap()
        });
        let mut threads: Vec<_> = threads.collect();
        let (background, idle) = (shared.clone(), rng.fork());
        let body = Box::new(move || upkeep(&background, idle));
        threads.push(spawner.spawn("upkeep", Priority::Background, body).unwrap());
        assert!(threads.into_iter().all(|thread| thread.join()));
        if rng.one_in(2) {
            shared.wal.close().unwrap();
        }
        let stats = shared.wal.stats();
        let beside = (stats.concurrent_durable_writes, stats.loggers_tried);
        let begins = std::mem::take(&mut *take(&shared.begins));
        let (written, checked) = (std::mem::take(&mut *take(&shared.written)), *take(&shared.checked));
        (written, begins, shared.wal.commit.watches(), beside, checked)
    });
    (sim, ran)
}

/// Checks that after a crash at some operation the promises made by then hold.
fn check_crash(sim: &SimEnv, options: &WalOptions, (written, begins): (&[Written], &[Began]), rng: &mut Rng) {
    let record = sim.record();
    let ops = record.mutations();
    let op = ops[rng.below(ops.len() as u64) as usize];
    let policy = Policy::ALL[rng.below(5) as usize];
    let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLossWith(policy) };
    let after = record.crash_at(op, kind, rng.next_u64());
    if written.first().is_none_or(|first| first.begun_op > op) {
        return;
    }
    let began = begins.iter().rev().find(|began| began.op <= op);
    let first = began.map_or(1, |began| began.ltn);
    let manifest = Manifest {
        lane: options.lane,
        groups: (first..=GROUPS).map(|ltn| (ltn, None)).collect(),
        begin: began.map(|began| (began.ltn, began.begin)),
        next_ltn: GROUPS + 1,
    };
    let (_, replayed) = recover_all(&after, &manifest, RecoveryMode::ReadWrite).unwrap();
    let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
    let begun: Vec<Written> = written.iter().filter(|w| w.begun_op <= op).cloned().collect();
    let durable = begun.iter().rposition(|w| passed(w.durable_op)).map_or(0, |i| i + 1);
    let buffered = begun.iter().rposition(|w| passed(w.buffered_op)).map_or(durable, |i| durable.max(i + 1));
    let required = if kind == CrashKind::ProcessKill { buffered } else { durable };
    let (next_seq, floor) = (begun.len() as u64 + 1, began.map_or(1, |began| began.floor));
    let options = options.clone();
    Expectation { options, manifest, begun, required, durable, floor, next_seq }.check(&replayed);
}

#[test]
fn no_schedule_loses_a_wake_up_or_an_acknowledged_batch() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = first.unwrap_or(1)..first.unwrap_or(1) + count.unwrap_or(SEEDS);
    let (mut watches, mut beside, mut tried, mut skips, mut checked) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let (sim, ran) = run(seed);
        let ran = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let (written, begins, watched, wrote_beside, of_checks) = ran.value;
        checked += of_checks;
        watches += watched;
        skips += begins.len() as u64;
        (beside, tried) = (beside + wrote_beside.0, tried + wrote_beside.1);
        let mut rng = Rng::new(seed ^ 0x6372_6173_6800);
        for _ in 0..if seed.is_multiple_of(CRASHES_ONE_IN) { 3 } else { 0 } {
            check_crash(&sim, &options_of(seed), (&written, &begins), &mut rng);
        }
    }
    assert!(count.is_some() || watches > SEEDS / 10, "{watches} rounds were waited for");
    assert!(count.is_some() || beside > SEEDS / 20, "{beside} writes were made beside others");
    assert!(count.is_some() || tried > SEEDS / 20, "{tried} numbers were tried");
    assert!(count.is_some() || checked > SEEDS, "{checked} batches were met by checks");
    assert!(count.is_some() || skips > SEEDS / 20, "the log began further on {skips} times");
}
