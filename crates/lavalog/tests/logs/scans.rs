//! Device requests of scans, and read-ahead without effect on the results.

use io::Rng;
use io::sim::{OpKind, SimEnv};
use lavalog::{Durability, LogHandle, LogStore, Options};
use std::path::Path;

const LEN: usize = 1000;

fn open(sim: &SimEnv) -> LogStore {
    let options = Options { group_bytes: Some(4 << 20), ..Options::default() };
    LogStore::open(&sim.env(), Path::new("/logs"), &options).unwrap()
}

fn bytes(lsn: u64) -> Vec<u8> {
    let mut out = vec![0; LEN];
    Rng::new(lsn).fill(&mut out);
    out
}

fn append(log: &LogHandle, lsns: std::ops::Range<u64>) {
    lsns.for_each(|lsn| log.append(lsn, &bytes(lsn), Durability::Buffered).unwrap());
}

/// Scans a range. Returns the number of read operations.
fn scan(sim: &SimEnv, log: &LogHandle, lsns: std::ops::Range<u64>, ahead: usize) -> u64 {
    let before = sim.count_ops(Some(OpKind::Read), "");
    let mut scan = log.scan(0).reading_ahead(ahead);
    let mut record = Vec::new();
    for lsn in lsns {
        record.clear();
        assert_eq!(scan.read_next_into(&mut record).unwrap(), Some(lsn));
        assert_eq!(record, bytes(lsn));
    }
    assert_eq!(scan.read_next().unwrap(), None);
    sim.count_ops(Some(OpKind::Read), "") - before
}

#[test]
fn adjacent_records_are_scanned_with_few_device_reads() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = store.create_log("log").unwrap();
    append(&log, 1..3001);
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let alone = scan(&sim, &log, 1..3001, 0);
    let ahead = scan(&sim, &log, 1..3001, 512 << 10);
    assert!(alone > 3000 && ahead < 60, "{alone} reads one by one, {ahead} ahead");
}

#[test]
fn cold_records_are_scanned_with_few_device_reads() {
    let sim = SimEnv::new(2);
    let store = open(&sim);
    let (log, other) = (store.create_log("log").unwrap(), store.create_log("other").unwrap());
    for lsn in 1..1001 {
        append(&log, lsn..lsn + 1);
        append(&other, 3 * lsn..3 * lsn + 3);
    }
    other.trim(4000).unwrap();
    store.seal().unwrap();
    store.wait_idle().unwrap();
    assert!(store.space().unwrap().stored.cold_files > 0);
    let ahead = scan(&sim, &log, 1..1001, 512 << 10);
    assert!(ahead < 40, "{ahead} reads");
}

#[test]
fn stale_read_ahead_is_read_again() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        let (store, mut rng) = (open(&sim), Rng::new(seed));
        let log = store.create_log("log").unwrap();
        let (mut tail, mut next, mut found) = (log.scan(0), 1, 1);
        for _ in 0..60 {
            let count = rng.range(1, 60);
            append(&log, next..next + count);
            next += count;
            if rng.one_in(3) {
                store.sync().unwrap();
            }
            if rng.one_in(10) {
                store.seal().unwrap();
            }
            if rng.one_in(8) {
                log.trim(next.saturating_sub(rng.below(300))).unwrap();
            }
            let most = rng.below(100);
            while let Some((lsn, record)) = tail.read_next().unwrap() {
                assert!(lsn >= found && record == bytes(lsn), "seed {seed}: {lsn} after {found}");
                found = lsn + 1;
                if rng.below(100) > most {
                    break;
                }
            }
        }
    }
}

/// A scan reads ahead. Records truncated since are not returned, but their replacements are; a
/// deleted log has none.
#[test]
fn a_scan_skips_records_truncated_after_read_ahead() {
    for other_first in [false, true] {
        let sim = SimEnv::new(1);
        let store = open(&sim);
        let (log, other) = (store.log("log").unwrap(), store.log("other").unwrap());
        (1..=40).for_each(|lsn| log.append(lsn, b"old", Durability::Buffered).unwrap());
        let mut scan = log.scan(0);
        assert_eq!(scan.read_next().unwrap(), Some((1, b"old".to_vec())));
        if other_first {
            other.truncate_after(0, Durability::Buffered).unwrap();
            assert_eq!(scan.read_next().unwrap(), Some((2, b"old".to_vec())));
        }
        log.truncate_after(5, Durability::Buffered).unwrap();
        (6..=8).for_each(|lsn| log.append(lsn, b"new", Durability::Buffered).unwrap());
        let left: Vec<(u64, Vec<u8>)> = scan.by_ref().map(Result::unwrap).collect();
        let old = (2 + u64::from(other_first)..=5).map(|lsn| (lsn, b"old".to_vec()));
        assert_eq!(left, old.chain((6..=8).map(|lsn| (lsn, b"new".to_vec()))).collect::<Vec<_>>());
        let mut scan = log.scan(0);
        assert_eq!(scan.read_next().unwrap(), Some((1, b"old".to_vec())));
        store.delete_log("log").unwrap();
        assert_eq!(scan.read_next().unwrap_err().kind(), base::ErrorKind::NotFound);
    }
}
