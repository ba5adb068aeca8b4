//! Damaged rows, or lost index files of an open store, are rebuilt from their group during
//! concurrent reads, appends, trims and collections. Under every schedule each reader gets its
//! record, whichever thread meets the damage first.

use io::sim::threads::Plan;
use io::sim::{CrashKind, SimEnv};
use io::{Priority, Rng};
use lavalog::{Durability, LogHandle, LogStore, Options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DIR: &str = "/logs";
const SEEDS: u64 = 60;
const LOGS: u64 = 3;
const RECORDS: u64 = 600;

fn options() -> Options {
    Options { group_bytes: Some(256 << 10), garbage_percent: 40, ..Options::default() }
}

fn bytes(log: u64, lsn: u64) -> Vec<u8> {
    let mut out = vec![0; 300];
    Rng::new(log << 32 ^ lsn).fill(&mut out);
    out
}

/// Makes a store with damaged index files, or without some of them.
fn damaged(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let logs: Vec<LogHandle> = (0..LOGS).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    for lsn in 1..=RECORDS {
        for (n, log) in (0..).zip(&logs) {
            log.append(lsn, &bytes(n, lsn), Durability::Buffered).unwrap();
        }
        if lsn % 100 == 0 {
            store.wait_idle().unwrap();
        }
    }
    store.seal().unwrap();
    store.wait_idle().unwrap();
    drop(logs);
    store.close().unwrap();
    let sim = sim.crash(CrashKind::ProcessKill, seed);
    let mut rng = Rng::new(seed);
    let files = sim.env().fs.list(Path::new(DIR)).unwrap();
    for file in files.iter().filter(|file| file.name.ends_with(".e1-1")) {
        let path = io::fs::join(Path::new(DIR), &file.name);
        match rng.below(5) {
            0 => sim.env().fs.remove(&path).unwrap(),
            _ => sim.flip_bit(&path, rng.below(60), 3).unwrap(),
        }
    }
    sim
}

fn read_all(log: &LogHandle, n: u64, trimmed: &AtomicU64, rng: &mut Rng) {
    for _ in 0..40 {
        let lsn = rng.range(1, RECORDS + 1);
        match log.read(lsn) {
            Ok(found) => assert_eq!(found, Some(bytes(n, lsn)), "record {lsn} of log {n}"),
            Err(e) => {
                assert_eq!(e.kind(), base::ErrorKind::Trimmed, "record {lsn} of log {n}: {e}");
                assert!(n == 0 && lsn <= trimmed.load(Ordering::SeqCst));
            }
        }
        if rng.one_in(10) {
            let all = log.scan(RECORDS / 2).map(|record| {
                let (lsn, record) = record.unwrap();
                assert_eq!(record, bytes(n, lsn), "record {lsn} of log {n}");
                lsn
            });
            let all: Vec<u64> = all.filter(|lsn| *lsn <= RECORDS).collect();
            assert!(n == 0 || all.len() as u64 == RECORDS / 2 + 1, "{} of log {n}", all.len());
        }
    }
}

#[test]
fn reads_succeed_while_index_rows_are_rebuilt() {
    let mut remade = 0;
    for seed in 0..SEEDS {
        let sim = damaged(seed);
        let plan = Plan { patience_ns: 20_000_000_000, ..Plan::new(seed) };
        let ran = sim.run_threads(&plan, move |env| {
            let mut rng = Rng::new(seed);
            let store = LogStore::open(env, Path::new(DIR), &options()).unwrap();
            let trimmed = Arc::new(AtomicU64::new(0));
            let spawner = env.spawner.clone().unwrap();
            let mut threads = Vec::new();
            for n in 0..LOGS {
                let log = store.open_log(&format!("log {n}")).unwrap();
                let (mut rng, trimmed) = (rng.fork(), trimmed.clone());
                let body = Box::new(move || read_all(&log, n, &trimmed, &mut rng));
                threads.push(spawner.spawn(&format!("reader-{n}"), Priority::Foreground, body).unwrap());
            }
            let log = store.open_log("log 0").unwrap();
            let files = env.fs.list(Path::new(DIR)).unwrap();
            let mut indexes = files.into_iter().map(|file| file.name).filter(|name| name.ends_with(".e1-1"));
            for below in 1..=20 {
                if let Some(lost) = indexes.next().filter(|_| seed % 2 == 1 && rng.one_in(2)) {
                    // The file may be gone already.
                    let _ = env.fs.remove(&io::fs::join(Path::new(DIR), &lost));
                }
                trimmed.store(below * 25, Ordering::SeqCst);
                log.trim(below * 25).unwrap();
                log.append(RECORDS + below, &bytes(0, RECORDS + below), Durability::Durable).unwrap();
            }
            assert!(threads.into_iter().all(|thread| thread.join()));
            store.wait_idle().unwrap();
            let remade = store.statistics().remade_files;
            drop(log);
            store.close().unwrap();
            remade
        });
        remade += ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
    }
    assert!(remade > SEEDS, "{remade} files were made again");
}
