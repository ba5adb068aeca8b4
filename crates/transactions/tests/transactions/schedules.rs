//! Additions by several threads under schedules, beside flushes: none is lost, whatever comes
//! between the two passes of a validation.

use crate::small;
use lavastore_transactions::atomic::{Update, fetch_and_update};
use lavastore_transactions::lavakv::io::sim::threads::Plan;
use lavastore_transactions::lavakv::io::{Priority, Rng};
use lavastore_transactions::lavakv::sim::SimEnv;
use lavastore_transactions::lavakv::{Db, ErrorKind, Options, ReadOptions};
use lavastore_transactions::{Isolation, LockOptions, Transaction, TransactionOptions};
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
            let mut transaction = Transaction::begin(db, options);
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

const ACCOUNTS: u64 = 3;

/// Transfers between accounts that are locked in any order, beside plain writes of the same rows.
/// Returns the number of deadlocks.
fn transfer(db: &Db, seed: u64) -> u64 {
    let (family, mut rng, mut deadlocks) = (db.default_column_family(), Rng::new(seed), 0);
    for _ in 0..ADDITIONS {
        let (from, to, amount) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(9));
        loop {
            let locks = Some(LockOptions::default());
            let mut transfer = Transaction::begin(db, TransactionOptions { locks, ..Default::default() });
            let mut add = |account: u64, amount: u64| {
                let key = account.to_be_bytes();
                let old = number(transfer.get_for_update(family, &key, Default::default())?.as_deref());
                let new = [&old.wrapping_add(amount).to_le_bytes()[..], &[0; 3_000]].concat();
                transfer.put(family, &key, &new)
            };
            let moved = add(from, amount.wrapping_neg()).and_then(|()| add(to, amount));
            match moved.and_then(|()| transfer.commit()) {
                Err(e) if e.kind() == ErrorKind::Conflict => deadlocks += 1,
                outcome => break outcome.unwrap(),
            }
        }
        // A plain write of a row that others lock: it replaces a value with the same one.
        let plain = fetch_and_update(db, family, &from.to_be_bytes(), &Default::default(), |old| {
            old.map_or(Update::Keep, |old| Update::Set(old.to_vec()))
        });
        plain.unwrap();
    }
    deadlocks
}

#[test]
fn no_schedule_of_locked_transfers_loses_money_or_hangs() {
    let deadlocks = Arc::new(AtomicU64::new(0));
    for seed in 0..SEEDS {
        let (sim, met) = (SimEnv::new(seed), deadlocks.clone());
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let options = Options { background_threads: 2, memtable_bytes: 16 << 10, ..small() };
            let db = Db::open_in(env.clone(), "/store", options).unwrap();
            let spawner = env.spawner.as_ref().unwrap();
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (db, met) = (db.clone(), met.clone());
                    let work = move || {
                        met.fetch_add(transfer(&db, seed * THREADS + thread), Relaxed);
                    };
                    spawner.spawn("transfers", Priority::Foreground, Box::new(work)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
            let balance = |account: u64| number(db.get(&account.to_be_bytes()).unwrap().as_deref());
            assert_eq!((0..ACCOUNTS).map(balance).fold(0, u64::wrapping_add), 0, "seed {seed}");
            assert_eq!(db.stats().row_locks, 0, "seed {seed}");
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
    assert!(deadlocks.load(Relaxed) > 20, "{deadlocks:?}");
}
