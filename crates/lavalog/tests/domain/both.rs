//! Both engines opened together, and one without the other.

use crate::life::{DIR, kv_options, log_options, open};
use io::sim::{CrashKind, SimEnv};
use lavakv::Db;
use lavalog::{Durability, LogStore, SecondaryLogs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns the files of the logs by name: their own, and the staged pages of their lane.
fn files_of_logs(sim: &SimEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = sim.files().into_iter().map(|(path, _)| path);
    let is_of_logs = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.contains(".e1-") || name.ends_with("STAGING-1")
    };
    paths.filter(is_of_logs).map(|path| (path.clone(), sim.read_file(&path).unwrap())).collect()
}

#[test]
fn both_engines_recover_after_close_and_crash() {
    for crash in [false, true] {
        let sim = SimEnv::new(1);
        let (db, logs) = open(&sim.env()).unwrap();
        let log = logs.create_log("raft").unwrap();
        for n in 1..=200_u64 {
            db.put(format!("key {n}").as_bytes(), &n.to_le_bytes()).unwrap();
            log.append(n, &[n as u8; 3000], Durability::Durable).unwrap();
        }
        logs.seal().unwrap();
        logs.wait_idle().unwrap();
        assert!(logs.statistics().sealed_groups > 0, "its jobs run on LavaKV's threads");
        db.sync().unwrap();
        log.append(201, b"in the active group", Durability::Durable).unwrap();
        let sim = match crash {
            true => sim.crash(CrashKind::PowerLoss, 7),
            false => {
                drop(log);
                logs.close().unwrap();
                db.close().unwrap();
                sim
            }
        };
        let (db, logs) = open(&sim.env()).unwrap();
        let log = logs.open_log("raft").unwrap();
        assert_eq!(db.get(b"key 200").unwrap().unwrap().to_vec(), 200_u64.to_le_bytes());
        assert_eq!(log.read(17).unwrap().unwrap(), [17; 3000]);
        assert_eq!((log.first_lsn().unwrap(), log.last_lsn().unwrap()), (Some(1), Some(201)));
    }
}

/// The host engine reports the latencies of operations on logs, and so does the store of logs.
#[test]
fn latencies_of_both_engines_are_reported() {
    let sim = SimEnv::new(6);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    for n in 1..=10_u64 {
        log.append(n, &[7; 100], Durability::Durable).unwrap();
        drop(log.append_async(100 + n, &[7; 100]).unwrap());
    }
    log.append(11, b"buffered", Durability::Buffered).unwrap();
    (1..=5).for_each(|n| drop(log.read(n).unwrap()));
    assert_eq!(log.scan(1).filter(|record| record.is_ok()).count(), 21);
    db.put(b"k", b"v").unwrap();
    let told = logs.statistics().operations;
    let count = |name: &str| told.iter().find(|(of, _)| *of == name).unwrap().1.count();
    assert_eq!((count("record_append"), count("record_append_async")), (11, 10));
    // The last call finds no more records.
    assert_eq!((count("record_read"), count("record_scan")), (5, 22));
    assert!(count("record_log_append") >= 21 && count("record_log_sync") >= 10, "{told:?}");
    let all = db.stats().histograms;
    for (name, times) in &told {
        assert_eq!(all.operation(name), Some(times), "{name}");
    }
    assert_eq!(all.operation("put").unwrap().count(), 1);
    let metrics = db.metrics().unwrap();
    assert!(
        metrics.contains("operation_seconds_count{store=\"/db\",operation=\"record_append\"} 11"),
        "{metrics}"
    );
}

