//! Tests of compactions in pieces, with manually stepped jobs.

use super::*;
use crate::work::jobs::next_job;
use crate::{Db, FamilyOptions, Options, ReadOptions};
use base::HashSet;
use io::Rng;
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use std::collections::BTreeMap;
use std::path::Path;
use store::run::{Work, WorkerRole};

fn options(rng: &mut Rng) -> Options {
    let vlsm = lsm::policy::VlsmOptions { table_bytes: 8 << 10, level_1_tables: 4, ..Default::default() };
    let policies = [lsm::policy::PolicyChoice::default(), lsm::policy::PolicyChoice::vlsm(&vlsm)];
    let family = FamilyOptions {
        min_blob_size: [0, 150][rng.below(2) as usize],
        policy: policies[rng.below(2) as usize].clone(),
        ..FamilyOptions::default()
    }
    .expert(|expert| {
        expert.file_bytes = 8 << 10;
        expert.level_base_bytes = 32 << 10;
        expert.vsst_bytes = 64 << 10;
    });
    Options {
        memtable_bytes: 64 << 10,
        memory_bytes: 512 << 10,
        cache_bytes: 64 << 10,
        background_threads: 4,
        family,
        ..Options::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 128 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(db: &Db, options: ReadOptions) -> Model {
    db.iter(options).unwrap().entries().map(|entry| entry.unwrap()).collect()
}

/// Returns the jobs of the next compaction in pieces, helpers included. Other jobs run to their
/// end.
fn jobs_of_pieces(jobs: &Arc<Jobs>) -> Vec<Box<dyn Job>> {
    let mut all: Vec<Box<dyn Job>> =
        next_job(jobs, WorkerRole::AllButLog, JobClass::Idle).into_iter().collect();
    let wants = |set: &InProgressSet| set.to_help(JobClass::L0).or(set.to_help(JobClass::Compaction));
    let knows = wants(&lock(&jobs.in_progress)).is_some();
    if !all.is_empty() && !knows {
        // The first step may read the references of its inputs.
        step(jobs, &mut all, 0);
    }
    loop {
        let mut set = lock(&jobs.in_progress);
        let number = wants(&set);
        let helper = number.and_then(|number| help(&mut set, number));
        drop(set);
        match helper {
            Some(helper) => all.push(helper()),
            None if all.len() > 1 => return all,
            None => break,
        }
    }
    while !all.is_empty() {
        step(jobs, &mut all, 0);
    }
    all
}

/// Steps one of the jobs. Returns whether it failed.
fn step(jobs: &Arc<Jobs>, all: &mut Vec<Box<dyn Job>>, at: usize) -> bool {
    match all[at].step() {
        Ok(Progress::Done) => drop(all.swap_remove(at)),
        Ok(_) => {}
        Err(e) => {
            let mut job = all.swap_remove(at);
            jobs.failed(e, &job.inputs());
            job.abandon();
            return true;
        }
    }
    false
}

/// The injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A job is abandoned.
    Abandoned,
    /// A table does not fit.
    NoSpace,
}

struct Seen {
    installed: u64,
    failed: u64,
    /// Pieces beyond one per compaction.
    pieces: u64,
}

fn run(seed: u64, seen: &mut Seen) {
    let mut rng = Rng::new(seed);
    let sim = SimEnv::new(seed);
    let db = Db::open_in(sim.env(), "/store", options(&mut rng)).unwrap();
    let jobs = &db.engine().jobs;
    let mut model = Model::new();
    let mut held: Option<(crate::Snapshot, Model)> = None;
    for i in 0..5000u64 {
        let n = rng.below(1500);
        let value = vec![i as u8; 100 + rng.below(100) as usize];
        db.put(&key(n), &value).unwrap();
        model.insert(key(n), value);
        if i % 97 == 0 {
            let (low, high) = (key(n), key(n + rng.below(300)));
            db.delete_range(&low, &high).unwrap();
            model.retain(|key, _| *key < low || high <= *key);
        }
        if i % 400 == 0 {
            held = rng.one_in(2).then(|| (db.snapshot(), model.clone()));
        }
        if i % 50 == 0 {
            let all = jobs_of_pieces(jobs);
            if !all.is_empty() {
                together(&mut rng, &sim, &db, all, seen);
            }
        }
    }
    while db.run_background_step() {}
    let there = contents(&db, ReadOptions::default());
    for (k, v) in &there {
        if model.get(k) != Some(v) {
            eprintln!("there {:?} {:?}", String::from_utf8_lossy(k), model.get(k).map(|m| m[0]));
        }
    }
    for (k, v) in &model {
        if there.get(k) != Some(v) {
            eprintln!("lost {:?} {:?}", String::from_utf8_lossy(k), v[0]);
        }
    }
    eprintln!("{}", db.describe());
    assert!(contents(&db, ReadOptions::default()) == model, "seed {seed}");
    if let Some((snapshot, then)) = held {
        let options = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
        assert!(contents(&db, options) == then, "seed {seed}: of the snapshot");
    }
    let errors = db.verify().unwrap().errors;
    assert!(errors.is_empty(), "seed {seed}: {errors:?}");
    let stats = db.stats();
    assert!(stats.subcompactions >= stats.compactions - stats.compaction_moves);
    seen.pieces += stats.subcompactions + stats.compaction_moves - stats.compactions;
    db.close().unwrap();
}

/// Runs the jobs of one compaction to their end, in random order.
fn together(rng: &mut Rng, sim: &SimEnv, db: &Db, mut all: Vec<Box<dyn Job>>, seen: &mut Seen) {
    let jobs = &db.engine().jobs;
    let fault = [Fault::None, Fault::None, Fault::Abandoned, Fault::NoSpace][rng.below(4) as usize];
    if fault == Fault::NoSpace {
        let creates = [OpKind::Create, OpKind::Append];
        sim.inject(FaultPlan::nth(rng.below(12), FaultEffect::NoSpace).kinds(&creates).path("sst"));
    }
    let tables = || db.live_files().files;
    let edit = || jobs.files.manifest.durable_edit();
    let (before, tables_before, edit_before) = (db.stats().compactions, tables(), edit());
    let helpers = lock(&jobs.in_progress).running.helpers;
    assert_eq!(helpers + 1, all.len());
    let mut gave_up = false;
    while !all.is_empty() {
        let at = rng.below(all.len() as u64) as usize;
        if fault == Fault::Abandoned && rng.one_in(8) {
            // A job abandoned after the installation changes nothing.
            gave_up |= db.stats().compactions == before;
            all.swap_remove(at).abandon();
            continue;
        }
        gave_up |= step(jobs, &mut all, at);
    }
    sim.clear_faults();
    jobs.context.health.space_found();
    let installed = db.stats().compactions - before;
    assert_eq!(installed + u64::from(gave_up), 1, "installed once, or not at all: {fault:?}");
    assert_eq!(edit() - edit_before, installed, "in one edit");
    assert!(installed == 1 || tables() == tables_before, "{fault:?}");
    let set = lock(&jobs.in_progress);
    assert!(set.of(db.default_column_family().id()).is_empty() && !set.running.is_any());
    assert!(set.running.helpers == 0 && set.to_help(JobClass::L0).is_none());
    drop(set);
    assert!(jobs.files.pins.is_empty());
    seen.installed += installed;
    seen.failed += u64::from(gave_up);
    // Another job removes obsolete inputs; no other file is left behind.
    let listed = db.engine().jobs.context.env.fs.list(Path::new("/store")).unwrap();
    let there: HashSet<String> =
        listed.into_iter().map(|entry| entry.name).filter(|name| name.ends_with("sst")).collect();
    let known: HashSet<String> = tables().into_iter().chain(tables_before).collect();
    assert!(there.is_subset(&known), "{fault:?}: files that are nobody's: {:?}", there.difference(&known));
}

#[test]
fn subcompactions_install_atomically_in_any_order() {
    let mut seen = Seen { installed: 0, failed: 0, pieces: 0 };
    (0..24).for_each(|seed| run(seed, &mut seen));
    let Seen { installed, failed, pieces } = seen;
    assert!(installed > 40 && failed > 10 && pieces > installed, "{installed} {failed} {pieces}");
}
