//! If the checkpoint is long, closed groups wait for others, and all are sealed with one
//! checkpoint.

use crate::model::options;
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use lavalog::{Durability, LogHandle, LogStore, Options};
use std::path::Path;

const DIR: &str = "/logs";
const LEN: usize = 2000;

fn open(sim: &SimEnv, options: &Options) -> LogStore {
    LogStore::open(&sim.env(), Path::new(DIR), options).unwrap()
}

/// Creates logs with maximum metadata: a checkpoint has 4 KiB for each.
fn logs(store: &LogStore, count: u64) -> Vec<LogHandle> {
    let log = |n| {
        let log = store.create_log(&format!("log {n}")).unwrap();
        log.set_metadata(&[7; 4 << 10], Durability::Buffered).unwrap();
        log
    };
    (0..count).map(log).collect()
}

/// Returns the checkpoint files.
fn checkpoints(sim: &SimEnv) -> Vec<String> {
    let files = sim.env().fs.list(Path::new(DIR)).unwrap().into_iter().map(|file| file.name);
    files.filter(|name| name.ends_with(".e1-2")).collect()
}

fn append(logs: &[LogHandle], lsn: u64) {
    logs.iter().for_each(|log| log.append(lsn, &[lsn as u8; LEN], Durability::Buffered).unwrap());
}

fn holds(store: &LogStore, count: u64, last: u64) {
    for n in 0..count {
        let log = store.open_log(&format!("log {n}")).unwrap();
        let found: Vec<u64> = log.scan(0).map(|record| record.unwrap().0).collect();
        assert_eq!(found, (1..=last).collect::<Vec<_>>(), "log {n}");
        assert_eq!(log.read(last).unwrap(), Some(vec![last as u8; LEN]));
    }
}

#[test]
fn groups_are_batched_while_the_index_checkpoint_is_large() {
    let sim = SimEnv::new(1);
    let store = open(&sim, &options());
    let logs = logs(&store, 20);
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let (mut last, mut together, mut before) = (0, Vec::new(), checkpoints(&sim));
    // About 5 MB, 64 times the checkpoint with its copy, is more than eight groups of 256 KiB.
    let mut sealed = store.statistics().sealed_groups;
    while store.statistics().sealed_groups < 20 {
        last += 1;
        append(&logs, last);
        store.wait_idle().unwrap();
        let (after, now) = (checkpoints(&sim), store.statistics().sealed_groups);
        assert_eq!(after != before, now != sealed, "a checkpoint for each time that groups become storage");
        if now != sealed {
            together.push(now - sealed);
        }
        (before, sealed) = (after, now);
    }
    assert!(together.iter().all(|groups| *groups == 8), "{together:?} groups became storage together");
    // An explicit request does not wait.
    last += 1;
    append(&logs, last);
    store.seal().unwrap();
    store.wait_idle().unwrap();
    assert!(store.statistics().sealed_groups > sealed);
    append(&logs, last + 1);
    store.sync().unwrap();
    // The waiting groups need no record: they are replayed.
    for seed in 0..4 {
        let kind = [CrashKind::ProcessKill, CrashKind::PowerLoss][seed as usize % 2];
        holds(&open(&sim.crash(kind, seed), &options()), 20, last + 1);
    }
    holds(&store, 20, last + 1);
}

#[test]
fn groups_are_not_batched_if_space_is_short() {
    let sim = SimEnv::new(2);
    let limited = Options { space_limit: Some(6 << 20), ..options() };
    sim.watch(DIR);
    let store = open(&sim, &limited);
    let logs = logs(&store, 20);
    // Several times the data that fits the limit, trimmed along the way.
    for lsn in 1..=600 {
        append(&logs, lsn);
        if lsn > 5 {
            logs.iter().for_each(|log| log.trim(lsn - 5).unwrap());
        }
    }
    let refused = (601..).find_map(|lsn| logs[0].append(lsn, &[1; LEN], Durability::Buffered).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    logs[0].trim(1 << 40).unwrap();
    store.wait_idle().unwrap();
    logs[1].append(601, &[1; LEN], Durability::Buffered).unwrap();
    assert!(sim.peak() <= 6 << 20, "{} bytes were occupied", sim.peak());
}

/// Over time, garbage collection stays within the I/O budget. Sealing is not delayed, but is
/// charged to the budget.
#[test]
fn the_io_budget_binds_collections() {
    let mut seconds = Vec::new();
    for budget in [0, 1 << 20] {
        let sim = SimEnv::new(5);
        let store = open(&sim, &Options { io_budget: budget, ..options() });
        let logs = logs(&store, 4);
        let start_ns = sim.now_ns();
        for lsn in 1..=600 {
            append(&logs, lsn);
            // One log is kept, so that there are records to copy.
            logs[1..].iter().for_each(|log| log.trim(lsn).unwrap());
        }
        store.wait_idle().unwrap();
        let told = store.statistics().background_io;
        assert_eq!(told.budget_bytes_per_s, budget);
        assert!(told.index_bytes > 0 && told.collection_bytes > 100 * LEN as u64, "{told:?}");
        let elapsed = (sim.now_ns() - start_ns) as f64 / 1e9;
        seconds.push(elapsed);
        let moved = (told.index_bytes + told.collection_bytes + told.other_bytes) as f64;
        // The I/O of a step is charged afterwards.
        let ahead = (256 << 10) as f64;
        assert!(budget == 0 || moved - ahead <= budget as f64 * elapsed, "{moved} bytes in {elapsed} s");
        let found: Vec<u64> = logs[0].scan(0).map(|record| record.unwrap().0).collect();
        assert_eq!(found, (1..=600).collect::<Vec<_>>());
    }
    assert!(seconds[1] > seconds[0], "{seconds:?}");
    assert_eq!(
        LogStore::open(&SimEnv::new(6).env(), Path::new(DIR), &Options { io_budget: 1, ..options() })
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidArgument
    );
}
