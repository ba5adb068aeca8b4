//! Compactions that have not looked at their inputs yet, and what becomes of them.

use super::*;
use crate::work::jobs::next_job;
use crate::{Db, FamilyOptions, Options};
use base::sync::lock;
use io::Rng;
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use store::run::{Duty, Work};

fn options() -> Options {
    let family = FamilyOptions {
        file_bytes: 8 << 10,
        level_base_bytes: 16 << 10,
        vsst_bytes: 32 << 10,
        min_blob_size: 200,
        ..FamilyOptions::default()
    };
    Options { memtable_bytes: 32 << 10, memory_bytes: 512 << 10, family, ..Options::default() }
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

/// A store that is written until a compaction begins that has to look at its inputs, and that job.
fn looking(sim: &SimEnv) -> (Db, Box<dyn Job>) {
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    let mut rng = Rng::new(3);
    for i in 0..20_000u64 {
        db.put(format!("key{:05}", rng.below(500)).as_bytes(), &vec![i as u8; 300]).unwrap();
        let jobs = &db.engine().jobs;
        while let Some(job) = next_job(jobs, Duty::AllButLog, JobClass::Idle) {
            let names = jobs.files.pins.len();
            let is_held = names == 0 && !jobs.files.pins.is_empty();
            if is_held && job.inputs().len() > 1 {
                return (db, job);
            }
            run(jobs, job);
        }
    }
    panic!("nothing to compact");
}

/// All names of the family are held until it knows which it needs; nothing is in its way afterwards, however it ends.
#[test]
fn until_it_knows_its_names_a_compaction_holds_all_of_its_family() {
    for (seed, ends) in (1..).zip(["dropped", "read", "merged"]) {
        let sim = SimEnv::new(seed);
        let (db, mut job) = looking(&sim);
        let jobs = db.engine().jobs.clone();
        let inputs = job.inputs().len();
        match ends {
            "dropped" => {}
            _ => (0..=inputs).for_each(|_| assert!(matches!(job.step(), Ok(Progress::More)))),
        }
        let names = jobs.files.pins.len();
        assert_eq!(names > 0, ends != "dropped", "names are pinned when they are known");
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

/// An input whose list cannot be read is set aside as for any other damage, and the store goes on.
#[test]
fn an_input_whose_list_cannot_be_read_is_set_aside() {
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
