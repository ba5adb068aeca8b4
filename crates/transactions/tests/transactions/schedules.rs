//! Additions by several threads under schedules, beside flushes: none is lost, whatever comes
//! between the two passes of a validation.

use crate::small;
use lavastore_transactions::atomic::{Update, fetch_and_update};
use lavastore_transactions::lavakv::io::Priority;
use lavastore_transactions::lavakv::io::sim::threads::Plan;
use lavastore_transactions::lavakv::sim::SimEnv;
use lavastore_transactions::lavakv::{Db, ErrorKind, Options, ReadOptions};
use lavastore_transactions::{Isolation, OptimisticTransaction, TransactionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SEEDS: u64 = 150;
const THREADS: u64 = 3;
const ADDITIONS: u64 = 4;

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

/// Adds to a counter. The value is long enough that some additions fill a memtable.
fn add(db: &Db) {
    for _ in 0..ADDITIONS {
        fetch_and_update(db, db.default_column_family(), b"sum", &Default::default(), |old| {
            Update::Set([&(number(old) + 1).to_le_bytes()[..], &[0; 6_000]].concat())
        })
        .unwrap();
    }
}

/// Counts the keys of a range, and adds one with that number. Returns how often it began again.
fn count(db: &Db) -> u64 {
    let (family, mut conflicts) = (db.default_column_family(), 0);
    for _ in 0..ADDITIONS {
        loop {
            let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
            let mut transaction = OptimisticTransaction::begin(db, options);
            let range = ReadOptions { prefix: Some(b"n/".to_vec()), ..Default::default() };
            let range = ReadOptions { lower_bound: Some(b"n/".to_vec()), ..range };
            let seen = transaction.scan(family, range).unwrap().count() as u8;
            transaction.put(family, &[b'n', b'/', seen], &[0; 3_000]).unwrap();
            match transaction.commit() {
                Err(e) if e.kind() == ErrorKind::Conflict => conflicts += 1,
                outcome => break outcome.unwrap(),
            }
        }
    }
    conflicts
}

#[test]
fn no_schedule_loses_an_addition_or_a_key_of_a_range() {
    let conflicts = Arc::new(AtomicU64::new(0));
    for seed in 0..SEEDS {
        let sim = SimEnv::new(seed);
        let met = conflicts.clone();
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let options = Options { background_threads: 2, memtable_bytes: 16 << 10, ..small() };
            let db = Db::open_in(env.clone(), "/store", options).unwrap();
            let spawner = env.spawner.as_ref().unwrap();
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (db, met) = (db.clone(), met.clone());
                    let work = move || {
                        add(&db);
                        met.fetch_add(count(&db), Relaxed);
                    };
                    spawner.spawn("adds", Priority::Foreground, Box::new(work)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
            let sum = db.get(b"sum").unwrap();
            assert_eq!(number(sum.as_deref()), THREADS * ADDITIONS, "seed {seed}");
            let keys =
                (0..THREADS * ADDITIONS).filter(|n| db.get(&[b'n', b'/', *n as u8]).unwrap().is_some());
            assert_eq!(keys.count() as u64, THREADS * ADDITIONS, "seed {seed}");
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
    assert!(conflicts.load(Relaxed) > SEEDS / 2, "{conflicts:?} conflicts");
}
