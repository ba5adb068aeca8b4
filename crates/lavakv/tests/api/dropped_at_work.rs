//! A family is dropped while a job works on it, under schedules. Every file is removed, none before
//! its last reader, and the job's failure stops no other work.

use crate::common::*;
use lavastore_lavakv::io::Priority;
use lavastore_lavakv::io::sim::threads::Plan;
use lavastore_lavakv::{
    ColumnFamily, Db, Error, ErrorKind, FamilyOptions, GcRequest, Options, ReadOptions, sim::SimEnv,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Schedules of each kind of job.
const SEEDS: u64 = 1000;

/// Runs one schedule: `prepare` creates work for the job, `job` runs while the family is dropped.
fn run(seed: u64, prepare: fn(&Db, &ColumnFamily), job: fn(&Db, &ColumnFamily)) {
    let sim = SimEnv::new(seed);
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let options = Options { background_threads: 2, ..small() };
        let db = Db::open_in(env.clone(), DIR, options).unwrap();
        let separated = FamilyOptions { min_blob_size: 64, ..small_family() };
        let family = db.create_column_family("f", separated).unwrap();
        prepare(&db, &family);
        let model = contents_cf(&db, &family);
        let reader = db.iter_cf(&family, ReadOptions::default()).unwrap();
        let db = Arc::new(db);
        let (worker, of) = (db.clone(), family.clone());
        let work = Box::new(move || job(&worker, &of));
        let thread = env.spawner.as_ref().unwrap().spawn("job", Priority::Foreground, work).unwrap();
        db.drop_column_family(&family).unwrap();
        assert!(thread.join(), "the job panicked");
        let read: Model = reader.entries().map(|entry| entry.unwrap()).collect();
        assert!(read == model, "the reader reads what it read");
        db.put(b"k", b"the store goes on").unwrap();
        assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
        assert_eq!(db.stats().background_errors, 0, "{:?}", db.flush());
        let listed = env.fs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name);
        let data: Vec<String> = listed.filter(|name| name.ends_with("sst")).collect();
        assert_eq!(data, db.live_files().files, "files that are nobody's");
    });
    if let Err(stuck) = ran {
        panic!("seed {seed}: {}", stuck.0);
    }
}

fn write(db: &Db, family: &ColumnFamily, round: u64) {
    (0..8).for_each(|i| db.put_cf(family, &key(i), &value(i, round)).unwrap());
}

#[test]
fn a_flush_survives_a_concurrent_family_drop() {
    let prepare = |db: &Db, family: &ColumnFamily| write(db, family, 0);
    (0..SEEDS).for_each(|seed| run(seed, prepare, |db, _| drop(db.flush())));
}

#[test]
fn a_compaction_survives_a_concurrent_family_drop() {
    let prepare = |db: &Db, family: &ColumnFamily| {
        for round in 0..2 {
            write(db, family, round);
            db.flush().unwrap();
        }
    };
    (0..SEEDS).for_each(|seed| run(seed, prepare, |db, family| drop(db.compact_range(family, None, None))));
}

#[test]
fn a_collection_survives_a_concurrent_family_drop() {
    let prepare = |db: &Db, family: &ColumnFamily| {
        write(db, family, 0);
        db.flush().unwrap();
        (0..4).for_each(|i| db.put_cf(family, &key(2 * i), b"short").unwrap());
        db.flush().unwrap();
        db.compact_range(family, None, None).unwrap();
    };
    (0..SEEDS).for_each(|seed| run(seed, prepare, |db, _| drop(db.collect_garbage(GcRequest::default()))));
}

/// A read returns the old value, or that the family is gone, and never that the key is missing.
#[test]
fn a_read_survives_a_concurrent_family_drop() {
    let prepare = |db: &Db, family: &ColumnFamily| write(db, family, 0);
    let read = |db: &Db, family: &ColumnFamily| {
        let is_gone = |e: &Error| e.kind() == ErrorKind::NotFound;
        for i in 0..8 {
            match db.get_cf(family, &key(i)) {
                Ok(found) => {
                    assert!(found.is_some_and(|found| *found == *value(i, 0)), "key {i} is not there")
                }
                Err(e) => assert!(is_gone(&e), "{e}"),
            }
            match db.iter_cf(family, ReadOptions::default()) {
                Ok(all) => assert_eq!(all.entries().count(), 8),
                Err(e) => assert!(is_gone(&e), "{e}"),
            }
        }
    };
    (0..SEEDS).for_each(|seed| run(seed, prepare, read));
}
