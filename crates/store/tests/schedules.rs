//! The log of several engines under schedules. Threads of two tenants append, sync and report their
//! floors, another thread runs the background work, and the power fails anywhere.
//!
//! Every schedule ends. After a crash at any operation each tenant gets back, in order and without
//! a gap, all acknowledged batches at and above its reported floor.

use base::sync::{Mutex, lock, rank};
use io::sim::threads::{Plan, Ran, Stuck};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{Access, Env, Priority, Rng};
use lavastore_store as store;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use store::commit::{Aging, Durability, LogTerms, Loggers, TenantId, Ticket};
use store::manifest::Engines;

/// Seeds for the test of each change.
const SEEDS: u64 = 600;
/// One seed in this number is also run with crashes.
const CRASHES_ONE_IN: u64 = 2;
const PATIENCE_NS: u64 = 200_000_000;
const TENANTS: u8 = 2;

/// A batch; its position in the tenant's history is its sequence, from 1 on.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    begun_op: u64,
    buffered_op: Option<u64>,
    durable_op: Option<u64>,
}

/// The operations of one tenant.
#[derive(Clone, Debug, Default)]
struct History {
    written: Vec<Written>,
    /// Floors, each with the operation before its report.
    floors: Vec<(u64, u64)>,
}

struct Shared {
    store: Store,
    env: Env,
    sim: SimEnv,
    histories: Vec<Mutex<History, rank::Outside>>,
}

/// Replayed batches, by tenant.
type Replayed = BTreeMap<u8, Vec<(u64, Vec<u8>)>>;

fn open(env: &Env) -> (Store, Replayed) {
    let terms = LogTerms {
        access: Access::Direct,
        group_bytes: 64 << 10,
        free_groups_max: 2,
        loggers: Loggers { writes_max: 3, threads_min: 0 },
        retained_open_max: 2,
        aging: Aging::default(),
    };
    let mut replayed = Replayed::new();
    let store =
        Store::open(env, Path::new("/store"), terms, &Engines::default(), &mut |tenant, seq, bytes| {
            replayed.entry(tenant.0).or_default().push((seq, bytes.to_vec()));
            Ok(())
        });
    (store.unwrap(), replayed)
}

fn append(shared: &Shared, tenant: u8, rng: &mut Rng) -> (usize, Ticket) {
    let mut history = lock(&shared.histories[usize::from(tenant - 1)]);
    let seq = history.written.len() as u64 + 1;
    let mut bytes = vec![tenant; [20, 900, 5000][rng.below(3) as usize]];
    rng.fill(&mut bytes[..8]);
    let begun_op = shared.sim.op_count();
    history.written.push(Written { bytes: bytes.clone(), begun_op, buffered_op: None, durable_op: None });
    let durability = if rng.one_in(2) { Durability::Buffered } else { Durability::Durable };
    let log = shared.store.log();
    let ticket = log.put(TenantId(tenant), &[&bytes], (seq, seq), durability).unwrap();
    let last = history.written.last_mut().unwrap();
    last.buffered_op = (durability == Durability::Buffered).then(|| shared.sim.op_count());
    (seq as usize - 1, ticket)
}

fn client(shared: &Shared, tenant: u8, mut rng: Rng) {
    for _ in 0..rng.range(2, 14) {
        let (nth, ticket) = append(shared, tenant, &mut rng);
        if rng.one_in(2) {
            shared.store.log().sync(ticket).unwrap();
            assert!(shared.store.log().is_durable(ticket), "a sync that returned");
            lock(&shared.histories[usize::from(tenant - 1)]).written[nth].durable_op =
                Some(shared.sim.op_count());
        }
        if rng.one_in(3) {
            let mut history = lock(&shared.histories[usize::from(tenant - 1)]);
            let floor = rng.range(1, nth as u64 + 3);
            history.floors.push((shared.sim.op_count(), floor));
            shared.store.log().floors().tell(TenantId(tenant), floor);
            shared.store.log().floors().hint();
        }
        if rng.one_in(4) {
            shared.env.clock.sleep_ns(PATIENCE_NS + rng.below(PATIENCE_NS));
        }
    }
}

fn upkeep(shared: &Shared, mut rng: Rng) {
    for _ in 0..rng.below(12) {
        shared.store.tend().unwrap();
        shared.env.clock.sleep_ns(rng.below(2 * PATIENCE_NS));
    }
}

/// The histories, and the operation at which the store was open; or the reason why a schedule does
/// not end.
type Outcome = Result<Ran<(u64, Vec<History>)>, Stuck>;

