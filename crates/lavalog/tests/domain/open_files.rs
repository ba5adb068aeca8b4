//! A store of keys and logs with more files than the process may open can still be opened, read,
//! copied and repaired.

use crate::life::{DIR, kv_options, log_options};
use io::Env;
use io::sim::{CrashKind, SimEnv};
use lavakv::multi_engine::open_with_records;
use lavakv::{Db, FamilyOptions, Options};
use lavalog::{Durability, LogStore, SecondaryLogRepair, SecondaryLogs};
use repair::RepairOptions;
use std::path::Path;

/// Maximum number of open files.
const OPEN_MAX: u64 = 120;
/// Minimum number of groups, of index files, and of tables.
const FILES_MIN: usize = 128;
const ROUNDS: u64 = 9000;

fn keys() -> Options {
    let family = FamilyOptions { min_blob_size: 1 << 20, ..FamilyOptions::default() }
        .expert(|expert| expert.file_bytes = 8 << 10);
    Options { open_files_max: 16, family, ..kv_options() }
}

fn logs() -> lavalog::Options {
    lavalog::Options { open_files_max: 16, ..log_options() }
}

fn open(env: &Env, dir: &str) -> (Db, LogStore) {
    let mut secondary = SecondaryLogs::new(&logs()).unwrap();
    let db = open_with_records(env.clone(), Path::new(dir), keys(), &mut secondary).unwrap();
    (db, secondary.store().unwrap())
}

fn made(sim: &SimEnv) {
    let (db, logs) = open(&sim.env(), DIR);
    let log = logs.create_log("kept").unwrap();
    for n in 1..=ROUNDS {
        log.append(n, &[n as u8; 4000], Durability::Buffered).unwrap();
        let value: Vec<u8> =
            (0..40).flat_map(|i| (n * 31 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
        db.put(format!("key {n:06}").as_bytes(), &value).unwrap();
        if n % 100 == 0 {
            logs.wait_idle().unwrap();
        }
    }
    db.flush().unwrap();
    logs.wait_idle().unwrap();
    let all = sim.env().fs.list(Path::new(DIR)).unwrap();
    let count = |end: &str| all.iter().filter(|entry| entry.name.ends_with(end)).count();
    let counts = [".log", ".e1-1", ".ksst"].map(count);
    assert!(counts.iter().all(|n| *n > FILES_MIN), "{counts:?}");
    drop(log);
    logs.close().unwrap();
    db.close().unwrap();
}

fn check((db, logs): (Db, LogStore)) {
    let log = logs.open_log("kept").unwrap();
    for n in 1..=ROUNDS {
        assert_eq!(log.read(n).unwrap().unwrap(), [n as u8; 4000]);
        assert!(db.get(format!("key {n:06}").as_bytes()).unwrap().is_some());
    }
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_usable() {
    let sim = SimEnv::new(3);
    sim.set_open_max(Some(OPEN_MAX));
    made(&sim);
    let (db, logs) = open(&sim.env(), DIR);
    assert!(logs.verify().damages.is_empty());
    assert!(db.verify().unwrap().errors.is_empty());
    db.checkpoint("/copy").unwrap();
    check((db, logs));
    check(open(&sim.env(), "/copy"));
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_repaired() {
    let sim = SimEnv::new(4);
    made(&sim);
    for lost in [None, Some("MANIFEST")] {
        let sim = sim.crash(CrashKind::ProcessKill, 1);
        let env = sim.env();
        for entry in env.fs.list(Path::new(DIR)).unwrap() {
            if lost.is_some_and(|lost| entry.name.starts_with(lost)) {
                env.fs.remove(&Path::new(DIR).join(&entry.name)).unwrap();
            }
        }
        sim.set_open_max(Some(OPEN_MAX));
        let mut secondary = SecondaryLogRepair::new(&logs()).unwrap();
        let options = RepairOptions { options: keys(), dry_run: false, ..Default::default() };
        let (from, into) = ((&env, Path::new(DIR)), (&env, Path::new("/new")));
        let report = repair::repair_with_records(from, into, &options, &mut secondary).unwrap();
        assert!(report.lost.is_empty(), "{lost:?}: {report:?}");
        let report = secondary.report().unwrap();
        assert_eq!(report.logs.iter().map(|log| log.records).sum::<u64>(), ROUNDS, "{lost:?}: {report:?}");
        assert_eq!(sim.open_now(), 0);
        check(open(&env, "/new"));
    }
}
