//! Readers by position while another thread retains, frees and reuses groups, under schedules.
//!
//! A reader gets the appended bytes, or `NotFound` for a free group, the latter only after its
//! removal has begun. The contents of a recycled file are never taken for damage, nor for the
//! requested record.

use crate::engine::{DIR, TENANT, terms};
use base::ErrorKind;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use std::path::Path;
use std::sync::Arc;
use store::Store;
use store::commit::{Durability, GroupState, Lane, Log, LogAddress};
use store::manifest::Engines;
use store::open::StoreTerms;

const PATIENCE_NS: u64 = 200_000_000;
/// Only one schedule in some thousand reuses and rewrites a file between the lookup of the group
/// and the read of the file.
const SEEDS: u64 = 2_200;

/// Schedules of one reader that lists groups.
const PASSING_SEEDS: u64 = 100;

#[derive(Clone, Debug)]
struct Record {
    place: LogAddress,
    bytes: Vec<u8>,
    /// The removal of its group has begun.
    is_going: bool,
}

struct Shared {
    store: Store,
    log: Arc<Log>,
    records: Mutex<Vec<Record>, rank::Outside>,
    /// Reads that found their record, and reads that came too late.
    found: AtomicU64,
    late: AtomicU64,
}

fn append(shared: &Shared, rng: &mut Rng) {
    let mut bytes = vec![0; [30, 3000, 9000][rng.below(3) as usize]];
    rng.fill(&mut bytes);
    let mut records = lock(&shared.records);
    let seq = records.len() as u64 + 1;
    let durability = if rng.one_in(4) { Durability::Durable } else { Durability::Buffered };
    let (_, place) = shared.log.put_placed(TENANT, &[&bytes], (seq, seq), durability).unwrap();
    records.push(Record { place, bytes, is_going: false });
}

fn keep_and_free(shared: &Shared, rng: &mut Rng) {
    shared.log.upkeep().seal_active().unwrap();
    shared.log.floors().tell(TENANT, lock(&shared.records).len() as u64 + 1);
    shared.log.floors().hint();
    shared.store.tend().unwrap();
    let in_state = |state: GroupState| {
        let groups = shared.log.reader().groups().into_iter().filter(move |group| group.state == state);
        groups.map(|group| group.ltn).collect::<Vec<u64>>()
    };
    shared
        .log
        .stored()
        .retain(&in_state(GroupState::Passed), |edit| shared.log.stored().commit(edit))
        .unwrap();
    let kept = in_state(GroupState::Retained);
    let going: Vec<u64> = kept.into_iter().filter(|_| rng.one_in(2)).collect();
    for record in lock(&shared.records).iter_mut().filter(|record| going.contains(&record.place.ltn)) {
        record.is_going = true;
    }
    shared.log.stored().free(&going, |edit| shared.log.stored().commit(edit)).unwrap();
}

fn writer(shared: &Shared, mut rng: Rng) {
    for _ in 0..rng.range(4, 10) {
        (0..rng.range(1, 6)).for_each(|_| append(shared, &mut rng));
        keep_and_free(shared, &mut rng);
    }
}

fn reader(shared: &Shared, mut rng: Rng) {
    for _ in 0..rng.range(10, 40) {
        let records = lock(&shared.records);
        let last = records.len() as u64;
        let Some(nth) = last.checked_sub(1 + rng.below(last.clamp(1, 12))) else {
            drop(records);
            std::thread::yield_now();
            continue;
        };
        let Record { place, bytes, .. } = records[nth as usize].clone();
        drop(records);
        let start = rng.below(bytes.len() as u64) as usize;
        let mut out = Vec::new();
        match shared.log.reader().read(place.at(start), bytes.len() - start, &mut out) {
            Ok(()) => {
                assert!(out == bytes[start..], "record {nth} at {place:?} is another");
                shared.found.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => {
                let is_going = lock(&shared.records)[nth as usize].is_going;
                assert!(e.kind() == ErrorKind::NotFound && is_going, "record {nth} at {place:?}: {e}");
                assert!(out.is_empty());
                shared.late.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the number of reads that found their record, and of those that came too late.
fn run(seed: u64) -> (u64, u64) {
    let sim = SimEnv::new(seed);
    let plan = Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) };
    let ran = sim.run_threads(&plan, move |env| {
        let mut rng = Rng::new(seed);
        let terms = StoreTerms { log: terms(), records: Some(terms()) };
        let engines = Engines::default();
        let store = Store::open_lanes(env, Path::new(DIR), terms, &engines, &mut |_, _| Ok(())).unwrap();
        let log = store.lane(Lane::LOG).unwrap().clone();
        let (found, late) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { store, log, records: Mutex::default(), found, late });
        let spawner = env.spawner.clone().unwrap();
        let (writes, order) = (shared.clone(), rng.fork());
        let body = Box::new(move || writer(&writes, order));
        let mut threads = vec![spawner.spawn("writer", Priority::Foreground, body).unwrap()];
        for n in 0..rng.range(1, 4) {
            let (shared, rng) = (shared.clone(), rng.fork());
            let body = Box::new(move || reader(&shared, rng));
            threads.push(spawner.spawn(&format!("reader-{n}"), Priority::Foreground, body).unwrap());
        }
        assert!(threads.into_iter().all(|thread| thread.join()));
        (shared.found.load(Ordering::Relaxed), shared.late.load(Ordering::Relaxed))
    });
    ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value
}

#[test]
fn no_schedule_returns_wrong_bytes_to_a_reader() {
    let (mut found, mut late) = (0, 0);
    for seed in 1..=SEEDS {
        let (more, too_late) = run(seed);
        (found, late) = (found + more, late + too_late);
    }
    println!("{found} reads, {late} too late");
    assert!(found > 500 && late > 50, "{found} {late}");
}

/// Groups become passed while a reader lists them. Every listing contains each of them.
#[test]
fn a_group_being_retained_is_always_listed() {
    for seed in 1..=PASSING_SEEDS {
        let sim = SimEnv::new(seed);
        let plan = Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) };
        let ran = sim.run_threads(&plan, move |env| {
            let terms = StoreTerms { log: terms(), records: Some(terms()) };
            let engines = Engines::default();
            let store = Store::open_lanes(env, Path::new(DIR), terms, &engines, &mut |_, _| Ok(())).unwrap();
            let log = store.lane(Lane::LOG).unwrap().clone();
            let first = log.reader().groups().first().map(|group| group.ltn);
            let (listed, done) = (log.clone(), Arc::new(AtomicU64::new(0)));
            let is_done = done.clone();
            let body = Box::new(move || {
                let mut looks = 0;
                while is_done.load(Ordering::Acquire) == 0 || looks == 0 {
                    let ltns: Vec<u64> = listed.reader().groups().iter().map(|group| group.ltn).collect();
                    assert!(ltns.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ltns:?}");
                    assert_eq!(ltns.first().copied(), first, "{ltns:?}");
                    looks += 1;
                }
            });
            let spawner = env.spawner.clone().unwrap();
            let thread = spawner.spawn("lists", Priority::Foreground, body).unwrap();
            for seq in 1..=4 {
                log.put_placed(TENANT, &[&[1; 30]], (seq, seq), Durability::Buffered).unwrap();
                log.upkeep().seal_active().unwrap();
                log.floors().tell(TENANT, seq + 1);
                log.floors().hint();
                store.tend().unwrap();
            }
            done.store(1, Ordering::Release);
            assert!(thread.join());
            assert!(log.reader().groups().iter().any(|group| group.state == GroupState::Passed));
        });
        ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
