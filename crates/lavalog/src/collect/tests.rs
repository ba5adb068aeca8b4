use super::*;
use crate::{Durability, LogHandle, LogStore, Options};
use io::sim::SimEnv;
use std::path::Path;

const LIMIT: u64 = 4 << 20;
const LEN: usize = 1000;
const ROUNDS: u64 = 400;

/// Counts the records of a log by number of copies, which is the generation of their cold file.
fn copies(store: &LogStore, log: &LogHandle) -> [u64; 8] {
    let (core, mut out) = (store.core(), [0; 8]);
    let state = core.store.manifest.state();
    let logs = core.catalog.view();
    for part in logs.log(log.id()).unwrap().live().index().parts() {
        let copied = match state.rows_of(part.source()).unwrap().role {
            FileRole::Cold { generation } => generation as usize,
            _ => 0,
        };
        out[copied.min(7)] += part.set().size().records;
    }
    out
}

/// Appends to a log that is never trimmed and to a hundred logs that keep up to `lag` records.
/// Returns the number of copies of the first log's records, and the copied share of all appended
/// bytes.
fn run(seed: u64, lag: u64) -> ([u64; 8], f64) {
    let sim = SimEnv::new(seed);
    sim.watch("/logs");
    let options = Options { group_bytes: Some(256 << 10), space_limit: Some(LIMIT), ..Options::default() };
    let store = LogStore::open(&sim.env(), Path::new("/logs"), &options).unwrap();
    let mut rng = io::Rng::new(seed);
    let logs: Vec<LogHandle> = (0..101).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    let keeps: Vec<u64> = logs.iter().map(|_| rng.range(1, lag + 1)).collect();
    for lsn in 1..=ROUNDS {
        for (n, log) in logs.iter().enumerate() {
            log.append(lsn, &[n as u8; LEN], Durability::Buffered).unwrap();
            if n > 0 && lsn > keeps[n] {
                log.trim(lsn - keeps[n]).unwrap();
            }
        }
        let counted = copies(&store, &logs[0]);
        assert!(counted[3..] == [0; 5], "seed {seed}, lag {lag}, round {lsn}: {counted:?}");
        assert!(sim.peak() <= LIMIT, "{} bytes were occupied of {LIMIT}", sim.peak());
    }
    store.wait_idle().unwrap();
    let counted = copies(&store, &logs[0]);
    let lsns: Vec<u64> = logs[0].scan(0).map(|record| record.unwrap().0).collect();
    assert!(lsns.into_iter().eq(1..=ROUNDS), "nothing of it is lost");
    let statistics = store.statistics();
    drop(logs);
    store.close().unwrap();
    (counted, statistics.copied_bytes as f64 / statistics.append_bytes as f64)
}

#[test]
fn records_of_an_untrimmed_log_are_copied_at_most_twice() {
    let mut twice = 0;
    // In the last case the limit leaves space for hardly more than the live records: without
    // separation of logs some records were copied four times.
    for (seed, lag) in [(1, 1), (3, 8), (7, 24)] {
        let (counted, share) = run(seed, lag);
        assert!(lag > 4 || share < 0.05, "lag {lag}: {share} of what was appended was copied");
        assert!(counted[1] + counted[2] > ROUNDS / 2, "it was not kept by its groups: {counted:?}");
        twice += counted[2];
    }
    assert!(twice > 0, "nothing was copied twice");
}
