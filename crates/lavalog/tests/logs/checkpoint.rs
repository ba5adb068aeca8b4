use crate::damage::DIR;
use crate::model::{Driver, Model, contents, options, seen};
use base::ErrorKind;
use io::Access;
use io::Rng;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavalog::{Durability, LogStore};
use std::path::{Path, PathBuf};
use store::Store;
use store::commit::{Aging, Lane, LogTerms, Loggers, TenantId};
use store::manifest::Engines;
use store::open::StoreTerms;

fn open(sim: &SimEnv, dir: &Path) -> LogStore {
    LogStore::open(&sim.env(), dir, &options()).unwrap()
}

fn is_sound(store: &LogStore) -> bool {
    let report = store.verify();
    let told: Vec<String> = report.damages.iter().map(|damage| damage.error.to_string()).collect();
    assert!(told.is_empty(), "{told:?}");
    true
}

/// Copies of a running store continue independently, while the store reuses and removes the files
/// that it drops.
#[test]
fn a_checkpoint_is_consistent_and_independent() {
    let mut shared = 0;
    for seed in 0..12 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let store = open(&sim, Path::new(DIR));
        let mut copies: Vec<(PathBuf, Model)> = Vec::new();
        for n in 0..400 {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 80 == 79 {
                let dir = PathBuf::from(format!("/copy-{n}"));
                store.checkpoint(&dir).unwrap();
                copies.push((dir, seen(&driver.model)));
            }
            if n % 50 == 49 && driver.rng.one_in(2) {
                store.wait_idle().unwrap();
            }
        }
        store.wait_idle().unwrap();
        assert!(is_sound(&store));
        let ids: Vec<[u8; 16]> = copies
            .iter()
            .map(|(dir, model)| {
                let copy = open(&sim, dir);
                assert_eq!(contents(&copy), *model, "seed {seed}, {}", dir.display());
                assert!(is_sound(&copy));
                let mut driver = Driver::new(seed + 1);
                driver.model = driver_model(&copy);
                for _ in 0..150 {
                    driver.one(&copy, Durability::Durable).unwrap();
                }
                copy.wait_idle().unwrap();
                assert_eq!(contents(&copy), seen(&driver.model));
                // A copy of a copy has groups of two stores.
                let again = dir.with_extension("again");
                copy.checkpoint(&again).unwrap();
                assert_eq!(contents(&open(&sim, &again)), seen(&driver.model));
                let id = copy.store_id();
                copy.close().unwrap();
                id
            })
            .collect();
        assert!(!ids.contains(&store.store_id()) && (1..ids.len()).all(|i| !ids[i..].contains(&ids[i - 1])));
        // The store and the copies do not affect each other.
        for (dir, _) in &copies {
            let copy = open(&sim, dir);
            assert!(is_sound(&copy));
        }
        assert_eq!(contents(&store), seen(&driver.model));
        assert!(is_sound(&store));
        shared += u64::from(store.statistics().sealed_groups > 0);
    }
    assert!(shared > 6);
}

/// On another file system, or when a file allows no further link, files are copied instead: from
/// the nth link on, or a single file. The copy is the same, outlives every file of the original
/// store, and can be copied itself.
#[test]
fn files_are_copied_if_they_cannot_be_linked() {
    let mut copied = 0;
    for seed in 0..10 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let store = open(&sim, Path::new(DIR));
        for n in 0..200 {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 40 == 39 {
                store.wait_idle().unwrap();
            }
        }
        let plan = FaultPlan::nth(seed % 5, FaultEffect::Unsupported).kinds(&[OpKind::Link]);
        let all = seed < 5;
        sim.inject(if all { plan.sticky() } else { plan });
        let before = sim.faults_fired();
        store.checkpoint(Path::new("/copy")).unwrap();
        copied += sim.faults_fired() - before;
        let model = seen(&driver.model);
        driver.one(&store, Durability::Buffered).unwrap();
        store.wait_idle().unwrap();
        store.close().unwrap();
        assert!(is_sound(&open(&sim, Path::new(DIR))));
        // Linked or copied, nothing of it depends on the original store.
        let of_the_store = sim.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(DIR));
        of_the_store.for_each(|path| sim.erase(&path).unwrap());
        let copy = open(&sim.crash(CrashKind::PowerLoss, seed), Path::new("/copy"));
        assert_eq!(contents(&copy), model, "seed {seed}");
        assert!(is_sound(&copy));
        let mut driver = Driver::new(seed + 1);
        driver.model = driver_model(&copy);
        for _ in 0..100 {
            driver.one(&copy, Durability::Durable).unwrap();
        }
        copy.wait_idle().unwrap();
        copy.checkpoint(Path::new("/copy-of-the-copy")).unwrap();
        assert_eq!(contents(&copy), seen(&driver.model));
    }
    assert!(copied > 20, "only {copied} files were copied");
}

/// Completes a model with state that only the store knows.
fn driver_model(store: &LogStore) -> Model {
    let mut model = contents(store);
    for (name, log) in &mut model {
        let own = store.open_log(name).unwrap();
        log.trimmed_below = (0..5000).find(|lsn| own.read(*lsn).is_ok()).unwrap_or_default();
    }
    model
}

