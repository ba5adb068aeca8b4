//! Work of a store without writes: it compacts and collects while that frees more than it costs,
//! and then it is idle.

use crate::common::*;
use crate::*;
use lavastore_lavakv::Ablation;

const KEYS: u64 = 1000;

fn open_with(sim: &SimEnv, min_blob_size: usize, ablation: Ablation) -> Db {
    Db::open_in(env(sim), DIR, apart(min_blob_size).expert(|expert| expert.ablation = ablation)).unwrap()
}

/// An idle store of which part was overwritten and part deleted a moment ago.
fn overwritten(sim: &SimEnv, min_blob_size: usize, ablation: Ablation) -> (Db, Model) {
    let (db, mut model) = (open_with(sim, min_blob_size, ablation), Model::new());
    fill_long(&db, &mut model, 0..KEYS, 0, 600);
    compact(&db);
    settle(&db);
    fill_long(&db, &mut model, (0..KEYS).step_by(7), 1, 600);
    for i in (0..KEYS).step_by(11) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    db.flush().unwrap();
    while db.run_background_step() {}
    (db, model)
}

fn pass_ns(db: &Db, sim: &SimEnv, ns: u64) {
    for _ in 0..10 {
        sim.advance_ns(ns / 10);
        while db.run_background_step() {}
    }
}

#[test]
fn an_idle_store_exposes_garbage_and_then_stops() {
    let sim = SimEnv::new(1);
    let (db, model) = overwritten(&sim, 200, Ablation::default());
    let before = db.space().unwrap();
    assert!(before.hidden_bytes > 30_000 && before.families[0].index_amplification() > 1.05, "{before:?}");
    let compactions = db.stats().compactions;
    pass_ns(&db, &sim, 900_000_000);
    assert_eq!(db.stats().compactions, compactions, "less than a second");
    pass_ns(&db, &sim, 2_000_000_000);
    let after = db.space().unwrap();
    assert_eq!((after.families[0].levels.len(), after.hidden_bytes), (1, 0), "{after:?}");
    assert_eq!(after.families[0].index_amplification(), 1.0);
    assert!(after.value_bytes + after.garbage_bytes + 30_000 < before.value_bytes + before.garbage_bytes);
    reads_back(&db, &model);
    // The log releases its free files. After that no byte is written for a minute.
    pass_ns(&db, &sim, 20_000_000_000);
    let (state, stats) = (sim.state_hash(), db.stats());
    pass_ns(&db, &sim, 60_000_000_000);
    assert_eq!(sim.state_hash(), state);
    assert_eq!((db.stats().compactions, db.stats().gc_runs), (stats.compactions, stats.gc_runs));
    nothing_left_over(&db, &sim);
}

#[test]
fn writes_postpone_idle_compaction() {
    let sim = SimEnv::new(2);
    let (db, mut model) = overwritten(&sim, 200, Ablation::default());
    let compactions = db.stats().compactions;
    for i in 0..8 {
        pass_ns(&db, &sim, 500_000_000);
        fill_long(&db, &mut model, i..i + 1, 2, 50);
    }
    assert_eq!(db.stats().compactions, compactions);
    pass_ns(&db, &sim, 2_000_000_000);
    assert!(db.stats().compactions > compactions);
    reads_back(&db, &model);
}

#[test]
fn without_idle_compaction_garbage_stays_unexposed() {
    let sim = SimEnv::new(3);
    let (db, _) = overwritten(&sim, 200, Ablation::without(["quiet_compaction"]).unwrap());
    let (compactions, hidden) = (db.stats().compactions, db.space().unwrap().hidden_bytes);
    pass_ns(&db, &sim, 5_000_000_000);
    assert_eq!(db.stats().compactions, compactions);
    assert_eq!(db.space().unwrap().hidden_bytes, hidden);
}

/// With inline values a merge writes more than it frees: no job runs.
#[test]
fn idle_compaction_ignores_inline_values() {
    let sim = SimEnv::new(4);
    let (db, model) = overwritten(&sim, 0, Ablation::default());
    let compactions = db.stats().compactions;
    pass_ns(&db, &sim, 5_000_000_000);
    assert_eq!(db.stats().compactions, compactions);
    reads_back(&db, &model);
}

/// Physical instead of compensated sizes give other trees and the same answers.
#[test]
fn tree_shape_is_measured_in_physical_bytes() {
    let mut levels = Vec::new();
    for ablation in [Ablation::default(), Ablation::without(["compensated_size"]).unwrap()] {
        let sim = SimEnv::new(5);
        let (db, mut model) = (open_with(&sim, 200, ablation), Model::new());
        for round in 0..4 {
            fill_long(&db, &mut model, (0..KEYS).filter(|i| (i + round) % 3 > 0), round, 600);
        }
        db.flush().unwrap();
        settle(&db);
        reads_back(&db, &model);
        levels.push(db.space().unwrap().families[0].levels.clone());
        nothing_left_over(&db, &sim);
    }
    let files = |levels: &[lavastore_lavakv::LevelSpace]| levels.iter().map(|l| l.files).sum::<u64>();
    assert!(files(&levels[0]) > files(&levels[1]), "{levels:?}");
}
