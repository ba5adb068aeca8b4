//! Transactions, merged iterators and atomic updates over stores in simulation.

mod atomic;
mod conflicts;
mod locks;
mod merged;
mod prepared;
mod schedules;

use lavastore_transactions::lavakv::sim::SimEnv;
use lavastore_transactions::lavakv::{Db, FamilyOptions, Options};

/// Options under which some hundred writes go through flush and compaction.
fn small() -> Options {
    let family = FamilyOptions::default().expert(|expert| {
        expert.file_bytes = 16 << 10;
        expert.level_base_bytes = 64 << 10;
    });
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        family,
        ..Options::default()
    }
}

fn store(seed: u64) -> Db {
    Db::open_in(SimEnv::new(seed).env(), "/store", small()).unwrap()
}
