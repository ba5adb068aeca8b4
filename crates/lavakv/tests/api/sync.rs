//! The promise of `Db::sync`, and of an empty durable batch: earlier buffered writes survive a
//! power loss.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, Policy, SimEnv};
use lavastore_lavakv::{Db, ErrorKind, Result, WriteBatch, WriteOptions};

/// Only synced data is left.
const POWER_LOSS: CrashKind = CrashKind::PowerLossWith(Policy::Dropped);

fn sync(db: &Db) -> Result<()> {
    db.sync()
}

fn write_nothing(db: &Db) -> Result<()> {
    db.write_opt(&WriteBatch::new(), &WriteOptions::durable())
}

fn delete_nothing(db: &Db) -> Result<()> {
    let all = db.default_column_family();
    db.delete_range_opt(all, b"same", b"same", &WriteOptions::durable())
}

#[test]
fn buffered_writes_before_a_sync_survive_power_loss() {
    for (seed, call) in [(1, sync as fn(&Db) -> Result<()>), (2, write_nothing), (3, delete_nothing)] {
        let sim = SimEnv::new(seed);
        let (db, mut model) = (open(&sim), Model::new());
        // Few enough to be in the open page.
        fill(&db, &mut model, 0..5, 0);
        // (LavaFS makes bytes durable with whatever it syncs next.)
        // A loss of power may keep unsynced bytes: some draw loses them.
        let is_lost = |draw| contents(&open(&sim.crash(POWER_LOSS, draw))) != model;
        assert!((0..20).any(is_lost) || on_lavafs(), "nothing has synced them");
        call(&db).unwrap();
        assert!(!(0..20).any(is_lost));
        // Without new writes the call returns at once.
        let ops = sim.op_count();
        call(&db).unwrap();
        assert!(on_lavafs() || sim.op_count() == ops, "there was nothing to sync");
        db.put(b"after", b"").unwrap();
        let found = contents(&open(&sim.crash(POWER_LOSS, seed)));
        assert!(model.iter().all(|(key, value)| found.get(key) == Some(value)));
    }
}

/// Data of a killed process is in the page cache, unsynced.
#[test]
fn sync_covers_recovered_data() {
    let sim = SimEnv::new(4);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..50, 0);
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    let db = open(&killed);
    assert!(contents(&db) == model);
    db.sync().unwrap();
    assert!(contents(&open(&killed.crash(POWER_LOSS, 2))) == model);
}

#[test]
fn sync_of_a_read_only_store_does_nothing() {
    let sim = SimEnv::new(5);
    drop(open(&sim));
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    fails(db.sync(), ErrorKind::ReadOnly);
}

#[test]
fn a_failed_sync_is_reported_and_poisons_the_store() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind};
    let sim = SimEnv::new(6);
    let db = open(&sim);
    db.put(b"k", b"v").unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&OpKind::SYNCS).sticky());
    fails(db.sync(), ErrorKind::Io);
    sim.clear_faults();
    fails(db.sync(), ErrorKind::Poisoned);
    fails(db.put(b"k", b"w"), ErrorKind::Poisoned);
}
