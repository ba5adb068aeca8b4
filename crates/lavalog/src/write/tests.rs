//! Trims and deletions of logs with many files, under schedules. Their records leave the index in
//! steps, in tests two parts at a time, and other operations run in between.

use crate::core::Core;
use crate::{Durability, LogStore, Lsn, Options};
use base::sync::{Mutex, lock, rank};
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use std::path::Path;
use std::sync::Arc;

/// Checks that the ledger agrees with the index.
fn check_ledger(core: &Core) {
    let logs = core.catalog.view();
    assert!(!logs.has_to_cut(), "all that was trimmed is taken out when the last trim has returned");
    let records: u64 = logs.registry().iter().map(|log| log.live().index().size().records).sum();
    assert_eq!(logs.ledger().live().records, records);
    let sum: u64 = logs.ledger().iter().map(|(_, usage)| usage.live.records).sum();
    assert_eq!(sum, records);
}

/// Fills and seals some groups.
fn filled(store: &LogStore, groups: u64, each: u64) {
    let logs: Vec<_> = (0..3).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    for group in 0..groups {
        for lsn in group * each..(group + 1) * each {
            logs.iter().for_each(|log| log.append(lsn, &[lsn as u8; 50], Durability::Buffered).unwrap());
        }
        store.seal().unwrap();
        store.wait_idle().unwrap();
    }
}

fn reader(store: &LogStore, trimmed: &Mutex<Lsn, rank::Outside>, end: Lsn) {
    let log = store.open_log("log 0").unwrap();
    for _ in 0..6 {
        let below = *lock(trimmed);
        let first = log.first_lsn().unwrap().unwrap_or(end);
        assert!((below..=end).contains(&first), "{first} is the first, {below} was trimmed before");
        let found: Vec<Lsn> = log.scan(0).map(|record| record.unwrap().0).collect();
        assert!(found.is_sorted() && found.first().is_none_or(|first| *first >= below));
        if first < end {
            // The record may be trimmed by now.
            let _ = log.read(first).map(|bytes| assert_eq!(bytes, Some(vec![first as u8; 50])));
        }
    }
}

fn run(seed: u64) -> u64 {
    let sim = SimEnv::new(seed);
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let mut rng = Rng::new(seed);
        let options = Options { group_bytes: Some(256 << 10), garbage_percent: 20, ..Options::default() };
        let store = LogStore::open(env, Path::new("/logs"), &options).unwrap();
        let (groups, each) = (rng.range(4, 9), rng.range(1, 4));
        filled(&store, groups, each);
        let end = groups * each;
        let trimmed = Arc::new(Mutex::<Lsn, rank::Outside>::new(0));
        let spawner = env.spawner.clone().unwrap();
        let mut threads = Vec::new();
        let (of, at, draws) = (store.clone(), trimmed.clone(), rng.range(1, end + 1));
        let body = Box::new(move || {
            for below in [draws / 2, draws, end] {
                of.open_log("log 0").unwrap().trim(below).unwrap();
                *lock(&at) = below;
            }
        });
        threads.push(spawner.spawn("trims", Priority::Foreground, body).unwrap());
        let of = store.clone();
        let body = Box::new(move || {
            of.open_log("log 2").unwrap().trim(1).unwrap();
            of.delete_log("log 1").unwrap();
            of.create_log("log 1").unwrap().append(7, b"another", Durability::Buffered).unwrap();
        });
        threads.push(spawner.spawn("deletes", Priority::Foreground, body).unwrap());
        let of = store.clone();
        let body = Box::new(move || reader(&of, &trimmed, end));
        threads.push(spawner.spawn("reads", Priority::Foreground, body).unwrap());
        assert!(threads.into_iter().all(|thread| thread.join()));
        store.wait_idle().unwrap();
        check_ledger(store.core());
        let again = store.open_log("log 1").unwrap();
        assert_eq!(again.scan(0).map(|record| record.unwrap().0).collect::<Vec<_>>(), [7]);
        assert_eq!(store.open_log("log 0").unwrap().first_lsn().unwrap(), None);
        let collected = store.statistics().collected_files;
        drop(again);
        store.close().unwrap();
        collected
    });
    ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value
}

#[test]
fn trimmed_records_are_never_found_and_are_counted_once() {
    let collected: u64 = (0..150).map(run).sum();
    assert!(collected > 100, "{collected} files were collected beside it");
}
