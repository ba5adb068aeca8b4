mod schedules;

use super::{AdmissionAttempts, RotationSearch, WaitCondition};
use crate::batch::Change;
use crate::batch::payload::Payload;
use crate::context::sizes::tests::SUMS;
use crate::tree::family::tests::STEPS;
use crate::write::admission::wait_condition::{ReserveShare, SpaceRequest};
use crate::{Db, FamilyOptions, Options, SpaceLimit, WriteOptions};
use base::ValueKind;
use io::sim::SimEnv;

const FAMILIES: usize = 1_000;
/// Most families that one put may visit under the writer's lock, whatever their number.
const STEPS_MAX: u64 = 16;

/// Writes to each family in turn, so that none of them fills up: the shared memory, or the log's
/// bound, runs out. Returns the number of flushes.
fn steps_of_puts(options: Options, rounds: u64) -> u64 {
    let sim = SimEnv::new(7);
    let options = Options { family: FamilyOptions { min_blob_size: 0, ..options.family }, ..options };
    let db = Db::open_in(sim.env(), "/store", options.clone()).unwrap();
    let families: Vec<_> = (0..FAMILIES)
        .map(|i| db.create_column_family(&format!("{i}"), options.family.clone()).unwrap())
        .collect();
    while db.run_background_step() {}
    let before = db.stats().flushes;
    for round in 0..rounds {
        for family in &families {
            let asked = STEPS.get();
            db.put_opt(family, &round.to_be_bytes(), &[7; 1000], &WriteOptions::buffered()).unwrap();
            let steps = STEPS.get() - asked;
            assert!(
                steps <= STEPS_MAX,
                "a put in round {round} asked {steps} families under the writer's lock"
            );
        }
        // Jobs measure the length of the log.
        while db.run_background_step() {}
    }
    assert!(STEPS.get() > 0, "somebody counts");
    db.stats().flushes - before
}

#[test]
fn memory_is_freed_without_walking_families_under_lock() {
    let options = Options { memtable_bytes: 1 << 20, memory_bytes: 8 << 20, ..Options::default() };
    assert!(steps_of_puts(options, 12) > 0, "memory did end");
}

#[test]
fn the_log_is_shortened_without_walking_families_under_lock() {
    let options =
        Options { memtable_bytes: 1 << 20, memory_bytes: 64 << 20, ..Options::default() }.expert(|expert| {
            expert.log_group_bytes = 256 << 10;
            expert.wal_bytes_max = 4 << 20;
        });
    assert!(steps_of_puts(options.clone(), 12) > 0, "the log did become too long");
    let limited = Options { space_limit: Some(SpaceLimit::Bytes(256 << 20)), ..options };
    assert!(steps_of_puts(limited, 12) > 0, "nor where space is limited");
}

/// At its search all memtables with changes were being flushed. Since then other writes have filled
/// the returned memory.
#[test]
fn a_failed_search_for_memory_is_repeated() {
    let (sim, family) = (SimEnv::new(8), FamilyOptions { min_blob_size: 0, ..FamilyOptions::default() });
    let options = Options {
        memtable_bytes: 64 << 10,
        memory_bytes: 128 << 10,
        family: family.clone(),
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 512 << 10);
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    let families: Vec<_> =
        (0..3).map(|n| db.create_column_family(&format!("{n}"), family.clone()).unwrap()).collect();
    let (writes, memory) = (&db.engine().writes, &db.engine().space.memory);
    for nth in (0u64..).take_while(|_| memory.used() <= 100 << 10) {
        db.put_cf(&families[nth as usize % 3], &nth.to_be_bytes(), &[7; 1000]).unwrap();
        writes.memtables.wait_for_inserts();
    }
    assert_eq!(memory.backlog(), 0, "nothing was frozen");
    let value = [7; 30 << 10];
    let change = Change { kind: ValueKind::Value, family: families[0].0.id, key: b"k", value: &value };
    let payload = Payload::of_test(&families[0].0, change);
    let find = |largest| {
        let mut tried = AdmissionAttempts { largest, ..AdmissionAttempts::NONE };
        writes.admission.find_memory(&mut writes.memtables.lock(), &payload, &mut tried).unwrap()
    };
    assert!(matches!(find(Some(None)), Some(WaitCondition::Look(RotationSearch::Largest))));
    assert_eq!(memory.backlog(), 0, "nothing was frozen");
    // The second search finds a family, freezes it, and waits for it.
    assert!(matches!(find(Some(Some((*families[1].0).clone()))), Some(WaitCondition::Memory { .. })));
    assert!(memory.backlog() > 0);
}

