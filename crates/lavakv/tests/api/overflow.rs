//! Replay of the log of many busy families with little memory.

use crate::common::DIR;
use lavastore_lavakv::sim::{CrashKind, OpKind, Policy, SimEnv};
use lavastore_lavakv::{ColumnFamily, Db, Durability, Options, WriteBatch, WriteOptions};

/// Options of a store without flushes.
fn roomy() -> Options {
    Options { memtable_bytes: 16 << 20, memory_bytes: 64 << 20, ..Options::default() }.expert(|expert| {
        expert.log_group_bytes = 1 << 20;
        expert.wal_bytes_max = 64 << 20;
    })
}

/// Options of the opening, with little memory.
fn narrow(memory_bytes: usize) -> Options {
    Options { memtable_bytes: memory_bytes / 4, memory_bytes, ..roomy() }
}

fn family(db: &Db, nth: usize) -> ColumnFamily {
    db.column_family(&format!("f{nth}")).unwrap()
}

fn value(batch: usize) -> Vec<u8> {
    batch.to_le_bytes().repeat(25)
}

/// Kills a store with `batches` batches in its log, each over a family and its neighbor.
fn killed(seed: u64, families: usize, batches: usize) -> SimEnv {
    let sim = SimEnv::new(seed);
    let db = Db::open_in(sim.env(), DIR, roomy()).unwrap();
    let made = |nth| db.create_column_family(&format!("f{nth}"), Default::default()).unwrap();
    let made: Vec<ColumnFamily> = (0..families).map(made).collect();
    let buffered = WriteOptions { durability: Some(Durability::Buffered), ..WriteOptions::default() };
    for nth in 0..batches {
        let mut batch = WriteBatch::new();
        batch.put_cf(&made[nth % families], &nth.to_be_bytes(), &value(nth));
        batch.put_cf(&made[(nth + 1) % families], &nth.to_be_bytes(), &value(nth));
        db.write_opt(&batch, &buffered).unwrap();
    }
    assert_eq!(db.stats().flushes, 0);
    let after = sim.crash(CrashKind::ProcessKill, seed);
    drop((made, db));
    after
}

/// Returns the number of batches in the store. Checks that they are a prefix, each complete.
fn whole_batches(db: &Db, families: usize, batches: usize) -> usize {
    let made: Vec<ColumnFamily> = (0..families).map(|nth| family(db, nth)).collect();
    let has = |nth: usize, of: usize| {
        let found = db.get_cf(&made[of % families], &nth.to_be_bytes()).unwrap();
        found.is_some_and(|found| found == value(nth))
    };
    let mut end = batches;
    for nth in 0..batches {
        let both = (has(nth, nth), has(nth, nth + 1));
        assert_eq!(both.0, both.1, "half of batch {nth}");
        if !both.0 {
            end = end.min(nth);
        }
        assert!(nth < end || !both.0, "batch {nth} is there, and {end} is not");
    }
    end
}

/// About 10 MB of log in 2 MB of memory make few tables, whose size follows from memory and
/// families.
#[test]
fn replay_of_many_families_makes_few_tables() {
    let (families, batches) = (100, 20_000);
    let sim = killed(1, families, batches);
    let options = narrow(4 << 20);
    let db = Db::open_in(sim.env(), DIR, options.clone()).unwrap();
    let tables = sim.count_ops(Some(OpKind::Create), ".ksst");
    let syncs = sim.count_ops(Some(OpKind::Sync), ".ksst");
    assert!((100..800).contains(&tables), "{tables} tables");
    assert_eq!(syncs, tables, "each is synced once");
    let rounds = sim.count_ops(Some(OpKind::SyncDir), "");
    assert!((10..60).contains(&rounds), "{rounds} syncs of the directory");
    assert_eq!(whole_batches(&db, families, batches), batches);
    let used = db.space().unwrap().memtable_bytes;
    // The last piece is counted after its insert.
    let (half, lot) = (options.memory_bytes as u64 / 2, options.memory_bytes as u64 / 64);
    assert!(used <= half + 2 * lot, "{used} bytes in memory");
    assert!(used > 0, "memtables at the end of the log stay in memory");
}

/// Kills and power losses during the open, also with lost unsynced writes: no batch is torn, and a
/// kill loses none.
#[test]
fn an_interrupted_open_leaves_whole_batches() {
    let (families, batches) = (40, 3000);
    let sim = killed(2, families, batches);
    let begin = sim.op_count();
    let db = Db::open_in(sim.env(), DIR, narrow(512 << 10)).unwrap();
    let rounds = db.stats().flushes;
    assert!(rounds > 2 * families as u64, "{rounds} tables");
    let record = sim.record();
    drop(db);
    let moments: Vec<u64> = record.mutations().into_iter().filter(|op| *op >= begin).collect();
    let (mut ends, step) = (Vec::new(), moments.len() / 60 + 1);
    for (nth, at) in moments.iter().enumerate().step_by(step) {
        let kinds = [
            CrashKind::ProcessKill,
            CrashKind::PowerLoss,
            CrashKind::PowerLossWith(Policy::Dropped),
            CrashKind::PowerLossWith(Policy::Stale),
        ];
        let kind = kinds[nth / step % kinds.len()];
        let after = record.crash_at(*at, kind, *at);
        let db = Db::open_in(after.env(), DIR, narrow(512 << 10)).unwrap();
        let end = whole_batches(&db, families, batches);
        assert!(kind != CrashKind::ProcessKill || end == batches, "{end} batches after operation {at}");
        ends.push(end);
    }
    assert!(ends.len() > 30 && ends.contains(&batches), "{ends:?}");
}

/// A thousand families with one record each cause no flush.
#[test]
fn a_log_that_fits_into_memory_is_not_flushed() {
    let (families, batches) = (1000, 1000);
    let sim = killed(3, families, batches);
    let db = Db::open_in(sim.env(), DIR, narrow(16 << 20)).unwrap();
    assert_eq!(db.stats().flushes, 0);
    assert_eq!(whole_batches(&db, families, batches), batches);
}
