//! Snapshots across flush, compaction and every kind of change.

use crate::common::*;
use lavastore_lavakv::{Db, ReadOptions, Snapshot, sim::SimEnv};

fn at(db: &Db, snapshot: &Snapshot) -> Model {
    let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
    db.iter(options).unwrap().entries().map(|e| e.unwrap()).collect()
}

#[test]
fn snapshots_are_stable_through_flush_and_compaction() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    for round in 0..8 {
        fill(&db, &mut model, round * 50..round * 50 + 400, round);
        if round % 2 == 1 {
            db.delete_range(&key(round * 40), &key(round * 40 + 100)).unwrap();
            model.retain(|k, _| !(key(round * 40)..key(round * 40 + 100)).contains(k));
        }
        for i in (0..600).step_by(9) {
            db.delete(&key(i)).unwrap();
            model.remove(&key(i));
        }
        held.push((db.snapshot(), model.clone()));
        match round % 3 {
            0 => db.flush().unwrap(),
            1 => db.compact_range(db.default_column_family(), None, None).unwrap(),
            _ => settle(&db),
        }
        for (snapshot, then) in &held {
            assert!(at(&db, snapshot) == *then, "round {round}, snapshot {snapshot:?}");
            for i in (0..800).step_by(37) {
                let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
                let got = db.get_opt(db.default_column_family(), &key(i), &options).unwrap();
                assert_eq!(got.as_deref(), then.get(&key(i)).map(|v| &v[..]));
            }
        }
        if round == 5 {
            held.drain(1..4);
        }
    }
    assert_eq!(db.space().unwrap().snapshots, held.len() as u64);
    sim.advance_ns(5_000_000_000);
    assert!(db.space().unwrap().oldest_snapshot_ns >= 5_000_000_000);
    held.clear();
    assert_eq!(db.space().unwrap().snapshots, 0);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    assert!(contents(&db) == model);
}

/// A full compaction drops versions that no snapshot needs.
#[test]
fn dropped_snapshots_release_space() {
    let sim = SimEnv::new(2);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..1000, 0);
    let snapshot = db.snapshot();
    let before = model.clone();
    db.delete_range(&key(0), &key(1000)).unwrap();
    let family = db.default_column_family().clone();
    db.compact_range(&family, None, None).unwrap();
    settle(&db);
    assert!(at(&db, &snapshot) == before);
    assert!(contents(&db).is_empty());
    assert!(db.space().unwrap().table_bytes > 100_000);
    drop(snapshot);
    // A new write makes another compaction of the range worth its while.
    db.put(&key(1), b"x").unwrap();
    db.compact_range(&family, None, None).unwrap();
    settle(&db);
    let table_bytes = db.space().unwrap().table_bytes;
    assert!(table_bytes < 20_000, "{table_bytes}: {}", db.describe());
    assert_eq!(contents(&db).len(), 1);
}

#[test]
fn a_snapshot_covers_all_families() {
    let sim = SimEnv::new(3);
    let db = open(&sim);
    let family = db.create_column_family("family", small_family()).unwrap();
    db.put(b"k", b"1").unwrap();
    db.put_cf(&family, b"k", b"1").unwrap();
    let snapshot = db.snapshot();
    db.put(b"k", b"2").unwrap();
    db.delete_cf(&family, b"k").unwrap();
    db.flush().unwrap();
    for f in [db.default_column_family(), &family] {
        let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
        assert_eq!(db.get_opt(f, b"k", &options).unwrap().as_deref(), Some(&b"1"[..]));
    }
    assert!(db.get_cf(&family, b"k").unwrap().is_none());
}