/// A write without room recomputes limit and reserve under the lock of all writers.
#[test]
fn a_full_store_does_not_walk_families_under_the_write_lock() {
    let sim = SimEnv::new(10);
    let options = Options { space_limit: Some(SpaceLimit::Bytes(256 << 20)), ..Options::default() };
    let db = Db::open_in(sim.env(), "/store", options.clone()).unwrap();
    for i in 0..FAMILIES {
        db.create_column_family(&format!("{i}"), options.family.clone()).unwrap();
    }
    let writes = &db.engine().writes;
    for share in [ReserveShare::None, ReserveShare::Half, ReserveShare::All] {
        let (asked, summed, now_ns) = (STEPS.get(), SUMS.get(), db.engine().context.now_ns());
        let ask = SpaceRequest { bytes: 1 << 40, share };
        // Refused, or told to wait for space that jobs may free.
        let admitted = writes.admission.admit(&mut writes.memtables.lock(), ask, now_ns);
        assert!(!matches!(admitted, Ok(None)), "there is no such room");
        assert!(SUMS.get() > summed, "the reserve was worked out");
        assert!(STEPS.get() - asked <= STEPS_MAX, "{} families were asked", STEPS.get() - asked);
    }
}

#[test]
fn flush_visits_only_families_with_changes() {
    let (sim, options) = (SimEnv::new(9), Options::default());
    let db = Db::open_in(sim.env(), "/store", options.clone()).unwrap();
    let families: Vec<_> = (0..FAMILIES)
        .map(|i| db.create_column_family(&format!("{i}"), options.family.clone()).unwrap())
        .collect();
    let write = |db: &Db, nth: u64| {
        for name in ["3", "500", "999"] {
            db.put_cf(&db.column_family(name).unwrap(), &nth.to_be_bytes(), b"v").unwrap();
        }
    };
    let flushes_in_steps = |db: &Db| {
        let asked = STEPS.get();
        db.flush().unwrap();
        STEPS.get() - asked
    };
    assert_eq!(flushes_in_steps(&db), 0, "nobody has changes");
    write(&db, 0);
    assert!((3..=STEPS_MAX).contains(&flushes_in_steps(&db)));
    assert_eq!(flushes_in_steps(&db), 0, "all are in tables");
    // A dropped family is not visited, and its changes are discarded.
    write(&db, 1);
    db.drop_column_family(&families[500]).unwrap();
    assert!((2..=STEPS_MAX).contains(&flushes_in_steps(&db)));
    assert_eq!(db.engine().space.memory.used(), 0);
    // Replayed writes count as changes.
    db.put_cf(&families[3], b"k", b"v").unwrap();
    drop((families, db));
    let left = sim.crash(io::sim::CrashKind::ProcessKill, 1);
    let db = Db::open_in(left.env(), "/store", options).unwrap();
    assert!(db.engine().space.memory.used() > 0);
    assert!((1..=STEPS_MAX).contains(&flushes_in_steps(&db)));
    assert_eq!(db.engine().space.memory.used(), 0);
}

#[test]
fn a_stale_rotation_candidate_is_not_rotated() {
    let sim = SimEnv::new(8);
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    let (engine, family) = (db.engine(), &db.default_column_family().0);
    let frozen = || family.look(|seen| seen.frozen.len());
    db.put(b"a", b"1").unwrap();
    let found = engine.tree.families.oldest_unflushed().unwrap();
    db.flush().unwrap();
    db.put(b"b", b"2").unwrap();
    engine.writes.admission.freeze_oldest(&mut engine.writes.memtables.lock(), &found);
    assert_eq!(frozen(), 0, "a is in a table, and b is no reason");
    let found = engine.tree.families.oldest_unflushed().unwrap();
    engine.writes.admission.freeze_oldest(&mut engine.writes.memtables.lock(), &found);
    assert_eq!(frozen(), 1);
}
