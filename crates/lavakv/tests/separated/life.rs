//! The lifetime of a value file: it exists exactly while it can be reached.

use crate::common::*;
use crate::*;
use lavastore_lavakv::ReadOptions;
use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind};

const KEYS: u64 = 100;

fn filled(sim: &SimEnv) -> (Db, Model) {
    let (db, mut model) = (open_apart(sim, 200), Model::new());
    fill_long(&db, &mut model, 0..KEYS, 0, 1000);
    db.flush().unwrap();
    settle(&db);
    (db, model)
}

/// Overwrites everything several times, with compaction and collection.
fn overwrite(db: &Db, model: &mut Model, rounds: std::ops::Range<u64>) {
    for round in rounds {
        fill_long(db, model, (0..KEYS).filter(|i| (i + round) % 4 != 0), round, 1000);
        compact(db);
        settle(db);
    }
}

fn vssts(sim: &SimEnv) -> Vec<String> {
    files_like(sim, ".vsst")
}

#[test]
fn an_iterator_pins_the_files_it_reads() {
    let sim = SimEnv::new(1);
    let (db, mut model) = filled(&sim);
    let (before, then) = (vssts(&sim), model.clone());
    let mut i = db.iter(ReadOptions { fill_cache: false, ..Default::default() }).unwrap();
    i.seek_to_first().unwrap();
    overwrite(&db, &mut model, 1..8);
    assert!(db.stats().gc_runs > 0);
    assert!(before.iter().all(|name| vssts(&sim).contains(name)), "the iterator's files are there");
    assert!(db.space().unwrap().pinned_bytes > 0);
    reads_back(&db, &model);
    for (key, value) in &then {
        assert!(i.valid() && i.key() == key && i.value().unwrap() == value);
        i.next().unwrap();
    }
    assert!(!i.valid());
    drop(i);
    nothing_left_over(&db, &sim);
    assert!(!before.iter().any(|name| vssts(&sim).contains(name)), "and go with it");
    reads_back(&db, &model);
}

#[test]
fn a_snapshot_holds_values_not_files() {
    let sim = SimEnv::new(2);
    let (db, mut model) = filled(&sim);
    let (snapshot, then) = (db.snapshot(), model.clone());
    overwrite(&db, &mut model, 1..8);
    let options = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
    let found: Model = db.iter(options.clone()).unwrap().entries().map(Result::unwrap).collect();
    assert!(found == then);
    for (key, value) in &then {
        let got = db.get_opt(db.default_column_family(), key, &options).unwrap();
        assert_eq!(got.as_deref(), Some(&value[..]));
    }
    // The values of the snapshot are live: the directory is exact with it, too.
    nothing_left_over(&db, &sim);
    let with = db.space().unwrap().value_bytes;
    drop(options);
    overwrite(&db, &mut model, 8..12);
    nothing_left_over(&db, &sim);
    assert!(db.space().unwrap().value_bytes < with);
    reads_back(&db, &model);
}

#[test]
fn dropping_a_family_frees_its_value_files() {
    let sim = SimEnv::new(3);
    let (db, model) = filled(&sim);
    let before = vssts(&sim);
    let family = db.create_column_family("gone soon", apart_family(100)).unwrap();
    for i in 0..KEYS {
        db.put_cf(&family, &key(i), &long(i, 5, 700)).unwrap();
    }
    db.flush().unwrap();
    settle(&db);
    assert!(vssts(&sim).len() > before.len());
    let mut i = db.iter_cf(&family, ReadOptions::default()).unwrap();
    i.seek_to_first().unwrap();
    db.drop_column_family(&family).unwrap();
    settle(&db);
    for n in 0..KEYS {
        assert!(i.valid() && i.key() == key(n) && i.value().unwrap() == long(n, 5, 700), "{n}");
        i.next().unwrap();
    }
    drop((i, family));
    nothing_left_over(&db, &sim);
    assert_eq!(vssts(&sim), before);
    reads_back(&db, &model);
}

