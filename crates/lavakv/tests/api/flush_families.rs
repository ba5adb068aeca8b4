//! A flush of chosen families is whole or not there, at every operation of a crash.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{ColumnFamily, Db, ErrorKind, WriteOptions};

const FAMILIES: [&str; 3] = ["a", "b", "c"];

fn families(db: &Db) -> Vec<ColumnFamily> {
    FAMILIES.map(|name| db.column_family(name).unwrap()).into()
}

/// Writes a round to all families without the log.
fn write(db: &Db, families: &[ColumnFamily], round: u64) {
    for (nth, family) in families.iter().enumerate() {
        for key in 0..20 + nth as u64 {
            db.put_opt(family, &self::key(key), &value(key, round), &WriteOptions::volatile()).unwrap();
        }
    }
}

/// The round that a family shows; 0: none.
fn round_of(db: &Db, family: &ColumnFamily) -> u64 {
    let found: Vec<u64> = (1..4)
        .filter(|round| db.get_cf(family, &key(3)).unwrap().is_some_and(|found| *found == *value(3, *round)))
        .collect();
    assert!(found.len() <= 1);
    found.first().copied().unwrap_or(0)
}

#[test]
fn a_crash_leaves_all_of_a_flush_or_nothing() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    for name in FAMILIES {
        db.create_column_family(name, small_family()).unwrap();
    }
    let (all, begun) = (families(&db), sim.op_count());
    let mut ends = Vec::new();
    for round in 1..4 {
        write(&db, &all, round);
        db.flush_families(&all.iter().collect::<Vec<_>>()).unwrap();
        ends.push(sim.op_count());
    }
    let (record, mut rounds) = (sim.record(), [0; 4]);
    for op in begun..=sim.op_count() {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            let after = record.crash_at(op, kind, op);
            let db = Db::open_in(env(&after), DIR, small()).unwrap();
            let seen: Vec<u64> = families(&db).iter().map(|family| round_of(&db, family)).collect();
            assert!(seen.iter().all(|round| *round == seen[0]), "at operation {op}: {seen:?}");
            let promised = ends.iter().filter(|end| **end <= op).count() as u64;
            assert!(seen[0] >= promised, "at operation {op}: {seen:?}, {promised} promised");
            rounds[seen[0] as usize] += 1;
        }
    }
    assert!(rounds.iter().all(|count| *count > 0), "{rounds:?}");
}

#[test]
fn families_that_were_not_chosen_stay_in_memory() {
    let sim = SimEnv::new(2);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    for name in FAMILIES {
        db.create_column_family(name, small_family()).unwrap();
    }
    let all = families(&db);
    write(&db, &all, 1);
    db.flush_families(&[&all[0], &all[1]]).unwrap();
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    let seen: Vec<u64> = families(&db).iter().map(|family| round_of(&db, family)).collect();
    assert_eq!(seen, [1, 1, 0]);
    let dropped = db.column_family("c").unwrap();
    db.drop_column_family(&dropped).unwrap();
    fails(db.flush_families(&[&dropped]), ErrorKind::NotFound);
    db.flush_families(&[]).unwrap();
}