fn run(seed: u64) -> (SimEnv, Outcome) {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let ran = sim.run_threads(&Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) }, move |env| {
        let mut rng = Rng::new(seed);
        let store = open(env).0;
        let opened = machine.op_count();
        let histories = (0..TENANTS).map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { store, env: env.clone(), sim: machine.clone(), histories });
        let spawner = env.spawner.clone().unwrap();
        let mut threads = Vec::new();
        for n in 0..rng.range(2, 5) {
            let (shared, rng, tenant) = (shared.clone(), rng.fork(), n as u8 % TENANTS + 1);
            let body = Box::new(move || client(&shared, tenant, rng));
            threads.push(spawner.spawn(&format!("client-{n}"), Priority::Foreground, body).unwrap());
        }
        let (background, idle) = (shared.clone(), rng.fork());
        let body = Box::new(move || upkeep(&background, idle));
        threads.push(spawner.spawn("upkeep", Priority::Background, body).unwrap());
        assert!(threads.into_iter().all(|thread| thread.join()));
        let histories = shared.histories.iter().map(|history| lock(history).clone()).collect();
        (opened, histories)
    });
    (sim, ran)
}

/// Checks one tenant after a crash at `op`.
fn check(history: &History, replayed: &[(u64, Vec<u8>)], op: u64, kind: CrashKind) -> Result<(), String> {
    let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
    let kept = |w: &Written| passed(w.durable_op) || kind == CrashKind::ProcessKill && passed(w.buffered_op);
    let required = history.written.iter().rposition(kept).map_or(0, |i| i as u64 + 1);
    let floor = history.floors.iter().filter(|(at, _)| *at <= op).map(|(_, floor)| *floor).max().unwrap_or(1);
    let numbers: Vec<u64> = replayed.iter().map(|(seq, _)| *seq).collect();
    if !numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
        return Err(format!("a gap in {numbers:?}"));
    }
    let (first, last) = (numbers.first().copied(), numbers.last().copied().unwrap_or(0));
    if required >= floor && (first.is_none_or(|first| first > floor) || last < required) {
        return Err(format!("{floor} to {required} were promised, {first:?} to {last} are there"));
    }
    for (seq, bytes) in replayed {
        let written = history.written.get(*seq as usize - 1).filter(|w| w.begun_op <= op);
        if written.is_none_or(|w| w.bytes != *bytes) {
            return Err(format!("batch {seq} is another"));
        }
    }
    Ok(())
}

#[test]
fn no_schedule_loses_acknowledged_writes_of_a_tenant() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let mut released = 0;
    for seed in first.unwrap_or(1)..first.unwrap_or(1) + count.unwrap_or(SEEDS) {
        let (sim, ran) = run(seed);
        let (opened, histories) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        let mut rng = Rng::new(seed ^ 0x6372_6173_6800);
        for _ in 0..if seed.is_multiple_of(CRASHES_ONE_IN) { 3 } else { 0 } {
            let record = sim.record();
            let op = opened + rng.below(record.op_count() - opened + 1);
            let policy = Policy::ALL[rng.below(5) as usize];
            let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLossWith(policy) };
            let (_store, replayed) = open(&record.crash_at(op, kind, rng.next_u64()).env());
            for tenant in 1..=TENANTS {
                let found = replayed.get(&tenant).map(Vec::as_slice).unwrap_or_default();
                released += u64::from(found.first().is_some_and(|(seq, _)| *seq > 1));
                check(&histories[usize::from(tenant - 1)], found, op, kind)
                    .unwrap_or_else(|e| panic!("seed {seed}, operation {op}, tenant {tenant}: {e}"));
            }
        }
    }
    assert!(first.is_some() || released > 10, "groups were released {released} times only");
}

/// A roll replaces the manifest. Until `CURRENT` names the new one, the old one is among the files
/// in use.
#[test]
fn a_roll_leaves_the_named_manifest_among_the_files_in_use() {
    let mut seen_before = 0;
    for seed in 0..200 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) }, move |env| {
            let store = Arc::new(open(env).0);
            let (rolls, spawner) = (store.clone(), env.spawner.clone().unwrap());
            let body = Box::new(move || rolls.manifest().commits().roll().unwrap());
            let current = || {
                let file = env.fs.open(Path::new("/store/CURRENT"), Access::Buffered).unwrap();
                let mut bytes = vec![0; file.len().unwrap() as usize];
                file.read_at(&mut bytes, 0).unwrap();
                bytes
            };
            let (old, named) = (store.manifest().live_manifest_files(), current());
            let thread = spawner.spawn("roll", Priority::Foreground, body).unwrap();
            let mut seen = 0;
            for _ in 0..30 {
                let live = store.manifest().live_manifest_files();
                if current() == named {
                    assert!(
                        old.iter().all(|name| live.contains(name)),
                        "seed {seed}: {live:?}, before {old:?}"
                    );
                    seen += 1;
                }
            }
            assert!(thread.join());
            seen
        });
        seen_before += ran.unwrap().value;
    }
    assert!(seen_before > 1000, "{seen_before}");
}