/// A family is dropped while jobs work on its values: their outputs are removed too.
#[test]
fn dropping_a_family_during_its_jobs_leaves_no_files() {
    for steps in 0..60 {
        let sim = SimEnv::new(100 + steps);
        let db = open_apart(&sim, 200);
        let family = db.create_column_family("gone soon", apart_family(100)).unwrap();
        for round in 0..4 {
            for i in 0..KEYS {
                db.put_cf(&family, &key((i * 7 + round) % 60), &long(i, round, 700)).unwrap();
            }
            db.flush().unwrap();
        }
        for _ in 0..steps {
            db.run_background_step();
        }
        db.drop_column_family(&family).unwrap();
        drop(family);
        nothing_left_over(&db, &sim);
        assert!(vssts(&sim).is_empty());
        db.close().unwrap();
        nothing_left_over(&open_apart(&sim, 200), &sim);
    }
}

#[test]
fn a_checkpoint_keeps_its_value_files() {
    let sim = SimEnv::new(4);
    let (db, mut model) = filled(&sim);
    overwrite(&db, &mut model, 1..4);
    fill_long(&db, &mut model, 0..10, 50, 3000);
    db.checkpoint("/copy").unwrap();
    let then = model.clone();
    overwrite(&db, &mut model, 4..9);
    nothing_left_over(&db, &sim);
    let copy = Db::open_in(env(&sim), "/copy", apart(200)).unwrap();
    reads_back(&copy, &then);
    assert!(copy.verify().unwrap().errors.is_empty());
    // The two stores are independent: the copy's collections leave the shared files alone.
    let mut theirs = then.clone();
    overwrite(&copy, &mut theirs, 20..26);
    assert!(copy.stats().gc_runs > 0);
    reads_back(&copy, &theirs);
    reads_back(&db, &model);
    drop(copy);
    reads_back(&Db::open_in(env(&sim), "/copy", apart(0)).unwrap(), &theirs);
    assert!(db.verify().unwrap().errors.is_empty());
}

/// Without garbage there is no collection.
#[test]
fn an_idle_store_does_no_work() {
    let sim = SimEnv::new(5);
    let (db, mut model) = filled(&sim);
    overwrite(&db, &mut model, 1..6);
    nothing_left_over(&db, &sim);
    let before = (db.stats(), sim.state_hash());
    for _ in 0..20 {
        sim.advance_ns(3_000_000_000);
        for _ in 0..20 {
            db.run_background_step();
        }
        settle(&db);
    }
    let after = db.stats();
    assert_eq!((after.gc_runs, after.gc_abandoned), (before.0.gc_runs, before.0.gc_abandoned));
    assert_eq!((after.compactions, after.manifest_bytes_written), {
        (before.0.compactions, before.0.manifest_bytes_written)
    });
    assert_eq!(sim.state_hash(), before.1, "nothing was written");
}

/// At rest, garbage is below the family's ratio in every file, after deletes as well.
#[test]
fn deletes_free_value_files() {
    let sim = SimEnv::new(6);
    let (db, mut model) = filled(&sim);
    fill_long(&db, &mut model, KEYS..10 * KEYS, 1, 1000);
    compact(&db);
    nothing_left_over(&db, &sim);
    let full = db.space().unwrap().value_bytes;
    for i in (0..10 * KEYS).filter(|i| i % 10 != 0) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    compact(&db);
    nothing_left_over(&db, &sim);
    let space = db.space().unwrap();
    assert!(space.value_bytes + space.garbage_bytes < full / 5, "{full} B before, {space:?}");
    reads_back(&db, &model);
    db.delete_range(&key(0), &key(10 * KEYS)).unwrap();
    compact(&db);
    nothing_left_over(&db, &sim);
    assert!(vssts(&sim).is_empty(), "{}", db.describe());
}

/// A full file system may have no room to remove a file. The other obsolete files are removed, and
/// this one when there is room.
#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_file() {
    let sim = SimEnv::new(9);
    let (db, mut model) = filled(&sim);
    for round in 1..9 {
        sim.inject(FaultPlan::nth(round % 3, FaultEffect::NoSpace).kinds(&[OpKind::Remove]));
        fill_long(&db, &mut model, (0..KEYS).filter(|i| (i + round) % 4 != 0), round, 1000);
        // It may return the lack of room, which does not matter here.
        let _ = db.compact_range(db.default_column_family(), None, None);
        while db.run_background_step() {}
        sim.clear_faults();
        sim.advance_ns(1_000_000_000);
        compact(&db);
    }
    nothing_left_over(&db, &sim);
    reads_back(&db, &model);
}
