//! Who pays for what: a family for itself, and nothing for what is not written.

use super::*;
use crate::batch::Change;
use crate::batch::payload::Payload;
use crate::write::commit::{WriteOp, WriteStep};
use crate::{ColumnFamily, Db, Durability, FamilyOptions, Options, SpaceLimit, WriteBatch, WriteOptions};
use base::{ErrorKind, ValueKind};
use io::sim::SimEnv;

/// A store with two families; nobody runs jobs but who waits.
fn two(sim: &SimEnv) -> (Db, ColumnFamily, ColumnFamily) {
    let family = FamilyOptions { min_blob_size: 0, ..FamilyOptions::default() }.expert(|expert| {
        expert.l0_compaction_files = 2;
        expert.l0_slowdown_files = 2;
        expert.l0_stop_files = 10;
    });
    let options = Options {
        memtable_bytes: 64 << 10,
        memory_bytes: 4 << 20,
        family: family.clone(),
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 512 << 10);
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    let (a, b) =
        (db.create_column_family("a", family.clone()).unwrap(), db.create_column_family("b", family));
    (db, a, b.unwrap())
}

fn put<'a>(db: &'a Db, family: &'a ColumnFamily, value: &'a [u8]) -> WriteOp<'a> {
    let change = Change { kind: ValueKind::Value, family: family.id(), key: b"key", value };
    WriteOp::new(&db.engine().writes, Payload::of_test(&family.0, change), Durability::Buffered)
}

/// Level 0 of the family has so many tables, and nobody compacts them.
fn deepen(db: &Db, family: &ColumnFamily, tables: usize) {
    let engine = db.engine();
    while family.0.read_state().chain.l0_depth < tables {
        let mut batch = WriteBatch::new();
        batch.put_cf(family, b"key", b"value");
        // What it would have to wait for is looked at by who calls this.
        let mut op = WriteOp::new(&engine.writes, Payload::batch(&batch), Durability::Buffered);
        while let WriteStep::Needs(need) = op.step(u64::MAX).unwrap() {
            engine.writes.admission.wait(&need, u64::MAX);
        }
        engine.writes.memtables.freeze_all(&mut engine.writes.memtables.lock());
        crate::work::jobs::flush::run_inline(&engine.jobs).unwrap();
    }
}

fn is_done(step: Result<WriteStep>) -> bool {
    matches!(step.unwrap(), WriteStep::Done)
}

#[test]
fn a_family_at_its_stop_stops_nobody_else() {
    let sim = SimEnv::new(1);
    let (db, a, b) = two(&sim);
    deepen(&db, &a, 10);
    let value = [7; 100];
    for _ in 0..300 {
        assert!(is_done(put(&db, &b, &value).step(u64::MAX)), "the other family waits for nothing");
    }
    let of_its_own = |op: &mut WriteOp<'_>| loop {
        match op.step(u64::MAX).unwrap() {
            WriteStep::Needs(Need::Levels(full)) => break assert_eq!(full.id, a.id()),
            WriteStep::Needs(Need::Time(..)) => {}
            _ => panic!("level 0 of the family is full"),
        }
    };
    of_its_own(&mut put(&db, &a, &value));
    let mut both = WriteBatch::new();
    both.put_cf(&b, b"key", &value);
    both.put_cf(&a, b"key", &value);
    of_its_own(&mut WriteOp::new(&db.engine().writes, Payload::batch(&both), Durability::Buffered));
    assert!(is_done(put(&db, &b, &value).step(u64::MAX)), "what waits for both holds nobody up");
}

/// Near its stop the rate of level 0 is low. However many writers wait for it, none waits longer than the budget.
#[test]
fn a_queue_for_level_0_waits_no_longer_than_the_budget() {
    let sim = SimEnv::new(3);
    let (db, a, _b) = two(&sim);
    deepen(&db, &a, 9);
    let budget_ns = saturating_ns(db.engine().context.options.stall_budget);
    let value = [7; 200];
    let mut queue: Vec<_> = (0..2000).map(|_| put(&db, &a, &value)).collect();
    let waits = queue.iter_mut().map(|op| match op.step(u64::MAX).unwrap() {
        WriteStep::Needs(Need::Time(ns, StallCause::L0)) => ns,
        _ => 0,
    });
    let waits: Vec<u64> = waits.collect();
    assert_eq!(waits.iter().max(), Some(&budget_ns), "{waits:?}");
}