/// The store dies at any operation of a checkpoint. The new directory then has a complete store, or
/// is refused as unfinished. Another checkpoint can be made there.
#[test]
fn an_interrupted_checkpoint_is_complete_or_refused() {
    let (mut cut_off, mut whole) = (0, 0);
    for seed in 0..6 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let store = open(&sim, Path::new(DIR));
        for n in 0..150 {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 40 == 39 {
                store.wait_idle().unwrap();
            }
        }
        let before = sim.op_count();
        store.checkpoint(Path::new("/copy")).unwrap();
        let after = sim.op_count();
        let (record, model, mut rng) = (sim.record(), seen(&driver.model), Rng::new(seed));
        let ops = record.mutations();
        for op in ops.into_iter().filter(|op| (before..=after).contains(op)) {
            let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let left = record.crash_at(op, kind, seed);
            let env = left.env();
            if !env.fs.exists(Path::new("/copy")).unwrap() {
                continue;
            }
            match env.fs.exists(Path::new("/copy/CURRENT")).unwrap() {
                true => {
                    assert_eq!(
                        contents(&open(&left, Path::new("/copy"))),
                        model,
                        "seed {seed}, operation {op}"
                    );
                    whole += 1;
                }
                false => {
                    let marked = env.fs.exists(Path::new("/copy/UNFINISHED")).unwrap();
                    let refused = LogStore::open(&env, Path::new("/copy"), &options()).map(drop);
                    if marked {
                        let e = refused.unwrap_err();
                        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
                        assert!(e.to_string().contains("was interrupted"), "{e}");
                    } else {
                        assert!(
                            env.fs
                                .list(Path::new("/copy"))
                                .unwrap()
                                .iter()
                                .all(|f| f.name == "LOCK" || refused.is_ok())
                        );
                        continue;
                    }
                    cut_off += 1;
                }
            }
            // The original store is intact, and another copy can be made if there is none.
            let store = open(&left, Path::new(DIR));
            let is_there = env.fs.exists(Path::new("/copy/CURRENT")).unwrap();
            let now = contents(&store);
            if kind == CrashKind::ProcessKill {
                assert_eq!(now, model);
            }
            match store.checkpoint(Path::new("/copy")) {
                Err(e) => assert!(is_there && e.kind() == ErrorKind::AlreadyExists, "{e}"),
                Ok(()) => assert_eq!(contents(&open(&left, Path::new("/copy"))), now),
            }
        }
    }
    assert!(cut_off > 60 && whole > 6, "{cut_off} {whole}");
}

/// All writes before the call, durable or not, are durable in the copy when the call returns.
#[test]
fn a_finished_checkpoint_survives_power_loss() {
    for seed in 0..8 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let store = open(&sim, Path::new(DIR));
        for _ in 0..120 {
            driver.one(&store, Durability::Buffered).unwrap();
        }
        store.checkpoint(Path::new("/copy")).unwrap();
        let left = sim.crash(CrashKind::PowerLoss, seed);
        assert_eq!(contents(&open(&left, Path::new("/copy"))), seen(&driver.model), "seed {seed}");
    }
}

#[test]
fn checkpoints_of_damaged_records_are_refused() {
    let sim = SimEnv::new(5);
    let store = open(&sim, Path::new(DIR));
    let log = store.log("a").unwrap();
    log.append(1, &[3; 300_000], Durability::Durable).unwrap();
    let e = store.checkpoint(Path::new(DIR)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AlreadyExists, "{e}");
    // Damage a record that the copy has to read.
    let file = sim.env().fs.list(Path::new(DIR)).unwrap().into_iter().filter(|f| f.name.ends_with(".log"));
    for file in file {
        let path = io::fs::join(Path::new(DIR), &file.name);
        if sim.read_file(&path).unwrap().windows(64).any(|bytes| bytes == [3; 64]) {
            sim.flip_bit(&path, 100_000, 1).unwrap();
        }
    }
    let e = store.checkpoint(Path::new("/copy")).unwrap_err();
    assert!(e.is_corruption() && e.file().is_some() && e.offset().is_some(), "{e}");
    assert!(e.to_string().contains("cannot be copied"), "{e}");
    let left = sim.env().fs.list(Path::new("/copy")).unwrap_or_default();
    assert!(left.iter().all(|file| file.name == store::names::LOCK), "its files are removed: {left:?}");
}

/// Batches of an engine that is not open would be lost with their groups.
#[test]
fn a_lane_with_batches_of_another_engine_is_not_copied() {
    let sim = SimEnv::new(6);
    open(&sim, Path::new(DIR)).close().unwrap();
    let terms = LogTerms {
        access: Access::Direct,
        group_bytes: 256 << 10,
        free_groups_max: 1,
        loggers: Loggers::default(),
        retained_open_max: 8,
        aging: Aging::default(),
    };
    let terms = StoreTerms { log: terms, records: Some(terms) };
    let store = Store::open_lanes(&sim.env(), Path::new(DIR), terms, &Engines::default(), &mut |_, _| Ok(()));
    let store = store.unwrap();
    let lane = store.lane(Lane::LOG).unwrap();
    lane.put(TenantId(7), &[b"of a stranger"], (1, 1), Durability::Durable).unwrap();
    store.close().unwrap();
    drop(store);
    let e = open(&sim, Path::new(DIR)).checkpoint(Path::new("/copy")).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Unsupported && e.message().contains("a batch of the engine with the number 7"),
        "{e}"
    );
}
