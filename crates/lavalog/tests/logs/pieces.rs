//! Changes of many logs happen a few hundred logs at a time, with other operations in between.
//! Every record is found at any time while index files replace recent records, and cold files
//! replace groups.

use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use lavalog::{Durability, LogBatch, LogHandle, LogStore, Lsn, Options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEEDS: u64 = 8;
/// Enough for more than two steps.
const LOGS: u64 = 600;
/// Number of groups written.
const ROUNDS: u64 = 5;
const LEN: usize = 100;

fn bytes(log: u64, lsn: Lsn) -> Vec<u8> {
    let mut out = vec![0; LEN];
    Rng::new(log << 32 ^ lsn).fill(&mut out);
    out
}

/// State shared by the readers and the writer.
struct Shared {
    logs: Vec<LogHandle>,
    /// Number of acknowledged records of each log, with LSNs from 1 on.
    written: AtomicU64,
    is_done: AtomicBool,
}

fn reader(shared: &Shared, mut rng: Rng) -> u64 {
    let mut reads = 0;
    while !shared.is_done.load(Ordering::SeqCst) {
        let written = shared.written.load(Ordering::SeqCst);
        let n = rng.below(LOGS);
        let log = &shared.logs[n as usize];
        // Every eighth log keeps all records; in the others, trimmed records may be gone.
        let lsn = rng.range(1, written.max(1) + 1);
        match log.read(lsn) {
            Ok(Some(found)) => assert_eq!(found, bytes(n, lsn)),
            Ok(None) => assert!(written < lsn, "record {lsn} of log {n} of {written}"),
            Err(e) => assert!(!n.is_multiple_of(8) && e.kind() == base::ErrorKind::Trimmed, "{e}"),
        }
        if rng.one_in(4) {
            let found = log.scan(0).map(|record| record.unwrap().0);
            let found: Vec<Lsn> = found.take_while(|lsn| *lsn <= written).collect();
            assert!(found.windows(2).all(|two| two[0] + 1 == two[1]), "log {n}: {found:?}");
            let whole = written == 0 || found.last() == Some(&written);
            assert!(whole || !n.is_multiple_of(8), "log {n} of {written}: {found:?}");
        }
        reads += 1;
    }
    reads
}

/// Writes and trims. Returns the sealed groups and collected files.
fn writer(shared: &Shared, store: &LogStore, mut rng: Rng) -> (u64, u64) {
    for lsn in 1..=ROUNDS {
        let records: Vec<Vec<u8>> = (0..LOGS).map(|n| bytes(n, lsn)).collect();
        let mut batch = LogBatch::new();
        for (log, record) in shared.logs.iter().zip(&records) {
            batch.append(log, lsn, record);
        }
        store.write(&batch, Durability::Durable).unwrap();
        shared.written.store(lsn, Ordering::SeqCst);
        store.seal().unwrap();
        for (n, log) in shared.logs.iter().enumerate() {
            if n % 8 != 0 && !rng.one_in(5) {
                log.trim(lsn).unwrap();
            }
        }
    }
    store.wait_idle().unwrap();
    let statistics = store.statistics();
    shared.is_done.store(true, Ordering::SeqCst);
    (statistics.sealed_groups, statistics.collected_files)
}

#[test]
fn records_are_found_while_checkpoints_replace_files_in_pieces() {
    let (mut sealed, mut collected) = (0, 0);
    for seed in 0..SEEDS {
        let sim = SimEnv::new(seed);
        let plan = Plan { patience_ns: 20_000_000_000, ..Plan::new(seed) };
        let ran = sim.run_threads(&plan, move |env| {
            let mut rng = Rng::new(seed);
            let options = Options { group_bytes: Some(256 << 10), garbage_percent: 30, ..Options::default() };
            let store = LogStore::open(env, Path::new("/logs"), &options).unwrap();
            let logs = (0..LOGS).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
            let (written, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
            let shared = Arc::new(Shared { logs, written, is_done });
            let spawner = env.spawner.clone().unwrap();
            let mut threads = Vec::new();
            for n in 0..2 {
                let (shared, rng) = (shared.clone(), rng.fork());
                let body = Box::new(move || assert!(reader(&shared, rng) > 0));
                threads.push(spawner.spawn(&format!("reader-{n}"), Priority::Foreground, body).unwrap());
            }
            let done = writer(&shared, &store, rng);
            assert!(threads.into_iter().all(|thread| thread.join()));
            drop(shared);
            store.close().unwrap();
            done
        });
        let (groups, files) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        (sealed, collected) = (sealed + groups, collected + files);
    }
    assert!(sealed >= SEEDS * ROUNDS && collected > SEEDS, "{sealed} sealed, {collected} collected");
}
