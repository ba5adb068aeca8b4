use crate::damage::{DIR, files, made};
use crate::model::{Driver, contents, options, seen};
use io::Access;
use io::sim::threads::Plan;
use io::sim::{CrashKind, SimEnv};
use lavalog::verify::LostRecords;
use lavalog::{Durability, LogStore, Options, VerifyReport};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Memory must not hide damage of the device.
fn cold_options() -> Options {
    Options { recent_bytes: 0, ..options() }
}

fn open(sim: &SimEnv) -> LogStore {
    LogStore::open(&sim.env(), Path::new(DIR), &cold_options()).unwrap()
}

fn errors(report: &VerifyReport) -> Vec<String> {
    report.damages.iter().map(|damage| format!("{} {:?}", damage.error, damage.lost)).collect()
}

/// Returns the unreadable records, read one by one.
fn unreadable(store: &LogStore) -> BTreeSet<(String, u64)> {
    let mut out = BTreeSet::new();
    for name in store.list_logs("", usize::MAX) {
        let log = store.open_log(&name).unwrap();
        for lsn in 1..=log.last_lsn().unwrap().unwrap_or(0) {
            if log.read(lsn).is_err_and(|e| e.is_corruption()) {
                out.insert((name.clone(), lsn));
            }
        }
    }
    out
}

fn lost(report: &VerifyReport) -> BTreeSet<(String, u64)> {
    let one = |lost: &LostRecords| {
        let log = lost.log.clone();
        (lost.first.max(1)..=lost.last).map(move |lsn| (log.clone(), lsn)).collect::<Vec<_>>()
    };
    report.damages.iter().flat_map(|damage| &damage.lost).flat_map(one).collect()
}

fn assert_same(lost: &BTreeSet<(String, u64)>, unreadable: &BTreeSet<(String, u64)>, what: &str) {
    let differ: Vec<_> = lost.symmetric_difference(unreadable).take(5).collect();
    let (lost, unreadable) = (lost.len(), unreadable.len());
    assert!(
        differ.is_empty(),
        "{differ:?} of {lost} that are said to be lost and {unreadable} that are: {what}"
    );
}

#[test]
fn verify_finds_no_damage_in_a_running_store() {
    for seed in 0..15 {
        let mut sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        for life in 0..3 {
            let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
            for n in 0..300 {
                driver.one(&store, Durability::Buffered).unwrap();
                if n % 60 == 59 {
                    let report = store.verify();
                    assert!(report.is_sound(), "seed {seed}, life {life}: {:?}", errors(&report));
                    assert!(report.ledger_checked || n % 50 != 0, "nothing went on meanwhile");
                }
            }
            store.wait_idle().unwrap();
            let (report, model) = (store.verify(), contents(&store));
            assert!(report.is_sound() && report.ledger_checked, "seed {seed}: {:?}", errors(&report));
            assert_eq!(model, seen(&driver.model));
            let alive: usize = model.values().map(|log| log.records.len()).sum();
            assert!(
                report.checked.records.count >= alive as u64 || alive < 50,
                "{:?} {alive}",
                report.checked
            );
            let left = sim.crash(CrashKind::ProcessKill, seed * 10 + life);
            drop(store);
            sim = left;
        }
    }
}

