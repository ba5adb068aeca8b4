//! Handles: clones in threads, close, and drop beside iterators and snapshots.

use crate::common::*;
use lavastore_lavakv::{Db, ErrorKind, ReadOptions, WriteBatch, WriteOptions, sim::SimEnv};
use std::sync::Arc;

#[test]
fn cloned_handles_work_in_threads() {
    let tmp = TempDir::new("clones");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let db = db.clone();
            std::thread::spawn(move || {
                for i in 0..2000 {
                    let n = i * 4 + t;
                    let options =
                        if i % 200 == 0 { WriteOptions::durable() } else { WriteOptions::default() };
                    db.put_opt(db.default_column_family(), &key(n), &value(n, t), &options).unwrap();
                    // A thread's own writes are visible at once.
                    assert_eq!(db.get(&key(n)).unwrap().as_deref(), Some(&value(n, t)[..]));
                    if i % 500 == 0 {
                        let mut i = db.iter(ReadOptions::default()).unwrap();
                        i.seek_to_last().unwrap();
                        assert!(i.valid());
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let found = contents(&db);
    assert_eq!(found.len(), 8000);
    assert!((0..8000).all(|n| found[&key(n)] == value(n, n % 4)));
    db.close().unwrap();
    assert!(contents(&Db::open_with(tmp.path(), small()).unwrap()) == found);
}

/// Batches of two threads never mix: the same thread wrote both keys.
#[test]
fn batches_are_atomic_to_readers() {
    let tmp = TempDir::new("atomic");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let family = db.create_column_family("family", small_family()).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..2u8)
        .map(|t| {
            let (db, family, stop) = (db.clone(), family.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut n = 0u32;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut batch = WriteBatch::new();
                    let text = [vec![t], n.to_le_bytes().to_vec(), vec![b'.'; 50]].concat();
                    batch.put(b"here", &text);
                    batch.put_cf(&family, b"there", &text);
                    db.write(&batch).unwrap();
                    n += 1;
                }
            })
        })
        .collect();
    for round in 0..400 {
        let snapshot = db.snapshot();
        let options = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
        let here = db.get_opt(db.default_column_family(), b"here", &options).unwrap().map(|v| v.into_vec());
        let there = db.get_opt(&family, b"there", &options).unwrap().map(|v| v.into_vec());
        assert_eq!(here, there, "round {round}");
        if round % 100 == 0 {
            db.flush().unwrap();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writers.into_iter().for_each(|t| t.join().unwrap());
}

fn drop_with_readers(db: Db, reopen: impl Fn() -> lavastore_lavakv::Result<Db>) {
    let mut model = Model::new();
    fill(&db, &mut model, 0..3000, 0);
    let mut early = db.iter(ReadOptions::default()).unwrap();
    early.seek(&key(10)).unwrap();
    let snapshot = db.snapshot();
    let before = model.clone();
    fill(&db, &mut model, 0..3000, 1);
    let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
    let late = db.iter(options).unwrap();
    let newest = db.iter(ReadOptions::default()).unwrap();
    let family = db.default_column_family().clone();
    let clone = db.clone();
    drop(db);
    assert!(contents(&clone) == model, "a clone keeps it open");
    drop(clone);
    // The store is closed; pinned data stays readable.
    assert_eq!(early.key(), key(10));
    fails(reopen(), ErrorKind::Locked);
    assert_eq!(early.entries().count(), 2990);
    fails(reopen(), ErrorKind::Locked);
    assert!(late.entries().map(|e| e.unwrap()).collect::<Model>() == before);
    assert!(newest.entries().map(|e| e.unwrap()).collect::<Model>() == model);
    // A snapshot pins no files, so it does not hold the lock.
    let db = reopen().unwrap();
    assert!(contents(&db) == model);
    assert!(snapshot.sequence() > 0 && family.name() == "default");
    drop((snapshot, family));
    assert!(contents(&db) == model);
}

#[test]
fn readers_outlive_the_store_in_simulation() {
    let sim = SimEnv::new(1);
    drop_with_readers(open(&sim), || try_open(&sim));
}

#[test]
fn readers_outlive_the_store_on_the_machine() {
    let tmp = TempDir::new("outlive");
    let reopen = || Db::open_with(tmp.path(), small());
    drop_with_readers(reopen().unwrap(), reopen);
}

/// A value pins its block, even after the store is gone.
#[test]
fn values_outlive_the_store() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(2);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..1000, 0);
    db.flush().unwrap();
    let values: Vec<_> = (0..1000).map(|i| db.get(&key(i)).unwrap().unwrap()).collect();
    drop(db);
    sim.erase(path("CURRENT")).unwrap();
    for (i, got) in (0..).zip(&values) {
        assert!(*got == value(i, 0)[..] && got.as_ref() == value(i, 0));
    }
}

#[test]
fn close_reports_errors_that_drop_ignores() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind};
    let sim = SimEnv::new(3);
    let db = open(&sim);
    db.put(b"k", b"v").unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&OpKind::SYNCS).sticky());
    let failed = db.put_opt(db.default_column_family(), b"d", b"v", &WriteOptions::durable());
    fails(failed, ErrorKind::Io);
    fails(db.put(b"e", b"v"), ErrorKind::Poisoned);
    fails(db.flush(), ErrorKind::Poisoned);
    assert!(db.get(b"k").unwrap().is_some(), "reads go on");
    assert!(db.close().is_err());
    sim.clear_faults();
    assert!(open(&sim).get(b"k").unwrap().is_some());
}