/// Both are slowed down for their level 0: what the one owes is not the other's to wait for.
#[test]
fn a_family_pays_for_its_own_level_0() {
    let sim = SimEnv::new(2);
    let (db, a, b) = two(&sim);
    deepen(&db, &a, 5);
    deepen(&db, &b, 5);
    sim.env().clock.sleep_ns(1_000_000_000);
    let long = vec![7; 60 << 10];
    let owing = |op: &mut WriteOp<'_>| match op.step(u64::MAX).unwrap() {
        WriteStep::Needs(Need::Time(ns, StallCause::L0)) => ns,
        _ => panic!("it has a price"),
    };
    let mut all: Vec<WriteOp<'_>> = (0..20).map(|_| put(&db, &a, &long)).collect();
    let longest = all.iter_mut().map(owing).max().unwrap();
    assert!(longest > 5_000_000, "they wait for one another: {longest} ns");
    assert!(is_done(put(&db, &b, b"short").step(u64::MAX)), "and not so the other family");
    let mut both = WriteBatch::new();
    both.put_cf(&b, b"key", b"short");
    both.put_cf(&a, b"key", b"short");
    let mut both = WriteOp::new(&db.engine().writes, Payload::batch(&both), Durability::Buffered);
    assert!(owing(&mut both) > 5_000_000, "a batch over both waits for the slower");
}

/// A value with a file of its own that finds no room owes nothing for what was not written.
#[test]
fn a_segment_that_is_refused_owes_nothing() {
    let sim = SimEnv::new(3);
    let options = Options {
        memtable_bytes: 64 << 10,
        memory_bytes: 256 << 10,
        space_limit: Some(SpaceLimit::Bytes(40 << 20)),
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 512 << 10);
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    let (family, piece) = (db.default_column_family(), vec![1; 200 << 10]);
    let mut nth = 0u64;
    let refused = loop {
        nth += 1;
        if let Err(e) = db.put_opt(family, &nth.to_be_bytes(), &piece, &WriteOptions::default()) {
            break e;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    sim.env().clock.sleep_ns(1_000_000_000);
    let owed = || db.engine().writes.admission.gate.pacer.owed_ns(db.engine().context.now_ns());
    assert_eq!(owed(), 0);
    let mut refused = 0;
    for _ in 0..20 {
        // Not said beforehand, so it is paid and asked for a piece at a time.
        let mut stream = db.put_stream(family, b"stream", WriteOptions::default().no_wait()).unwrap();
        refused +=
            usize::from((0..8).any(|_| stream.append(&[2; 5000]).is_err() || stream.append(&piece).is_err()));
    }
    assert_eq!((refused, owed()), (20, 0), "what is refused has paid for nothing");
}

/// The limits on a write of 100 bytes. They take its part of the credit.
fn limits(db: &Db, family: &ColumnFamily) -> Vec<(u64, StallCause)> {
    let families = std::slice::from_ref(&*family.0);
    let limits = Payment::of_write(100, false).limits(&db.engine().writes.admission, families);
    limits.iter().map(|limit| (limit.rate, limit.cause)).collect()
}

/// A stuck flush raises no event, and in simulation no time passes: the credit alone ends the verdict.
#[test]
fn a_stuck_flush_shows_before_the_memory_is_used_up() {
    let sim = SimEnv::new(4);
    let (db, a, _) = two(&sim);
    let memory = &db.engine().space.memory;
    memory.grew(1 << 20);
    memory.froze(1 << 20);
    let rate = || match limits(&db, &a)[..] {
        [(rate, StallCause::Memory)] => rate,
        ref others => panic!("memory is the limit: {others:?}"),
    };
    let first = rate();
    let max = db.engine().context.memtables_bytes_max;
    let mut last = first;
    while memory.used() + 100 < max {
        memory.grew(100);
        last = rate();
    }
    assert!(last < first / 3, "{first} bytes per second at first, {last} at the end");
}

/// The write before the last flush leaves a credit: the flush voids it.
#[test]
fn a_verdict_of_before_a_flush_does_not_hold_after_it() {
    let sim = SimEnv::new(5);
    let (db, a, _) = two(&sim);
    deepen(&db, &a, 2);
    assert_eq!(limits(&db, &a), [], "level 0 is below its slowdown");
    deepen(&db, &a, 3);
    assert!(matches!(limits(&db, &a)[..], [(_, StallCause::L0)]), "and now it is above");
}

/// The volume gets smaller: a credit from before does not admit writes as if it were large.
#[test]
fn a_lower_limit_voids_the_credit() {
    let sim = SimEnv::new(6);
    let (db, a, _) = two(&sim);
    // Of a small store the volume is no limit.
    for n in 0..40u8 {
        db.put_cf(&a, &[n], &vec![n; 1 << 20]).unwrap();
    }
    while db.run_background_step() {}
    assert_eq!(limits(&db, &a), [], "there is no limit");
    let used_bytes = db.engine().space.used_bytes();
    sim.set_capacity(Some(used_bytes + (1 << 20)));
    db.engine().space.volume_is_full();
    db.engine().tree.refresh_space();
    let after = limits(&db, &a);
    assert!(matches!(after[..], [(_, StallCause::Space)]), "there is hardly any room: {after:?}");
}
