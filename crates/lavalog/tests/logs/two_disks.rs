//! A store of logs with its lane on the fast tier, including the sealed groups.

use crate::damage::DIR;
use crate::model::{Driver, contents, options, seen};
use base::ErrorKind;
use io::Env;
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavalog::{Durability, LogStore, Options, RepairOptions, SecondaryLogs};
use std::path::{Path, PathBuf};

const SPEED: &str = "/speed";

fn on_two() -> Options {
    Options { fast_tier: Some(PathBuf::from(SPEED)), ..options() }
}

fn open(sim: &SimEnv) -> LogStore {
    LogStore::open(&sim.env(), Path::new(DIR), &on_two()).unwrap()
}

fn both(sim: &SimEnv) -> Env {
    store::fast_tier::joined(&sim.env(), Path::new(DIR), &sim.env(), Path::new(SPEED))
}

fn groups(sim: &SimEnv, dir: &str) -> usize {
    let listed = sim.env().fs.list(Path::new(dir)).unwrap();
    listed.iter().filter(|entry| entry.name.ends_with(".log")).count()
}

fn is_sound(store: &LogStore) -> bool {
    let told: Vec<String> = store.verify().damages.iter().map(|damage| damage.error.to_string()).collect();
    assert!(told.is_empty(), "{told:?}");
    true
}

#[test]
fn logs_move_to_the_fast_tier_and_back_without_loss() {
    for seed in 0..6 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let mut step = |store: &LogStore, count| {
            (0..count).for_each(|_| driver.one(store, Durability::Durable).unwrap());
            store.wait_idle().unwrap();
            assert!(is_sound(store));
            seen(&driver.model)
        };
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        step(&store, 200);
        store.close().unwrap();
        let store = open(&sim);
        assert_eq!(groups(&sim, DIR), 0);
        assert!(groups(&sim, SPEED) > 2, "groups that are storage are among them");
        let model = step(&store, 200);
        assert_eq!(groups(&sim, DIR), 0);
        let reader = LogStore::open_read_only(&sim.env(), Path::new(DIR), &on_two()).unwrap();
        assert_eq!(contents(&reader), model);
        drop(reader);
        store.checkpoint(Path::new("/copy")).unwrap();
        let copy = LogStore::open(&sim.env(), Path::new("/copy"), &options()).unwrap();
        assert_eq!(contents(&copy), model);
        assert!(is_sound(&copy));
        copy.close().unwrap();
        let model = step(&store, 100);
        store.close().unwrap();
        let e = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        store::fast_tier::detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap();
        assert_eq!(groups(&sim, SPEED), 0);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!(contents(&store), model);
        step(&store, 50);
    }
}

/// A record that is only on a missing fast tier is reported as lost, and no other place is read for
/// it.
#[test]
fn records_on_a_missing_fast_tier_are_reported_lost() {
    let sim = SimEnv::new(7);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &Options { recent_bytes: 0, ..on_two() }).unwrap();
    let log = store.create_log("a").unwrap();
    (1..=200u8).for_each(|n| log.append(n.into(), &[n; 5000], Durability::Durable).unwrap());
    store.wait_idle().unwrap();
    sim.inject(
        FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read, OpKind::OpenInPlace]).path(SPEED).sticky(),
    );
    let e = log.read(1).unwrap_err();
    assert!(e.to_string().contains(SPEED), "{e}");
    sim.clear_faults();
    assert_eq!(log.read(1).unwrap().as_deref(), Some(&[1; 5000][..]));
    drop(log);
    store.close().unwrap();
    let repair = |without_fast_tier| {
        let options = RepairOptions {
            options: options(),
            without_fast_tier,
            dry_run: true,
            ..RepairOptions::default()
        };
        LogStore::repair(&sim.env(), Path::new(DIR), &sim.env(), Path::new("/new"), &options)
    };
    assert_eq!(repair(false).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let report = repair(true).unwrap();
    assert!(report.losses() > 0, "{report:?}");
}

#[test]
fn a_log_engine_beside_keys_has_no_fast_tier_of_its_own() {
    let e = SecondaryLogs::new(&on_two()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("no fast tier of their own"), "{e}");
}
