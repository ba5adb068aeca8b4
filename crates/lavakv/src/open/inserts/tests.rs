//! Tests of threaded replay under schedules. After settling, the memtables contain exactly the
//! inserted changes, and their memory is accounted. All threads end, and no progress depends on a
//! thread that has not begun.

use super::*;
use crate::{ColumnFamily, Db, FamilyOptions, Options};
use base::InternalIterator;
use io::sim::threads::{Plan, with_few};
use io::sim::{CrashKind, SimEnv};
use io::{Env, Rng};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seeds for tests of a crew.
const SEEDS: u64 = 500;
/// Seeds for tests of a whole store.
const STORES: u64 = 150;

/// Returns a lot of a few changes of these tables; each sequence number is used once.
fn any_lot(mut lot: Lot, tables: &[Arc<MemTable>], next_seq: &mut SeqNo, rng: &mut Rng) -> Lot {
    lot.tables.extend(tables.iter().cloned());
    for _ in 0..rng.range(1, 6) {
        let (key, value) = ([rng.below(20) as u8; 9], vec![*next_seq as u8; rng.below(60) as usize]);
        let (kind, value) = match rng.below(4) {
            0 => (ValueKind::Deletion, &b""[..]),
            1 => (ValueKind::RangeDeletion, &[21; 9][..]),
            _ => (ValueKind::Value, &value[..]),
        };
        let change = Change { kind, family: 1, key: &key, value };
        lot.push(rng.below(tables.len() as u64) as u32, *next_seq, &change);
        *next_seq += 1;
    }
    lot
}

/// Returns the entries of one memtable.
fn contents(table: &Arc<MemTable>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut entries, mut all) = (table.iter(), Vec::new());
    entries.seek_to_first().unwrap();
    while entries.valid() {
        all.push((entries.key().to_vec(), entries.value().to_vec()));
        entries.next().unwrap();
    }
    all
}

/// Inserts the same lots through a crew and directly, and compares the results.
fn handed(seed: u64, env: &Env) {
    let mut rng = Rng::new(seed);
    let tables = || (1..=3).map(|id| Arc::new(MemTable::new(id))).collect::<Vec<_>>();
    let (by_crew, alone) = (tables(), tables());
    let few = with_few(env, rng.below(4));
    let crew = Crew::start(few.spawner.as_deref(), if rng.one_in(5) { 0 } else { THREADS_MAX });
    let (mut next_seq, mut lot) = (1, Lot::default());
    for _ in 0..rng.range(1, 4) {
        for _ in 0..rng.below(12) {
            let (mut again_seq, mut again) = (next_seq, Rng::new(rng.next_u64()));
            let mut first = again.clone();
            lot = crew.hand(any_lot(lot, &by_crew, &mut next_seq, &mut first));
            assert!(lot.changes.is_empty() && lot.tables.is_empty() && lot.bytes.is_empty());
            link(any_lot(Lot::default(), &alone, &mut again_seq, &mut again).put_in());
            if rng.one_in(6) {
                link(crew.take_held().into_iter().flatten());
            }
            assert!(lock(&crew.shared.shelf).waiting.len() <= WAITING_MAX);
            if rng.one_in(4) {
                env.clock.sleep_ns(rng.below(1_000_000));
            }
        }
        link(crew.settle().into_iter().flatten());
        for (table, expected) in by_crew.iter().zip(&alone) {
            assert_eq!(table.len(), expected.len(), "seed {seed}");
            assert!(contents(table) == contents(expected), "seed {seed}");
        }
    }
    // A lot may be left over, as after damage in the log.
    drop(crew.hand(any_lot(lot, &by_crew, &mut next_seq, &mut rng)));
}

#[test]
fn settling_waits_for_all_replay_inserts() {
    for seed in 1..=SEEDS {
        let ran = SimEnv::new(seed).run_threads(&Plan::new(seed), move |env| handed(seed, env));
        let ran = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(ran.threads <= 1 + THREADS_MAX, "seed {seed}: {} threads", ran.threads);
    }
}

/// A panicked thread is not waited for, and its missing lot is reported.
#[test]
fn a_panicking_replay_thread_is_reported() {
    let spawner = Env::kernel().spawner.unwrap();
    let crew = Crew::start(Some(&*spawner), 1);
    let table = Arc::new(MemTable::new(1));
    // A kind that occurs only in the log, so its insert panics.
    let change = Change { kind: ValueKind::Prepare, family: 1, key: b"key", value: b"value" };
    let mut lot = Lot { tables: vec![table], ..Lot::default() };
    lot.push(0, 1, &change);
    drop(crew.hand(lot));
    let is_busy = || {
        let shelf = lock(&crew.shared.shelf);
        shelf.waiting.len() + shelf.at_work > 0
    };
    while is_busy() {
        std::thread::yield_now();
    }
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| crew.settle())).is_err());
}

fn options(rng: &mut Rng) -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: [32, 64, 256][rng.below(3) as usize] << 10,
        background_threads: rng.range(1, 5) as usize,
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 64 << 10)
}

/// The last value of each key of each family; `None`: deleted.
type Last = BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>;

/// Puts and deletes in three families, some with values long enough for separation.
fn write(db: &Db, families: &[ColumnFamily], rng: &mut Rng) -> Last {
    let mut last = Last::new();
    for n in 0..rng.range(20, 120) {
        let (family, key) = (rng.below(3) as usize, rng.below(40).to_be_bytes().to_vec());
        let len = [8, 200, 900, 5000][rng.below(4) as usize];
        let value = (!rng.one_in(5)).then(|| vec![n as u8; len]);
        match &value {
            Some(value) => db.put_cf(&families[family], &key, value).unwrap(),
            None => db.delete_cf(&families[family], &key).unwrap(),
        }
        last.insert((family, key), value);
    }
    last
}

/// Kills a store, and reopens it with threads. Returns the number of threads.
fn reopened(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let (options, sim) = (options(&mut rng), SimEnv::new(seed));
    // With enough memory that all changes stay in the log.
    let roomy = Options { memtable_bytes: 4 << 20, memory_bytes: 16 << 20, ..options.clone() };
    let db = Db::open_in(sim.env(), "/store", roomy).unwrap();
    let make = |n: u64| db.create_column_family(&format!("{n}"), FamilyOptions::default()).unwrap();
    let families: Vec<ColumnFamily> = (0..3).map(make).collect();
    let expected = write(&db, &families, &mut rng);
    let after = sim.crash(CrashKind::ProcessKill, seed);
    drop((families, db));
    let ran = after.run_threads(&Plan::new(seed), move |env| {
        let db = Db::open_in(env.clone(), "/store", options.clone()).unwrap();
        for ((family, key), value) in &expected {
            let family = db.column_family(&format!("{family}")).unwrap();
            let found = db.get_cf(&family, key).unwrap();
            assert!(found.as_deref() == value.as_deref(), "seed {seed}");
        }
        db.flush().unwrap();
        // The job updates the accounting after it reports the flush.
        assert!(db.wait_idle(Duration::from_secs(60)), "seed {seed}: {}", db.describe());
        assert_eq!(db.engine().space.memory.used(), 0, "seed {seed}: what is booked is given back");
    });
    ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).threads
}

#[test]
fn replay_with_threads_restores_the_same_store() {
    (1..=STORES).for_each(|seed| assert!(reopened(seed) > 1));
}
