//! Tests of compactions that have not read their inputs yet.

use super::*;
use crate::work::jobs::next_job;
use crate::{Db, FamilyOptions, Options};
use base::sync::lock;
use io::Rng;
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use store::run::{Work, WorkerRole};

/// Tables are long enough for a compaction of several steps.
fn options() -> Options {
    let family = FamilyOptions { min_blob_size: 200, ..FamilyOptions::default() }.expert(|expert| {
        expert.file_bytes = 1 << 20;
        expert.level_base_bytes = 1 << 20;
        expert.vsst_bytes = 1 << 20;
    });
    Options { memtable_bytes: 2 << 20, memory_bytes: 16 << 20, family, ..Options::default() }
}

fn run(jobs: &Arc<Jobs>, mut job: Box<dyn Job>) {
    loop {
        match job.step() {
            Ok(Progress::Done) => return,
            Ok(_) => {}
            Err(e) => {
                jobs.failed(e, &job.inputs());
                return job.abandon();
            }
        }
    }
}

/// Returns whether all names of the family are held, including future ones.
fn is_held(db: &Db) -> bool {
    db.engine().jobs.files.pins.is_pinned(db.default_column_family().id(), version::BlobId::MAX)
}

/// Writes a store until a compaction begins that must read its inputs; returns that job.
fn looking(sim: &SimEnv) -> (Db, Box<dyn Job>) {
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    let mut rng = Rng::new(3);
    for i in 0..200_000u64 {
        db.put(format!("key{:05}", rng.below(20_000)).as_bytes(), &[i as u8; 220]).unwrap();
        if i % 100 != 0 {
            continue;
        }
        let jobs = &db.engine().jobs;
        while let Some(job) = next_job(jobs, WorkerRole::AllButLog, JobClass::Idle) {
            if is_held(&db) && job.inputs().len() > 1 {
                return (db, job);
            }
            run(jobs, job);
        }
    }
    panic!("nothing to compact");
}

/// A compaction holds all names of its family until it knows its own, and none after its end,
/// however it ends.
#[test]
fn a_compaction_pins_its_whole_family_until_inputs_are_known() {
    for (seed, ends) in (1..).zip(["dropped", "read", "merged"]) {
        let sim = SimEnv::new(seed);
        let (db, mut job) = looking(&sim);
        let jobs = db.engine().jobs.clone();
        match ends {
            "dropped" => {}
            _ => assert!(matches!(job.step(), Ok(Progress::More))),
        }
        assert_eq!(is_held(&db), ends == "dropped", "names are pinned when they are known");
        assert!(!jobs.files.pins.is_empty() && db.live_files().pinned > 0);
        if ends == "merged" {
            run(&jobs, job);
        } else {
            job.abandon();
            drop(job);
        }
        assert!(jobs.files.pins.is_empty(), "{ends}");
        assert!(lock(&jobs.in_progress).of(db.default_column_family().id()).is_empty(), "{ends}");
        while db.run_background_step() {}
        let errors = db.verify().unwrap().errors;
        assert!(errors.is_empty(), "{ends}: {errors:?}");
        db.close().unwrap();
    }
}

/// An input with an unreadable list is set aside as damaged, and the store continues.
#[test]
fn an_input_with_an_unreadable_reference_list_is_quarantined() {
    let sim = SimEnv::new(9);
    let (db, mut job) = looking(&sim);
    let jobs = db.engine().jobs.clone();
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]).path("ksst"));
    let e = loop {
        match job.step() {
            Ok(Progress::More) => {}
            Ok(_) => panic!("a job that did not read its inputs"),
            Err(e) => break e,
        }
    };
    sim.clear_faults();
    assert!(e.kind() == base::ErrorKind::Io && e.file().is_some(), "{e}");
    jobs.failed(e, &job.inputs());
    job.abandon();
    drop(job);
    assert!(jobs.files.pins.is_empty());
    assert_eq!(db.damaged_files().len(), 1);
    while db.run_background_step() {}
    db.put(b"key00001", b"new").unwrap();
    assert_eq!(db.get(b"key00001").unwrap().as_deref(), Some(&b"new"[..]));
    db.close().unwrap();
}
