//! Readers next to a writer of both lanes, under schedules. Each reader sees all writes
//! acknowledged before its open, and no write without its predecessors, in whichever lane they are.

use crate::life::{DIR, changes, find_keys, kv_options, open, write_both};
use base::sync::atomic::{AtomicU64, Ordering};
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Env, Priority, Rng};
use lavakv::{Db, Durability, WriteOptions};
use std::sync::Arc;

const SEEDS: u64 = 60;
const WRITES: u64 = 60;
/// Seeds that found bugs: a new group of a lane had a write older than the contents read from the
/// other lane; a store was created during the look-up; a table was removed during the open.
const FOUND: [u64; 7] = [386, 426, 710, 777, 781, 887, 1351];

/// Writes keys, each batch to a lane chosen by the seed.
fn write(env: &Env, acknowledged: &AtomicU64, mut rng: Rng) {
    let (db, logs) = open(env).unwrap();
    let other = db.create_column_family("other", kv_options().family).unwrap();
    let log = logs.log("log").unwrap();
    for n in 0..WRITES {
        let durability = if rng.one_in(4) { Durability::Durable } else { Durability::Buffered };
        let batch = changes(&other, n);
        match rng.below(2) {
            0 => db
                .write_opt(&batch, &WriteOptions { durability: Some(durability), ..WriteOptions::default() })
                .unwrap(),
            // Long enough to fill and reuse groups.
            _ => write_both(&db, &batch, &log, n + 1, &vec![7; 30_000], durability).unwrap(),
        }
        acknowledged.store(n + 1, Ordering::Release);
        match rng.below(20) {
            0 => db.flush().unwrap(),
            1 => logs.seal().unwrap(),
            2..=6 => log.trim(n).unwrap(),
            _ => {}
        }
    }
    drop(log);
    logs.close().unwrap();
    db.close().unwrap();
}

/// Reads until the writer is done. Returns how often the store was incomplete.
fn read(env: &Env, acknowledged: &AtomicU64) -> u64 {
    let mut between = 0;
    loop {
        let before = acknowledged.load(Ordering::Acquire);
        match Db::open_read_only_in(env.clone(), DIR, kv_options()) {
            Ok(db) => {
                let keys = find_keys(&db);
                assert!(keys >= before, "{keys} of {before} acknowledged writes");
                between += u64::from(0 < keys && keys < WRITES);
            }
            // The store does not exist yet, or it changes faster than it can be read.
            Err(e) if matches!(e.kind(), base::ErrorKind::NotFound | base::ErrorKind::Busy) => {}
            Err(e) => panic!("{e}"),
        }
        if before == WRITES {
            return between;
        }
    }
}

#[test]
fn no_reader_sees_a_write_without_earlier_ones() {
    let mut between = 0;
    for seed in (1..=SEEDS).chain(FOUND) {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan { patience_ns: 200_000_000, ..Plan::new(seed) }, move |env| {
            let acknowledged = Arc::new(AtomicU64::new(0));
            let (own, count) = (env.clone(), acknowledged.clone());
            let body = Box::new(move || write(&own, &count, Rng::new(seed)));
            let spawner = env.spawner.clone().unwrap();
            let writer = spawner.spawn("writer", Priority::Foreground, body).unwrap();
            let seen = read(env, &acknowledged);
            assert!(writer.join());
            seen
        });
        between += ran.unwrap().value;
    }
    assert!(between > SEEDS, "{between} looks at a store that was being written");
}