#[test]
fn opening_one_engine_alone_preserves_the_other() {
    let sim = SimEnv::new(2);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    for n in 1..=100_u64 {
        db.put(format!("key {n}").as_bytes(), &n.to_le_bytes()).unwrap();
        log.append(n, &[n as u8; 2000], Durability::Durable).unwrap();
    }
    logs.seal().unwrap();
    logs.wait_idle().unwrap();
    db.sync().unwrap();
    log.append(101, b"last", Durability::Durable).unwrap();
    let sim = sim.crash(CrashKind::PowerLoss, 3);
    // LavaKV alone.
    let before = files_of_logs(&sim);
    assert!(before.len() >= 3, "index file, checkpoint, staging: {:?}", before.keys());
    let db = Db::open_in(sim.env(), DIR, kv_options()).unwrap();
    db.put(b"alone", b"kv").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(files_of_logs(&sim), before);
    // LavaLog alone.
    let logs = LogStore::open(&sim.env(), Path::new(DIR), &log_options()).unwrap();
    let log = logs.open_log("raft").unwrap();
    assert_eq!(log.last_lsn().unwrap(), Some(101));
    log.append(102, b"alone", Durability::Durable).unwrap();
    drop(log);
    logs.close().unwrap();
    // Both again.
    let (db, logs) = open(&sim.env()).unwrap();
    assert_eq!(db.get(b"alone").unwrap().unwrap().to_vec(), b"kv");
    assert_eq!(db.get(b"key 100").unwrap().unwrap().to_vec(), 100_u64.to_le_bytes());
    let log = logs.open_log("raft").unwrap();
    assert_eq!(log.read(102).unwrap().unwrap(), b"alone");
    assert_eq!(log.scan(0).count(), 102);
}

#[test]
fn a_secondary_engine_needs_a_primary_to_open() {
    let error = SecondaryLogs::new(&log_options()).unwrap().store().unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::InvalidArgument);
    assert!(error.message().contains("the log engine has no store yet"), "{error}");
}

#[test]
fn a_close_of_the_key_value_engine_ends_the_lane_of_records_too() {
    let sim = SimEnv::new(4);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    log.append(1, b"buffered only", Durability::Buffered).unwrap();
    db.close().unwrap();
    let error = log.append(2, b"too late", Durability::Durable).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Closed);
    let sim = sim.crash(CrashKind::PowerLoss, 5);
    let (_db, logs) = open(&sim.env()).unwrap();
    assert_eq!(logs.open_log("raft").unwrap().read(1).unwrap().unwrap(), b"buffered only");
}

/// A repair by LavaKV alone would drop the logs. It is refused and names the engine, even without a
/// manifest.
#[test]
fn a_repair_that_would_drop_the_logs_is_refused_by_name() {
    for lost in ["", "CURRENT", "MANIFEST"] {
        let sim = SimEnv::new(5);
        let (db, logs) = open(&sim.env()).unwrap();
        let log = logs.create_log("raft").unwrap();
        log.append(1, b"a record", Durability::Durable).unwrap();
        logs.seal().unwrap();
        db.put(b"key", b"value").unwrap();
        db.flush().unwrap();
        logs.wait_idle().unwrap();
        drop(log);
        logs.close().unwrap();
        db.close().unwrap();
        for (path, _) in sim.files() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !lost.is_empty() && path.starts_with(DIR) && name.starts_with(lost) {
                sim.erase(&path).unwrap();
            }
        }
        let options = repair::RepairOptions {
            options: kv_options(),
            dry_run: false,
            ..repair::RepairOptions::default()
        };
        let error = repair::repair_in(&sim.env(), DIR, &sim.env(), "/repaired", &options).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Unsupported, "without {lost}: {error}");
        let named = if lost == "MANIFEST" { "engine 1" } else { "LavaLog" };
        assert!(error.message().contains(named), "without {lost}: {error}");
        assert!(!sim.env().fs.exists(Path::new("/repaired")).unwrap(), "nothing was begun");
    }
}

/// Without a manifest and without files of the engine, the pages of its lane reveal it.
#[test]
fn a_repair_that_would_drop_pages_of_logs_is_refused() {
    let sim = SimEnv::new(6);
    let (db, logs) = open(&sim.env()).unwrap();
    logs.create_log("raft").unwrap().append(1, b"a record", Durability::Durable).unwrap();
    db.put(b"key", b"value").unwrap();
    logs.close().unwrap();
    db.close().unwrap();
    for (path, _) in sim.files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.starts_with(DIR) && (name.starts_with("MANIFEST") || name.contains(".e1-")) {
            sim.erase(&path).unwrap();
        }
    }
    let options =
        repair::RepairOptions { options: kv_options(), dry_run: false, ..repair::RepairOptions::default() };
    let error = repair::repair_in(&sim.env(), DIR, &sim.env(), "/repaired", &options).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Unsupported);
    assert!(error.message().contains("repair the store together with its logs"), "{error}");
    assert!(!sim.env().fs.exists(Path::new("/repaired")).unwrap(), "nothing was begun");
}
