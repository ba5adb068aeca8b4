//! Readers waiting for records, under schedules: each is woken by writes to its log, and no wake-up
//! is lost.

use base::ErrorKind;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use lavalog::{Durability, LogBatch, LogHandle, LogStore, Lsn, Options};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 150;
const WAIT: Duration = Duration::from_secs(60);
/// Shorter than the sleep of a reader without a wake-up: a schedule with a lost wake-up is idle for
/// longer.
const PATIENCE_NS: u64 = 500_000_000;

fn reader(log: &LogHandle, last: Lsn) {
    let mut tail = log.scan(1);
    for lsn in 1..=last {
        let found = tail.wait_next(WAIT).unwrap();
        assert_eq!(found.map(|(lsn, _)| lsn), Some(lsn), "a reader of log {} slept on", log.id());
    }
}

#[test]
fn writes_to_a_log_wake_all_its_readers() {
    for seed in 0..SEEDS {
        let plan = Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) };
        let ran = SimEnv::new(seed).run_threads(&plan, move |env| {
            let mut rng = Rng::new(seed);
            let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
            let store = LogStore::open(env, Path::new("/logs"), &options).unwrap();
            let logs: Vec<LogHandle> = (0..3).map(|n| store.create_log(&n.to_string()).unwrap()).collect();
            let logs = Arc::new(logs);
            let lasts: Vec<Lsn> = logs.iter().map(|_| rng.range(1, 6)).collect();
            let spawner = env.spawner.clone().unwrap();
            let mut threads = Vec::new();
            for n in [0, 1, 2, 0] {
                let (logs, last) = (logs.clone(), lasts[n]);
                let body = Box::new(move || reader(&logs[n], last));
                threads.push(spawner.spawn(&format!("reader-{n}"), Priority::Foreground, body).unwrap());
            }
            for lsn in 1..=*lasts.iter().max().unwrap() {
                let mut batch = LogBatch::new();
                for (log, _) in logs.iter().zip(&lasts).filter(|(_, last)| lsn <= **last) {
                    batch.append(log, lsn, b"record");
                }
                let durability = if rng.one_in(2) { Durability::Buffered } else { Durability::Durable };
                store.write(&batch, durability).unwrap();
                if rng.one_in(3) {
                    env.clock.sleep_ns(rng.below(50_000_000));
                }
            }
            assert!(threads.into_iter().all(|thread| thread.join()));
            drop(logs);
            store.close().unwrap();
        });
        ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_waiting_reader_ends_on_log_deletion_or_timeout() {
    for seed in 0..20 {
        let plan = Plan { patience_ns: PATIENCE_NS, ..Plan::new(seed) };
        let ran = SimEnv::new(seed).run_threads(&plan, move |env| {
            let store = LogStore::open(env, Path::new("/logs"), &Options::default()).unwrap();
            let log = store.create_log("log").unwrap();
            assert_eq!(log.scan(0).wait_next(Duration::from_millis(5)).unwrap(), None);
            let waiting = log.clone();
            let spawner = env.spawner.clone().unwrap();
            let body = Box::new(move || {
                let e = waiting.scan(0).wait_next(WAIT).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::NotFound);
            });
            let thread = spawner.spawn("reader", Priority::Foreground, body).unwrap();
            env.clock.sleep_ns(1_000 * seed);
            store.delete_log("log").unwrap();
            assert!(thread.join());
        });
        ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
