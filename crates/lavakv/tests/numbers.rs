//! Sequences, file numbers, log groups and log pages that cross 2^32: no number may be truncated to
//! 32 bits on the way to disk or back.

mod common;

use common::*;
use lavastore_lavakv::sim::{CrashKind, Policy, SimEnv};
use lavastore_lavakv::{Db, Options, WriteOptions};

const FIRST: u64 = (1 << 32) - 10;

fn near_the_edge() -> Options {
    small().expert(|expert| expert.first_number = FIRST)
}

fn open(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, near_the_edge()).unwrap()
}

/// Returns the highest number in the names of tables.
fn highest_table(sim: &SimEnv) -> u64 {
    let numbers = files_like(sim, ".ksst").into_iter().map(|n| n.split('.').next().unwrap().parse().unwrap());
    numbers.max().unwrap()
}

/// Returns the highest group number and page number in the log's pages (see `docs/format/wal.md`).
fn highest_in_log(sim: &SimEnv) -> (u64, u64) {
    let word = |page: &[u8], at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let mut highest = (0, 0);
    for name in files_like(sim, ".log") {
        for page in sim.read_file(path(&name)).unwrap().chunks(4096).filter(|p| p.starts_with(b"LWAL")) {
            highest = (highest.0.max(word(page, 32)), highest.1.max(word(page, 40)));
        }
    }
    highest
}

#[test]
fn every_number_crosses_two_to_the_thirty_second() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(1);
    let mut model = Model::new();
    {
        let db = open(&sim);
        assert!(files(&sim).iter().any(|(name, _)| name.contains("42949672")), "{:?}", files(&sim));
        // Single puts up to the edge and over it, each read back.
        for i in 0..20 {
            assert_eq!(db.snapshot().sequence(), FIRST - 1 + i);
            fill(&db, &mut model, i..i + 1, 0);
            assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&value(i, 0)[..]));
        }
        db.close().unwrap();
    }
    for round in 1..4 {
        let db = open(&sim);
        assert!(contents(&db) == model, "round {round}");
        let snapshot = db.snapshot();
        let before = model.clone();
        fill(&db, &mut model, 0..3000, round);
        db.delete_range(&key(100), &key(200)).unwrap();
        model.retain(|k, _| !(key(100)..key(200)).contains(k));
        db.put_opt(db.default_column_family(), b"durable", &[round as u8], &WriteOptions::durable()).unwrap();
        model.insert(b"durable".to_vec(), vec![round as u8]);
        db.flush().unwrap();
        let options = lavastore_lavakv::ReadOptions { snapshot: Some(snapshot), ..Default::default() };
        let then: Model = db.iter(options).unwrap().entries().map(|e| e.unwrap()).collect();
        assert!(then == before, "round {round}");
        settle(&db);
        assert!(contents(&db) == model, "round {round}");
        assert!(db.verify().unwrap().errors.is_empty());
        if round == 2 {
            db.compact_range(db.default_column_family(), None, None).unwrap();
        }
        db.close().unwrap();
    }
    let db = open(&sim);
    assert!(db.snapshot().sequence() > 1 << 32);
    assert!(highest_table(&sim) > 1 << 32);
    let (group, page) = highest_in_log(&sim);
    assert!(group > 1 << 32 && page > 1 << 32, "group {group}, page {page}");
    assert!(contents(&db) == model);
}

/// Crashes on both sides of the edge.
#[test]
fn crashes_around_two_to_the_thirty_second_are_recovered() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let mut model = Model::new();
    let mut acknowledged = vec![(sim.op_count(), model.clone())];
    for i in 0..1200 {
        let durable = WriteOptions::durable();
        db.put_opt(db.default_column_family(), &key(i % 300), &value(i, 1), &durable).unwrap();
        model.insert(key(i % 300), value(i, 1));
        if i < 30 || i % 40 == 0 {
            acknowledged.push((sim.op_count(), model.clone()));
        }
        if i % 400 == 399 {
            db.flush().unwrap();
        }
    }
    let record = sim.record();
    for (n, (op, model)) in acknowledged.iter().enumerate() {
        let policies = [
            CrashKind::ProcessKill,
            CrashKind::PowerLossWith(Policy::Dropped),
            CrashKind::PowerLossWith(Policy::Stale),
        ];
        for kind in policies {
            let after = record.crash_before(*op, kind, n as u64);
            let db = open(&after);
            assert!(contents(&db) == *model, "state {n}, {kind:?}");
            db.put(b"and on", b"1").unwrap();
            db.flush().unwrap();
            assert_eq!(contents(&db).len(), model.len() + 1);
        }
    }
}
