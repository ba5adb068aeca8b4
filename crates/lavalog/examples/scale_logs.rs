//! Costs of operations on a store with very many files, and with very many logs. The machine is
//! simulated, so nothing waits for a device, and the growth of CPU costs shows.
//!
//! `cargo run --release -p lavastore-lavalog --example scale_logs [FILES [LOGS [PARTS]]]`
//!
//! First, one log gets a record in each of FILES groups, which are sealed with an index file each.
//! (The simulated machine keeps its history: about 40 KB per group.) Then LOGS logs are created.
//! Then the index of one log gets PARTS parts, in memory only; the operations that hold the lock of
//! all logs are timed step by step. Last, the bytes of checkpoints in seals with 10,000 logs are
//! counted. For each operation and size the example prints the mean and the maximum of a few tries
//! in microseconds.

#![allow(clippy::unwrap_used, reason = "an example")]

use io::Env;
use io::sim::SimEnv;
use lavalog::disk::directory::{Block, LogRows};
use lavalog::index::RecordsInFile;
use lavalog::logs::{GroupPosition, Logs};
use lavalog::lsn_set::Builder;
use lavalog::ops::Op;
use lavalog::{Durability, LogStore, Options, Source};
use lavastore_lavalog as lavalog;
use std::path::Path;

/// Number of tries of each operation.
const TRIES: u64 = 5;

/// Opens a store that collects only dead files, so that other files stay.
fn open(env: &Env, group_bytes: u64) -> LogStore {
    let options = Options { group_bytes: Some(group_bytes), garbage_percent: 100, ..Options::default() };
    LogStore::open(env, Path::new("/logs"), &options).unwrap()
}

/// Times an operation. Prints the mean and the maximum in microseconds.
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

/// The operations timed at each size.
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
        store.wait_idle().unwrap();
    });
}

/// Many files: a surviving log and one to be deleted have a record in each.
fn with_files(clock: &Env, files: u64) {
    let sim = SimEnv::new(1);
    let store = open(&sim.env(), 256 << 10);
    let (log, gone) = (store.create_log("log").unwrap(), store.create_log("to be deleted").unwrap());
    let mut lsn = 0;
    for size in [files / 100, files / 10, files] {
        while lsn < size {
            lsn += 1;
            let next = log.last_lsn().unwrap().map_or(1, |last| last + 1);
            log.append(next, &[7; 100], Durability::Buffered).unwrap();
            gone.append(lsn, &[7; 100], Durability::Buffered).unwrap();
            store.seal().unwrap();
            store.wait_idle().unwrap();
        }
        println!("{size} files ({} groups are storage)", store.space().unwrap().stored.groups);
        operations(clock, &store);
    }
    drop((log, gone));
    store.close().unwrap();
    time(clock, "open", 1, |_| open(&sim.env(), 256 << 10).close().unwrap());
    let store = open(&sim.env(), 256 << 10);
    time(clock, "deletion of a log in all", 1, |_| store.delete_log("to be deleted").unwrap());
    let log = store.open_log("log").unwrap();
    time(clock, "trim of all", 1, |_| log.trim(log.last_lsn().unwrap().unwrap()).unwrap());
    time(clock, "what is dead goes", 1, |_| store.wait_idle().unwrap());
}

/// Many logs, most of them empty.
fn with_logs(clock: &Env, logs: u64) {
    let sim = SimEnv::new(2);
    let store = open(&sim.env(), 1 << 30);
    let mut created = 0;
    for size in [logs / 100, logs / 10, logs] {
        println!("{size} logs");
        time(clock, "creation of the last of them", 1, |_| {
            while created < size {
                created += 1;
                store.create_log(&format!("log {created}")).unwrap();
            }
        });
        operations(clock, &store);
    }
    store.close().unwrap();
    time(clock, "open", 1, |_| open(&sim.env(), 1 << 30).close().unwrap());
}

