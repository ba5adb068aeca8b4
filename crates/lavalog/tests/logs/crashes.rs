use crate::model::{Driver, contents, options, seen};
use io::sim::{CrashKind, SimEnv};
use lavalog::{Durability, LogStore};
use std::path::Path;

const DIR: &str = "/logs";

/// A store runs, crashes, and runs again: exactly the guaranteed operations are there.
#[test]
fn acknowledged_operations_survive_every_crash() {
    for seed in 0..60 {
        let mut sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        for life in 0..4 {
            let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
            assert_eq!(contents(&store), seen(&driver.model), "seed {seed}, life {life}");
            let power = driver.rng.one_in(2);
            let durability = if power { Durability::Durable } else { Durability::Buffered };
            for n in 0..100 + driver.rng.below(200) {
                driver.one(&store, durability).unwrap();
                if n % 50 == 49 && driver.rng.one_in(2) {
                    store.wait_idle().unwrap();
                }
            }
            if power {
                // Trims survive a process crash; a sync makes them survive a power failure.
                driver.sync(&store).unwrap();
            }
            let kind = if power { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let left = sim.crash(kind, seed * 10 + life);
            drop(store);
            sim = left;
        }
    }
}
