//! The results of a search before the lock may be outdated: two writers and a flush, under
//! schedules.

use crate::{ColumnFamily, Db, FamilyOptions, Options};
use base::sync::atomic::{AtomicU64, Ordering};
use io::Priority;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 150;
/// Puts of each writer.
const PUTS: u64 = 12;
/// Two values fill the shared memory, while one does not fill a memtable.
const VALUE_LEN: usize = 14 << 10;
const MEMORY: usize = 32 << 10;
/// Most overhead of a memtable: its first chunk and heads of nodes.
const BESIDES: u64 = 4 << 10;

fn options() -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: MEMORY,
        background_threads: 1,
        family: FamilyOptions { min_blob_size: 0, ..FamilyOptions::default() },
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 256 << 10)
}

fn key(writer: u64, nth: u64) -> Vec<u8> {
    (writer * PUTS + nth).to_be_bytes().to_vec()
}

/// Puts into all families in turn. Records the most memory in memtables.
fn write(db: &Db, families: &[ColumnFamily], writer: u64, most: &AtomicU64) {
    for nth in 0..PUTS {
        let family = &families[((writer + nth) % families.len() as u64) as usize];
        db.put_cf(family, &key(writer, nth), &[nth as u8; VALUE_LEN]).unwrap();
        // Under the lock: memtables frozen in between would count twice.
        let _writer = db.engine().writes.memtables.lock();
        db.engine().writes.memtables.wait_for_inserts();
        most.fetch_max(db.engine().space.memory.used(), Ordering::Relaxed);
    }
}

/// Returns the time of waits for memory.
fn run(seed: u64) -> u64 {
    let sim = SimEnv::new(seed);
    let stalls = Arc::new(AtomicU64::new(0));
    let told = stalls.clone();
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let db = Arc::new(Db::open_in(env.clone(), "/store", options()).unwrap());
        let make = |n: u64| db.create_column_family(&format!("{n}"), options().family).unwrap();
        let families: Arc<Vec<ColumnFamily>> = Arc::new((0..3).map(make).collect());
        let most = Arc::new(AtomicU64::new(0));
        let spawn = |name, work: Box<dyn FnOnce() + Send>| {
            env.spawner.as_ref().unwrap().spawn(name, Priority::Foreground, work).unwrap()
        };
        let writer = |n: u64| {
            let (db, families, most) = (db.clone(), families.clone(), most.clone());
            spawn("writer", Box::new(move || write(&db, &families, n, &most)))
        };
        let flusher = db.clone();
        let flush = Box::new(move || (0..PUTS).for_each(|_| flusher.flush().unwrap()));
        let threads = [writer(0), writer(1), spawn("flush", flush)];
        threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
        let most = most.load(Ordering::Relaxed);
        assert!(most <= MEMORY as u64 + BESIDES, "{most} bytes were in memtables, of {MEMORY}");
        for writer in 0..2 {
            for nth in 0..PUTS {
                let family = &families[((writer + nth) % 3) as usize];
                let found = db.get_cf(family, &key(writer, nth)).unwrap().unwrap();
                assert_eq!(*found, [nth as u8; VALUE_LEN]);
            }
        }
        db.flush().unwrap();
        // The job books the memory after the flush is reported.
        assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
        assert_eq!(db.engine().space.memory.used(), 0, "what is booked is given back");
        told.store(db.stats().stall_memory_ns, Ordering::Relaxed);
    });
    if let Err(stuck) = ran {
        panic!("seed {seed}: {}", stuck.0);
    }
    stalls.load(Ordering::Relaxed)
}

#[test]
fn no_schedule_admits_two_writers_into_space_for_one() {
    let waited = (0..SEEDS).filter(|seed| run(*seed) > 0).count();
    assert!(waited > 0, "memory never ended");
}
