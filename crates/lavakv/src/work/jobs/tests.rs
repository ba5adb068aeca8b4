//! Tests of changes between two steps of a job, and of jobs whose outputs do not fit.

use super::*;
use crate::plan::collection;
use crate::plan::facts::Facts;
use crate::{Db, FamilyOptions, GcRequest, Options, SpaceLimit};
use base::{ErrorKind, HashSet};
use io::sim::SimEnv;
use version::FileMeta;

mod shares;
mod space_first;

fn options() -> Options {
    let family = FamilyOptions { min_blob_size: 500, ..FamilyOptions::default() }.expert(|expert| {
        expert.file_bytes = 16 << 10;
        expert.level_base_bytes = 32 << 10;
        expert.vsst_bytes = 64 << 10;
        expert.gc_ratio_percent = 20;
    });
    Options {
        memtable_bytes: 64 << 10,
        memory_bytes: 512 << 10,
        cache_bytes: 64 << 10,
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

/// A move picked before a checkpoint marks the table as shared must keep the mark. Without it the
/// store would treat the blocks of the hard-linked file as its own.
#[test]
fn a_moved_table_keeps_its_shared_mark() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    let jobs = &db.engine().jobs;
    let (mut copies, mut moved) = (0, 0);
    for i in 0..20_000u64 {
        db.put(&key(i), &[7; 100]).unwrap();
        if i % 200 != 0 {
            continue;
        }
        let Some(mut job) = next_job(jobs, WorkerRole::AllButLog, JobClass::Idle) else { continue };
        let moves = || db.stats().compaction_moves;
        let (before, compacts) = (moves(), matches!(job.class(), JobClass::L0 | JobClass::Compaction));
        if compacts && copies < 8 {
            copies += 1;
            db.checkpoint(format!("/copy{copies}")).unwrap();
        }
        let shared: Vec<u64> = tables(jobs).filter(|t| t.shared).map(|t| t.number).collect();
        while job.step().unwrap() != store::run::Progress::Done {}
        if moves() > before {
            let lost = tables(jobs).filter(|t| shared.contains(&t.number) && !t.shared).count();
            assert_eq!(lost, 0, "tables that a move took the mark from");
            moved += usize::from(!shared.is_empty());
        }
    }
    assert!(moved > 0, "a table was moved after a checkpoint");
}

/// A job returns all its claims at its end, also on failure. Afterwards nothing is in progress,
/// pinned or granted, and the next decision is the same.
#[test]
fn a_dropped_job_releases_its_inputs() {
    let sim = SimEnv::new(3);
    let limited = Options { space_limit: Some(SpaceLimit::Bytes(64 << 20)), ..options() };
    let db = Db::open_in(sim.env(), "/store", limited).unwrap();
    let jobs = &db.engine().jobs;
    let (mut classes, mut rng) = (HashSet::default(), io::Rng::new(3));
    for i in 0..6000u64 {
        // Random order. With a periodic order each value file would eventually be entirely dead,
        // and collections would have no live records.
        db.put(&key(rng.below(1500)), &[i as u8; 700]).unwrap();
        if i % 50 != 0 {
            continue;
        }
        let works = |jobs: &Jobs| lock(&jobs.in_progress).running.is_any();
        // A write may have started a job while it waited.
        while works(jobs) && db.run_background_step() {}
        for steps in [0, 200, 1, 200, 200, 3] {
            let Some(mut job) = next_job(jobs, WorkerRole::All, JobClass::Idle) else { break };
            classes.insert(job.class() as u8);
            assert!(works(jobs));
            let done = (0..steps).any(|_| job.step().unwrap() == store::run::Progress::Done);
            if !done {
                job.abandon();
            }
            drop(job);
            assert!(!works(jobs) && jobs.files.pins.is_empty(), "{i}");
            assert!(lock(&jobs.in_progress).of(db.default_column_family().id()).is_empty());
        }
    }
    assert!(classes.len() >= 5, "log, flush, clean-up, compactions and collections: {classes:?}");
    while db.run_background_step() {}
    db.close().unwrap();
}

fn tables(jobs: &Jobs) -> impl Iterator<Item = Arc<FileMeta>> {
    let version = jobs.tree.families.all()[0].read_state().version.clone();
    version.levels.iter().flatten().cloned().collect::<Vec<_>>().into_iter()
}

/// Returns a store under a limit with garbage in its files and no running jobs.
fn with_garbage(sim: &SimEnv) -> Db {
    let db = Db::open_in(
        sim.env(),
        "/store",
        Options { space_limit: Some(SpaceLimit::Bytes(16 << 20)), ..options() },
    )
    .unwrap();
    let pause = db.pause_gc();
    for i in 0..150u64 {
        db.put(&key(i), &[1; 2000]).unwrap();
    }
    db.flush().unwrap();
    for i in (0..150).filter(|i| i % 5 < 2) {
        db.delete(&key(i)).unwrap();
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    while db.run_background_step() {}
    drop(pause);
    db
}

/// Returns the bytes written by the first choice of a collection, and by the smallest one.
fn choices(facts: &dyn Facts) -> (u64, u64) {
    let family = &facts.families()[0];
    let options = collection::options(facts.options().expert.ablation, &family.read_state, 20);
    let mut passed_over = HashSet::default();
    let mut writes = Vec::new();
    while let Some(gc) = collection::pick_at(facts, family, &options, &passed_over) {
        passed_over.extend(gc.numbers());
        writes.push(gc.expected_write);
    }
    assert!(writes.len() <= collection::CANDIDATES_MAX, "{writes:?}");
    (writes[0], writes.into_iter().min().unwrap())
}

#[test]
fn a_collection_without_space_yields_to_a_smaller_one() {
    let sim = SimEnv::new(2);
    let db = with_garbage(&sim);
    let jobs = &db.engine().jobs;
    let mut held = Vec::new();
    {
        let set = lock(&jobs.in_progress);
        let seen = PlanSnapshot::new(jobs, &set);
        let (first, least) = choices(&seen);
        assert!(first > least + (20 << 10), "{first} {least}");
        while jobs.space.grants.would_grant(first) {
            held.extend(jobs.space.grants.grant(1));
        }
        assert!(jobs.space.grants.would_grant(least));
        assert!(collection::is_wanted(&seen), "another choice fits");
        while jobs.space.grants.would_grant(1) {
            held.extend(jobs.space.grants.grant(1));
        }
        assert!(!collection::is_wanted(&seen));
    }
    let refused = db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    drop(held);
    db.collect_garbage(GcRequest { until_percent: Some(5), ..Default::default() }).unwrap();
}

/// A manual compaction that does not fit fails for its caller only: writes and flushes have
/// reserved space.
#[test]
fn a_compaction_on_request_without_room_is_refused_alone() {
    let sim = SimEnv::new(4);
    let limited = Options { space_limit: Some(SpaceLimit::Bytes(64 << 20)), ..options() };
    let db = Db::open_in(sim.env(), "/store", limited).unwrap();
    for round in 0..3u8 {
        (0..400).for_each(|i| db.put(&key(i), &[round; 700]).unwrap());
        db.flush().unwrap();
    }
    let jobs = &db.engine().jobs;
    let mut held = Vec::new();
    while jobs.space.grants.would_grant(1) {
        held.extend(jobs.space.grants.grant(1));
    }
    let family = db.default_column_family();
    let (anew, everything) = (crate::CompactRequest { rewrite: true, ..Default::default() }, (None, None));
    let refused = db.compact_range_with(family, everything, anew.clone(), &mut |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(
        refused.to_string().contains(
            "compaction found no disk space for its output, and its tables stay as they were: free space, \
             or raise the limit"
        ),
        "{refused}"
    );
    assert!(!jobs.context.health.out_of_space());
    db.flush().unwrap();
    drop(held);
    db.put(&key(1), b"taken").unwrap();
    db.compact_range_with(family, everything, anew, &mut |_| {}).unwrap();
    assert_eq!(db.get(&key(2)).unwrap().unwrap(), [2; 700]);
}

/// A table compacted during its copy is not moved, and the copy is removed. Otherwise the
/// compaction would leave the copy behind.
#[test]
fn a_table_compacted_during_its_move_is_not_moved() {
    let sim = SimEnv::new(5);
    let options = || {
        Options { fast_tier: Some("/fast".into()), ..options() }.expert(|expert| expert.fast_tier_levels = 7)
    };
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    (0..2000).for_each(|i| db.put(&key(i), &[7; 100]).unwrap());
    db.close().unwrap();
    let db = Db::open_in(
        sim.env(),
        "/store",
        options().expert(|expert| {
            expert.fast_tier_levels = 0;
            expert.fast_tier_adaptive = true;
        }),
    )
    .unwrap();
    let jobs = &db.engine().jobs;
    let mut found = None;
    for _ in 0..100 {
        sim.advance_ns(2_000_000_000);
        match next_job(jobs, WorkerRole::AllButLog, JobClass::Idle) {
            Some(job) if job.class() == JobClass::Move => {
                found = Some(job);
                break;
            }
            Some(mut job) => while job.step().unwrap() != store::run::Progress::Done {},
            None => {}
        }
    }
    let mut job = found.expect("a table that is to go down");
    let number = job.inputs()[0];
    let copy = std::path::PathBuf::from(format!("/store/{}", version::names::ksst(number)));
    job.step().unwrap();
    assert!(sim.env().fs.exists(&copy).unwrap());
    let family = db.default_column_family().id();
    assert!(lock(&jobs.in_progress).of_mut(family).claim_table(number));
    while job.step().unwrap() != store::run::Progress::Done {}
    lock(&jobs.in_progress).of_mut(family).release_table(number);
    assert!(!sim.env().fs.exists(&copy).unwrap() && db.stats().fast_tier_tables_moved_down == 0);
    drop(job);
    assert!(db.wait_idle(std::time::Duration::from_secs(10)));
    assert!(db.stats().fast_tier_tables_moved_down > 0);
}