/// Costs of checkpoints in seals: each is written completely, in two copies. The logs have names
/// and metadata like those of Raft groups, and fill groups of 16 MB with their records. Nothing is
/// timed; the result is bytes of checkpoints per byte of records.
fn seals(logs: u64) {
    const GROUP_BYTES: u64 = 16 << 20;
    const SEALS: u64 = 3;
    let sim = SimEnv::new(3);
    let store = open(&sim.env(), GROUP_BYTES);
    let handles: Vec<_> = (0..logs).map(|n| store.create_log(&format!("raft group {n}")).unwrap()).collect();
    for log in &handles {
        log.set_metadata(&[5; 24], Durability::Buffered).unwrap();
    }
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let (record, mut bytes, mut checkpoints, mut lsn) = ([7; 1000], 0, 0, 0);
    for _ in 0..SEALS {
        let sealed = store.statistics().sealed_groups;
        'group: loop {
            lsn += 1;
            for log in &handles {
                log.append(lsn, &record, Durability::Buffered).unwrap();
                bytes += record.len() as u64;
                if bytes % (1 << 20) < record.len() as u64 {
                    store.wait_idle().unwrap();
                    if store.statistics().sealed_groups > sealed {
                        break 'group;
                    }
                }
            }
        }
        checkpoints += store.space().unwrap().owners.checkpoint_bytes;
    }
    println!(
        "{logs} logs, groups of 16 MB: {checkpoints} bytes of checkpoints in {SEALS} seals with {bytes} bytes of records"
    );
    println!("  {:.4} bytes of checkpoints for a byte of records", checkpoints as f64 / bytes as f64);
}

/// The index of one log with very many parts, each with ten records of its own file.
fn with_parts(clock: &Env, parts: u64) {
    let filled = || {
        let (mut logs, place) = (Logs::new(), GroupPosition { ltn: 1, at: 0 });
        logs.apply(1, &Op::Create { log: 0, name: "log" }, place).unwrap();
        for n in 0..parts {
            let mut lsns = Builder::default();
            (10 * n..10 * n + 10).for_each(|lsn| lsns.push(lsn, 1000).unwrap());
            let blocks = vec![Block { first: 10 * n, offset: 0, len: 99 }];
            let rows = LogRows { log: 0, seqs: (n + 2, n + 2), lsns: lsns.build(), blocks };
            logs.load(0, RecordsInFile::of(Source::Cold(n), &rows).unwrap());
        }
        logs
    };
    println!("{parts} parts of one log: each is one hold of the lock of all logs");
    let place = GroupPosition { ltn: 1, at: 0 };
    let mut logs = filled();
    time(clock, "trim of one part", 1000, |n| {
        logs.apply(parts + 9 + n, &Op::Trim { log: 0, below: 10 * n + 10 }, place).unwrap();
    });
    time(clock, "what it has, and takes", 1000, |_| {
        let log = logs.get(0).unwrap();
        assert!(log.live().index().size().records > 0 && log.memory_bytes() > 0);
    });
    for (what, op) in [
        ("trim of all", Op::Trim { log: 0, below: 10 * parts }),
        ("truncation of all", Op::TruncateAfter { log: 0, lsn: 0 }),
        ("truncation of half", Op::TruncateAfter { log: 0, lsn: 5 * parts }),
        ("deletion", Op::Delete { log: 0 }),
    ] {
        let mut logs = filled();
        time(clock, what, 1, |_| logs.apply(parts + 9, &op, place).unwrap());
        let pieces = parts.div_ceil(256).saturating_sub(1).max(1);
        time(clock, "  a piece of what it took", pieces, |_| assert!(logs.cut_some() || !logs.has_to_cut()));
        // The first hold of the lock after a truncation takes none of them.
        assert!(!logs.cut_some());
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let mut next = |usual| numbers.next().unwrap_or(usual);
    let (files, logs, parts) = (next(1_000), next(100_000), next(100_000));
    let clock = Env::kernel();
    with_files(&clock, files);
    with_logs(&clock, logs);
    with_parts(&clock, parts);
    seals(10_000.min(logs));
}