/// Flips bits all over every file. Verification finds each one that matters, and lists exactly the
/// unreadable records.
#[test]
fn verify_finds_bit_flips_and_names_lost_records() {
    let sim = made(11);
    let (mut found, mut with_losses) = (0, 0);
    let names: Vec<PathBuf> =
        ["log", ".e1-1", ".e1-2", ".e1-3"].iter().flat_map(|kind| files(&sim, kind)).collect();
    for (nth, path) in names.iter().enumerate() {
        let len = sim.env().fs.open(path, Access::Buffered).unwrap().len().unwrap();
        for at in [
            0,
            13,
            700,
            4096 + 77,
            len / 3,
            len / 2,
            len * 3 / 4,
            len.saturating_sub(200),
            len.saturating_sub(20),
        ] {
            let sim = made(11);
            sim.flip_bit(path, at.min(len - 1), (nth % 8) as u32).unwrap();
            let Ok(store) = LogStore::open(&sim.env(), Path::new(DIR), &cold_options()) else { continue };
            let report = store.verify();
            let names_it = |damage: &lavalog::verify::Damage| damage.error.file() == Some(path);
            let what = || format!("{} at {at}: {:?}", path.display(), errors(&report));
            if !report.is_sound() {
                found += 1;
                assert!(report.damages.iter().any(names_it), "{}", what());
                assert!(report.damages.iter().all(|damage| damage.error.is_corruption()), "{}", what());
            }
            assert_same(&lost(&report), &unreadable(&store), &what());
            with_losses += u64::from(!lost(&report).is_empty());
            // In files without unused bytes, every flipped bit must be found.
            let is_dense = path.extension().is_none_or(|kind| kind != "log");
            assert!(!is_dense || !report.is_sound(), "{}", what());
        }
    }
    assert!(found > 30 && with_losses > 15, "{found} {with_losses}");
}

#[test]
fn verify_names_missing_and_truncated_files_and_their_records() {
    let names: Vec<PathBuf> = {
        let sim = made(12);
        [".log", ".e1-1", ".e1-2", ".e1-3"].iter().flat_map(|kind| files(&sim, kind)).collect()
    };
    let mut with_losses = 0;
    for path in &names {
        for cut in [None, Some(0), Some(3)] {
            let sim = made(12);
            // Opened first, so that files needed only by the open can be missing.
            let store = open(&sim);
            let len = sim.env().fs.open(path, Access::Buffered).map(|file| file.len().unwrap()).unwrap_or(0);
            match cut {
                None => drop(sim.env().fs.remove(path)),
                Some(part) => sim.set_file_len(path, len / 4 * part).unwrap(),
            }
            let report = store.verify();
            if sim.env().fs.exists(path).unwrap() || !report.is_sound() {
                let what = format!("{} {cut:?}: {:?}", path.display(), errors(&report));
                assert_same(&lost(&report), &unreadable(&store), &what);
            }
            with_losses += u64::from(!lost(&report).is_empty());
        }
    }
    assert!(with_losses > 5, "{with_losses}");
}

#[test]
fn verify_reports_unlisted_files_and_a_damaged_manifest() {
    let sim = made(13);
    let store = open(&sim);
    for name in ["000000000900.log", "000000000901.e1-3"] {
        let path = io::fs::join(Path::new(DIR), name);
        drop(sim.env().fs.create(&path, &io::CreateOptions::default()).unwrap());
    }
    let report = store.verify();
    let told: Vec<String> = errors(&report);
    assert!(told.len() == 2 && told[0].contains("900.log") && told[1].contains("901.e1-3"), "{told:?}");
    let manifest = sim.env().fs.list(Path::new(DIR)).unwrap();
    let manifest = manifest.into_iter().find(|entry| entry.name.starts_with("MANIFEST")).unwrap();
    sim.flip_bit(io::fs::join(Path::new(DIR), &manifest.name), 200, 1).unwrap();
    let report = store.verify();
    assert!(errors(&report).iter().any(|e| e.contains("MANIFEST")), "{:?}", errors(&report));
    // The manifest was rewritten.
    assert!(!errors(&store.verify()).iter().any(|e| e.contains("MANIFEST")));
}

/// Each record is counted once, in the group or by the index file that the group gets meanwhile.
#[test]
fn verify_counts_records_sealed_meanwhile_once() {
    for seed in 0..40 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan { patience_ns: 200_000_000, ..Plan::new(seed) }, move |env| {
            let store = LogStore::open(env, Path::new(DIR), &cold_options()).unwrap();
            let log = store.log("a").unwrap();
            for lsn in 1..=12 {
                log.append(lsn, &[lsn as u8; 500], Durability::Durable).unwrap();
                if lsn % 3 == 0 {
                    store.seal().unwrap();
                    let report = store.verify();
                    assert!(report.is_sound(), "{report:?}");
                    assert_eq!(report.checked.records.count, lsn, "{report:?}");
                }
            }
        });
        ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    }
}
