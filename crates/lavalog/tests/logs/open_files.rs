//! A store with more files than the process may open works nevertheless.

use crate::model::options;
use io::sim::{CrashKind, SimEnv};
use lavalog::{Durability, LogStore, Options, RepairOptions};
use std::path::Path;

const DIR: &str = "/logs";
const COPY: &str = "/copy";
const NEW: &str = "/new";

/// Maximum number of open files: the store's own for log and manifest, and a few more.
const OPEN_MAX: u64 = 100;
/// Minimum number of storage files of either kind.
const FILES_MIN: usize = 128;

fn few() -> Options {
    Options { open_files_max: 16, ..options() }
}

/// Makes a store with many groups. Returns the contents of its log.
fn made(sim: &SimEnv) -> Vec<(u64, u8)> {
    let store = LogStore::open(&sim.env(), Path::new(DIR), &few()).unwrap();
    let (log, gone) = (store.create_log("kept").unwrap(), store.create_log("gone").unwrap());
    let mut whole = Vec::new();
    for lsn in 1..=11_000_u64 {
        log.append(lsn, &[lsn as u8; 3000], Durability::Buffered).unwrap();
        gone.append(lsn, &[1; 700], Durability::Buffered).unwrap();
        whole.push((lsn, lsn as u8));
        if lsn % 50 == 0 {
            gone.trim(lsn).unwrap();
            store.wait_idle().unwrap();
        }
    }
    let found = store.statistics();
    assert!(found.sealed_groups as usize > FILES_MIN, "{found:?}");
    drop((log, gone));
    store.close().unwrap();
    whole
}

fn read(store: &LogStore) -> Vec<(u64, u8)> {
    let log = store.open_log("kept").unwrap();
    let (mut scan, mut found) = (log.scan(0), Vec::new());
    while let Some((lsn, bytes)) = scan.read_next().unwrap() {
        assert!(bytes.len() == 3000 && bytes.iter().all(|byte| *byte == bytes[0]));
        found.push((lsn, bytes[0]));
    }
    found
}

fn count(sim: &SimEnv, dir: &str, end: &str) -> usize {
    let all = sim.env().fs.list(Path::new(dir)).unwrap();
    all.iter().filter(|entry| entry.name.ends_with(end)).count()
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_usable() {
    let sim = SimEnv::new(3);
    sim.set_open_max(Some(OPEN_MAX));
    let whole = made(&sim);
    assert!(count(&sim, DIR, ".log") > FILES_MIN && count(&sim, DIR, ".e1-1") > FILES_MIN);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &few()).unwrap();
    assert_eq!(read(&store), whole);
    let report = store.verify();
    assert!(report.damages.is_empty(), "{report:?}");
    store.checkpoint(Path::new(COPY)).unwrap();
    assert_eq!(read(&store), whole);
    let peak = sim.take_open_peak();
    assert!(peak <= OPEN_MAX, "{peak}");
    store.close().unwrap();
    let copy = LogStore::open(&sim.env(), Path::new(COPY), &few()).unwrap();
    assert_eq!(read(&copy), whole);
    let reader = LogStore::open_read_only(&sim.env(), Path::new(DIR), &few()).unwrap();
    assert_eq!(read(&reader), whole);
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_repaired() {
    let sim = SimEnv::new(4);
    let whole = made(&sim);
    for lost in [None, Some("CURRENT"), Some("MANIFEST")] {
        for dry_run in [true, false] {
            let sim = sim.crash(CrashKind::ProcessKill, 1);
            let fs = sim.env().fs;
            for entry in fs.list(Path::new(DIR)).unwrap() {
                if lost.is_some_and(|lost| entry.name.starts_with(lost)) {
                    fs.remove(&Path::new(DIR).join(&entry.name)).unwrap();
                }
            }
            sim.set_open_max(Some(OPEN_MAX));
            let repair = RepairOptions { options: few(), dry_run, ..RepairOptions::default() };
            let env = sim.env();
            let report = LogStore::repair(&env, Path::new(DIR), &env, Path::new(NEW), &repair).unwrap();
            let kept = report.logs.iter().find(|log| log.name == "kept").unwrap();
            assert_eq!((kept.records, kept.gaps.len()), (whole.len() as u64, 0), "{lost:?}: {report:?}");
            assert_eq!(sim.open_now(), 0);
            if !dry_run {
                let store = LogStore::open(&sim.env(), Path::new(NEW), &few()).unwrap();
                assert_eq!(read(&store), whole);
            }
        }
    }
}

#[test]
fn half_of_the_descriptors_are_left_to_the_process() {
    let sim = SimEnv::new(5);
    let whole = made(&sim);
    sim.set_open_max(Some(OPEN_MAX));
    sim.take_open_peak();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(read(&store), whole);
    assert!(store.verify().damages.is_empty());
    store.open_log("kept").unwrap().append(20_000, &[7; 3000], Durability::Durable).unwrap();
    let now = sim.open_now();
    assert!(now <= OPEN_MAX / 2, "{now} files are open");
    store.close().unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(read(&store).len(), whole.len() + 1);
}

#[test]
fn idle_files_are_closed_when_descriptors_run_out() {
    let sim = SimEnv::new(6);
    let whole = made(&sim);
    sim.set_open_max(Some(4 * OPEN_MAX));
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(read(&store), whole);
    // The program takes all remaining descriptors.
    let fs = sim.env().fs;
    let open = || fs.open(&Path::new(DIR).join("CURRENT"), io::Access::Buffered).ok();
    let taken: Vec<_> = std::iter::from_fn(open).collect();
    assert!(taken.len() as u64 >= 2 * OPEN_MAX, "{}", taken.len());
    assert_eq!(read(&store), whole);
    assert!(store.verify().damages.is_empty());
    store.close().unwrap();
}

#[test]
fn the_statistics_say_how_many_files_may_stay_open() {
    let sim = SimEnv::new(7);
    let open = |dir| LogStore::open(&sim.env(), Path::new(dir), &options()).unwrap();
    let max = |store: &LogStore| store.statistics().open_files_max;
    let store = open(DIR);
    assert_eq!(max(&store), options().open_files_max as u64);
    store.close().unwrap();
    sim.set_open_max(Some(OPEN_MAX));
    let (store, other) = (open(DIR), open(COPY));
    assert!(max(&store) < OPEN_MAX / 4 && max(&other) < OPEN_MAX / 4);
    other.close().unwrap();
    assert_eq!(max(&store), OPEN_MAX / 2 - 16);
}
