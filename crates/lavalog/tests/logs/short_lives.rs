//! Processes that run one command each, one after another: none of their jobs finishes.

use crate::damage::DIR;
use io::sim::{CrashKind, SimEnv};
use lavalog::{Durability, LogStore, Options};
use std::path::Path;
use store::commit::Lane;
use store::manifest::{Engines, Manifest};

/// Each process leaves a group, but the amount of replay for the next one stays bounded, whatever
/// the size of groups.
#[test]
fn replay_after_many_short_runs_is_bounded() {
    for group_bytes in [None, Some(256 << 10)] {
        let options = Options { group_bytes, ..Options::default() };
        let (mut sim, dir) = (SimEnv::new(1), Path::new(DIR));
        for n in 1..=150 {
            let store = LogStore::open(&sim.env(), dir, &options).unwrap();
            store.log("log").unwrap().append(n, &n.to_le_bytes(), Durability::Durable).unwrap();
            match n % 3 {
                0 => drop(store),
                _ => store.close().unwrap(),
            }
            if n % 3 == 0 {
                sim = sim.crash(CrashKind::ProcessKill, n);
            }
            let state = Manifest::recover(&sim.env(), dir, true, &Engines::default()).unwrap().state();
            let replayed = state.log_groups.chain(Lane::LOG).count();
            assert!(replayed <= 20, "{replayed} groups after {n} lives");
        }
        let store = LogStore::open(&sim.env(), dir, &options).unwrap();
        let log = store.open_log("log").unwrap();
        assert!((1..=150).all(|n| log.read(n).unwrap().unwrap() == n.to_le_bytes()));
        store.wait_idle().unwrap();
        assert!(store.verify().damages.is_empty());
    }
}
