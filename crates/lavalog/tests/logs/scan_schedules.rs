//! Scans next to trims and collections, under schedules: files are removed and records moved during
//! a scan, and some rows are damaged. A scan follows its records to their new positions, returns
//! every remaining record, and omits those trimmed before it began.

use io::sim::threads::Plan;
use io::sim::{CrashKind, SimEnv};
use io::{Priority, Rng};
use lavalog::{Durability, LogHandle, LogStore, Lsn, Options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DIR: &str = "/logs";
const SEEDS: u64 = 80;
const RECORDS: u64 = 600;
/// Number of trims of log 0, and the LSNs removed by each.
const TRIMS: u64 = 20;
const STEP: u64 = 25;

fn options() -> Options {
    let recent_bytes = 20 << 10;
    Options { group_bytes: Some(256 << 10), garbage_percent: 30, recent_bytes, ..Options::default() }
}

/// Log 0 has most of the bytes: its trims make garbage of the files that log 1 shares.
fn bytes(log: u64, lsn: Lsn) -> Vec<u8> {
    let mut out = vec![0; if log == 0 { 700 } else { 100 }];
    Rng::new(log << 32 ^ lsn).fill(&mut out);
    out
}

/// Makes a store with some groups and possibly damaged rows.
fn filled(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let logs: Vec<LogHandle> = (0..2).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    // The first group dies completely.
    for lsn in 1..=RECORDS / 2 {
        logs[0].append(lsn, &bytes(0, lsn), Durability::Buffered).unwrap();
    }
    for lsn in 1..=RECORDS {
        logs[1].append(lsn, &bytes(1, lsn), Durability::Buffered).unwrap();
        if lsn > RECORDS / 2 {
            logs[0].append(lsn, &bytes(0, lsn), Durability::Buffered).unwrap();
        }
    }
    store.seal().unwrap();
    store.wait_idle().unwrap();
    drop(logs);
    store.close().unwrap();
    let sim = sim.crash(CrashKind::ProcessKill, seed);
    let mut rng = Rng::new(seed);
    let files = sim.env().fs.list(Path::new(DIR)).unwrap();
    let indexes = files.iter().filter(|file| file.name.ends_with(".e1-1"));
    for file in indexes.filter(|_| seed % 2 == 1) {
        sim.flip_bit(io::fs::join(Path::new(DIR), &file.name), rng.below(60), 3).unwrap();
    }
    sim
}

/// Trim point of log 0.
#[derive(Default)]
struct Trimmed {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Scans a log several times. Returns the number of records that trims removed during the scans.
fn scanner(log: &LogHandle, n: u64, trimmed: &Trimmed, rng: &mut Rng) -> u64 {
    let mut skipped = 0;
    for _ in 0..6 {
        let ahead = [0, 2_000, 20_000, 512 << 10][rng.below(4) as usize];
        let (begin, gone) = (rng.range(1, RECORDS), trimmed.done.load(Ordering::SeqCst));
        let mut next = begin;
        for record in log.scan(begin).reading_ahead(ahead) {
            let (lsn, found) = record.unwrap_or_else(|e| panic!("log {n} from {next} on: {e:?}"));
            assert!(found == bytes(n, lsn), "record {lsn} of log {n}");
            assert!(n == 1 || lsn >= gone, "record {lsn} was trimmed, like all below {gone}");
            let may_begin = match n {
                0 => next.max(trimmed.begun.load(Ordering::SeqCst)),
                _ => next,
            };
            assert!((next..=may_begin).contains(&lsn), "record {lsn} of log {n} comes where {next} should");
            skipped += lsn - next;
            next = lsn + 1;
        }
        assert!(next > RECORDS, "log {n} ends before {next}");
    }
    skipped
}

#[test]
fn a_scan_during_trims_and_collection_finds_all_records() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let drawn = first.unwrap_or(0)..first.unwrap_or(0) + count.unwrap_or(SEEDS);
    let (mut collected, mut skipped) = (0, 0);
    for seed in drawn {
        let sim = filled(seed);
        let plan = Plan { patience_ns: 20_000_000_000, ..Plan::new(seed) };
        let ran = sim.run_threads(&plan, move |env| {
            let mut rng = Rng::new(seed);
            let store = LogStore::open(env, Path::new(DIR), &options()).unwrap();
            let trimmed = Arc::new((Trimmed::default(), AtomicU64::new(0)));
            let spawner = env.spawner.clone().unwrap();
            let mut threads = Vec::new();
            for n in [0, 0, 1, 1] {
                let log = store.open_log(&format!("log {n}")).unwrap();
                let (mut rng, trimmed) = (rng.fork(), trimmed.clone());
                let body = Box::new(move || {
                    let skipped = scanner(&log, n, &trimmed.0, &mut rng);
                    trimmed.1.fetch_add(skipped, Ordering::SeqCst);
                });
                threads.push(spawner.spawn(&format!("scanner-{n}"), Priority::Foreground, body).unwrap());
            }
            let log = store.open_log("log 0").unwrap();
            for n in 1..=TRIMS {
                trimmed.0.begun.store(n * STEP, Ordering::SeqCst);
                log.trim(n * STEP).unwrap();
                trimmed.0.done.store(n * STEP, Ordering::SeqCst);
                log.append(RECORDS + n, &bytes(0, RECORDS + n), Durability::Durable).unwrap();
            }
            assert!(threads.into_iter().all(|thread| thread.join()));
            let collected = store.statistics().collected_files;
            drop(log);
            store.close().unwrap();
            (collected, trimmed.1.load(Ordering::SeqCst))
        });
        let (files, records) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        collected += files;
        skipped += records;
    }
    assert!(first.is_some() || collected > SEEDS / 2, "{collected} files were collected");
    assert!(first.is_some() || skipped > SEEDS, "{skipped} records were trimmed before a scan");
}
