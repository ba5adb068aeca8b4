//! What operations of a store of logs cost when it has very many files, and then very many logs, on a simulated machine: nothing here waits
//! for a device, so what grows shows.
//!
//! `cargo run --release -p lavastore-lavalog --example scale_logs [FILES [LOGS]]`
//!
//! First one log gets a record in each of so many groups, which become storage with an index file each; then so many logs are created. Of
//! each operation its time in microseconds is printed, and the most of a few tries, at the sizes on the way.

#![allow(clippy::unwrap_used, reason = "an example")]

use io::Env;
use io::sim::SimEnv;
use lavalog::{Durability, LogStore, Options};
use lavastore_lavalog as lavalog;
use std::path::Path;

/// How often each operation is tried.
const TRIES: u64 = 5;

fn open(env: &Env) -> LogStore {
    let options = Options { group_bytes: 256 << 10, ..Options::default() };
    LogStore::open(env, Path::new("/logs"), &options).unwrap()
}

/// Times what is done, in microseconds: the mean and the most.
fn time(clock: &Env, what: &str, tries: u64, mut run: impl FnMut(u64)) {
    let mut all = Vec::new();
    for n in 0..tries {
        let begun = clock.clock.now_ns();
        run(n);
        all.push((clock.clock.now_ns() - begun) / 1000);
    }
    let sum: u64 = all.iter().sum();
    println!("  {what:<28} {:>10} us, at most {:>10}", sum / tries, all.iter().max().unwrap_or(&0));
}

/// What is asked of a store again and again.
fn operations(clock: &Env, store: &LogStore) {
    let log = store.log("log").unwrap();
    let next = log.last_lsn().unwrap().map_or(1, |last| last + 1);
    time(clock, "append", TRIES, |n| log.append(next + n, &[7; 100], Durability::Durable).unwrap());
    time(clock, "read of an old record", TRIES, |n| drop(log.read(log.first_lsn().unwrap().unwrap() + n)));
    time(clock, "trim of one file", TRIES, |_| log.trim(log.first_lsn().unwrap().unwrap() + 1).unwrap());
    time(clock, "statistics", TRIES, |_| assert!(store.statistics().logs > 0));
    time(clock, "space", TRIES, |_| drop(store.space().unwrap()));
    time(clock, "seal and collection", TRIES, |n| {
        log.append(next + TRIES + n, &[7; 100], Durability::Buffered).unwrap();
        store.seal().unwrap();
        store.settle().unwrap();
    });
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (files, logs) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(100_000));
    let (clock, sim) = (Env::kernel(), SimEnv::new(1));
    let store = open(&sim.env());
    let (log, gone) = (store.create_log("log").unwrap(), store.create_log("to be deleted").unwrap());
    let mut lsn = 0;
    for size in [files / 100, files / 10, files] {
        while lsn < size {
            lsn += 1;
            log.append(log.last_lsn().unwrap().map_or(1, |last| last + 1), &[7; 100], Durability::Buffered)
                .unwrap();
            gone.append(lsn, &[7; 100], Durability::Buffered).unwrap();
            store.seal().unwrap();
            store.settle().unwrap();
        }
        println!("{size} files");
        operations(&clock, &store);
    }
    time(&clock, "deletion of a log in all", 1, |_| store.delete_log("to be deleted").unwrap());
    time(&clock, "trim of all", 1, |_| log.trim(log.last_lsn().unwrap().unwrap()).unwrap());
    time(&clock, "collection of all that", 1, |_| store.settle().unwrap());
    let mut created = 0;
    for size in [logs / 100, logs / 10, logs] {
        time(&clock, "creation of those logs", 1, |_| {
            while created < size {
                created += 1;
                store.create_log(&format!("log {created}")).unwrap();
            }
        });
        println!("{size} logs");
        operations(&clock, &store);
    }
    drop((log, gone));
    store.close().unwrap();
    time(&clock, "open", 1, |_| open(&sim.env()).close().unwrap());
}
