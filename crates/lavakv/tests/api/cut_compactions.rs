//! Compactions merged in parts by several threads, under schedules: beside writers, readers and
//! snapshots; while a file system call fails, a family is dropped, or the store is closed. A
//! compaction is installed as a whole or not at all, and no orphaned file stays.

use crate::common::*;
use lavastore_lavakv::io::sim::threads::Plan;
use lavastore_lavakv::io::{Env, Priority};
use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{ColumnFamily, Db, FamilyOptions, Options, PolicyChoice, ReadOptions, VlsmOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Schedules of each test; the rows `sched*` draw compactions in parts as well.
const SEEDS: u64 = 60;
const KEYS: u64 = 300;

/// The event during the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Reads,
    Fault,
    Drop,
    Close,
}

fn options(seed: u64) -> Options {
    let vlsm = VlsmOptions { table_bytes: 4 << 10, level_1_tables: 2, ..VlsmOptions::default() };
    let policy = [PolicyChoice::default(), PolicyChoice::vlsm(&vlsm)][seed as usize / 2 % 2].clone();
    let min_blob_size = [0, 64][seed as usize % 2];
    let family = FamilyOptions { min_blob_size, policy, ..small_family() }
        .expert(|expert| expert.file_bytes = 4 << 10);
    Options { background_threads: 3, family, ..small() }
}

/// Writes tables of level 0, with range deletions among them.
fn write(db: &Db, family: &ColumnFamily, model: &mut Model) {
    for round in 0..2 {
        for i in (0..KEYS).filter(|i| (i + round) % 2 == 0 || i % 5 == 0) {
            db.put_cf(family, &key(i), &value(i, round)).unwrap();
            model.insert(key(i), value(i, round));
        }
        let (low, high) = (key(60 + round * 90), key(110 + round * 90));
        db.delete_range_cf(family, &low, &high).unwrap();
        model.retain(|k, _| *k < low || high <= *k);
        db.flush().unwrap();
    }
}

fn check_files(db: &Db, env: &Env) {
    let listed = env.fs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name);
    let data: Vec<String> = listed.filter(|name| name.ends_with("sst")).collect();
    assert_eq!(data, db.live_files().files, "files that are nobody's");
}

/// Returns the number of parts beyond one per compaction, under one schedule.
fn run(seed: u64, beside: Beside) -> u64 {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let pieces = Arc::new(AtomicU64::new(0));
    let more = pieces.clone();
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let db = Arc::new(Db::open_in(env.clone(), DIR, options(seed)).unwrap());
        let family = db.create_column_family("f", options(seed).family).unwrap();
        let mut model = Model::new();
        write(&db, &family, &mut model);
        let (snapshot, then) = (db.snapshot(), model.clone());
        write(&db, &family, &mut model);
        if beside == Beside::Fault {
            let kinds = [OpKind::Create, OpKind::Append, OpKind::Read];
            let plan =
                FaultPlan::nth(seed % 23, FaultEffect::NoDescriptor).kinds(&kinds[..1 + seed as usize % 2]);
            machine.inject(plan.path("sst"));
        }
        let (worker, of) = (db.clone(), family.clone());
        // A close must own the store, so only automatic compactions run then.
        let compact = Box::new(move || match beside {
            Beside::Close => {}
            _ => drop(worker.compact_range(&of, None, None)),
        });
        let thread = env.spawner.as_ref().unwrap().spawn("compact", Priority::Foreground, compact).unwrap();
        match beside {
            Beside::Reads | Beside::Fault => {
                for i in (0..KEYS).step_by(60) {
                    let found = db.get_cf(&family, &key(i)).unwrap();
                    assert_eq!(found.as_deref().map(|v| v.to_vec()), model.get(&key(i)).cloned());
                    db.put_cf(&family, &key(i), b"new").unwrap();
                    model.insert(key(i), b"new".to_vec());
                }
                let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
                let seen: Model =
                    db.iter_cf(&family, options).unwrap().entries().map(|entry| entry.unwrap()).collect();
                assert!(seen == then, "of the snapshot");
            }
            Beside::Drop => db.drop_column_family(&family).unwrap(),
            Beside::Close => {}
        }
        assert!(thread.join(), "the compaction panicked");
        machine.clear_faults();
        if beside != Beside::Close {
            assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
            let stats = db.stats();
            more.store(stats.subcompactions + stats.compaction_moves - stats.compactions, Relaxed);
            assert!(stats.background_errors == 0 || beside == Beside::Fault);
            check_files(&db, env);
        }
        drop((snapshot, family));
        Arc::into_inner(db).expect("nobody else has it").close().unwrap();
        let db = Db::open_in(env.clone(), DIR, options(seed)).unwrap();
        match db.column_family("f") {
            Some(family) => {
                assert!(contents_cf(&db, &family) == model, "after the next open");
                assert!(db.verify().unwrap().errors.is_empty());
            }
            None => assert_eq!(beside, Beside::Drop),
        }
        assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
        check_files(&db, env);
    });
    if let Err(stuck) = ran {
        panic!("seed {seed}: {}", stuck.0);
    }
    pieces.load(Relaxed)
}

fn all(beside: Beside) -> u64 {
    (0..SEEDS).map(|seed| run(seed, beside)).sum()
}

#[test]
fn subcompactions_run_beside_reads_and_writes() {
    let pieces = all(Beside::Reads);
    assert!(pieces > SEEDS / 2, "{pieces} pieces more than compactions");
}

#[test]
fn subcompactions_survive_failing_calls() {
    let pieces = all(Beside::Fault);
    assert!(pieces > SEEDS / 4, "{pieces} pieces more than compactions");
}

#[test]
fn subcompactions_survive_a_dropped_family() {
    all(Beside::Drop);
}

#[test]
fn subcompactions_survive_a_close() {
    all(Beside::Close);
}
