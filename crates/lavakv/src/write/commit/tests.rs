use super::*;
use crate::batch::Change;
use crate::write::admission::throttle_charge::ThrottleCharge;
use crate::{Db, FamilyOptions, Options};
use base::ValueKind;
use io::sim::SimEnv;

/// A store with memory for three memtables.
pub(crate) fn with_little_memory(sim: &SimEnv) -> Db {
    let family = FamilyOptions { min_blob_size: 0, ..FamilyOptions::default() };
    let options = Options { memtable_bytes: 32 << 10, memory_bytes: 96 << 10, family, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 512 << 10);
    Db::open_in(sim.env(), "/store", options).unwrap()
}

/// A store whose memory is nearly full. Only waiting calls run jobs.
fn nearly_full(sim: &SimEnv) -> Db {
    let db = with_little_memory(sim);
    let memory = &db.engine().space.memory;
    for i in 0u64.. {
        if memory.used() > (70 << 10) {
            break;
        }
        assert!(matches!(put(&db, &i.to_be_bytes(), &[7; 500]).step(u64::MAX).unwrap(), WriteStep::Done));
    }
    assert!(memory.backlog() > 0, "there is something to wait for");
    db
}

/// A buffered put without a throttle charge, not driven.
fn put<'a>(db: &'a Db, key: &'a [u8], value: &'a [u8]) -> WriteOp<'a> {
    let family = &db.default_column_family().0;
    let change = Change { kind: ValueKind::Value, family: family.id, key, value };
    let mut op = WriteOp::new(&db.engine().writes, Payload::of_test(family, change), Durability::Buffered);
    op.state.entry.payment = ThrottleCharge::of_write(0, false);
    op
}

fn needs_memory(op: &mut WriteOp<'_>) -> bool {
    matches!(op.step(u64::MAX).unwrap(), WriteStep::Needs(WaitCondition::Memory { .. }))
}

#[test]
fn a_write_waiting_for_memory_holds_no_lock_and_keeps_order() {
    let sim = SimEnv::new(1);
    let db = nearly_full(&sim);
    let (long, short) = (vec![1; 30 << 10], vec![2; 100]);
    assert!(
        put(&db, b"first", &short).step(u64::MAX).is_ok_and(|step| matches!(step, WriteStep::Done)),
        "it fits"
    );
    let (mut large, mut small) = (put(&db, b"large", &long), put(&db, b"small", &short));
    assert!(needs_memory(&mut large));
    assert!(db.engine().writes.memtables.try_lock().is_some(), "the writer's lock is free meanwhile");
    assert!(needs_memory(&mut small), "what there is is spoken for");
    assert!(needs_memory(&mut large) && needs_memory(&mut small), "asking again changes nothing");
    while needs_memory(&mut large) {
        assert!(db.run_background_step());
    }
    assert!(matches!(small.step(u64::MAX).unwrap(), WriteStep::Done));
    assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&long[..]));
    assert_eq!(db.get(b"small").unwrap().as_deref(), Some(&short[..]));
}

#[test]
fn an_abandoned_write_unblocks_later_ones() {
    let sim = SimEnv::new(2);
    let db = nearly_full(&sim);
    let (long, short) = (vec![1; 30 << 10], vec![2; 100]);
    let (mut large, mut small) = (put(&db, b"large", &long), put(&db, b"small", &short));
    assert!(needs_memory(&mut large) && needs_memory(&mut small));
    drop(large);
    assert!(matches!(small.step(u64::MAX).unwrap(), WriteStep::Done), "nobody is before it any more");
    assert_eq!(db.engine().writes.memtables.lock().queue.before(None), 0);
}

#[test]
fn a_dropped_family_ends_the_wait_for_its_level_0() {
    let sim = SimEnv::new(3);
    let db = nearly_full(&sim);
    let family = db.create_column_family("x", FamilyOptions::default()).unwrap();
    let need = WaitCondition::Levels((*family.0).clone());
    assert!(db.engine().writes.admission.is_met(&need), "its level 0 is empty");
    db.drop_column_family(&family).unwrap();
    assert!(db.engine().writes.admission.is_met(&need));
}

/// The last sequence is written; there is none after it.
#[test]
fn exhausted_sequence_numbers_refuse_the_write() {
    let sim = SimEnv::new(4);
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.engine().writes.memtables.lock().next_seq = base::MAX_SEQ;
    let mut two = crate::WriteBatch::new();
    two.put(b"b", b"2");
    two.put(b"c", b"3");
    for _ in 0..2 {
        let e = db.write(&two).unwrap_err();
        assert_eq!(
            (e.kind(), e.message()),
            (
                ErrorKind::TooLarge,
                "the store has used up its sequence numbers (2^56) and takes no more writes; reads go on: \
                 copy the data into a new store"
            )
        );
    }
    assert!(db.get(b"b").unwrap().is_none() && db.get(b"a").unwrap().as_deref() == Some(&b"1"[..]));
    db.put(b"d", b"4").unwrap();
    assert_eq!(db.get(b"d").unwrap().as_deref(), Some(&b"4"[..]));
    assert_eq!(db.put(b"e", b"5").unwrap_err().kind(), ErrorKind::TooLarge);
}

/// A duplicate sequence is a fault at which a memtable panics.
#[test]
fn a_panicking_insert_poisons_the_store_and_blocks_no_write() {
    let sim = SimEnv::new(5);
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    let volatile = crate::WriteOptions { durability: Some(Durability::Volatile), ..Default::default() };
    let cf = db.default_column_family();
    db.put_opt(cf, b"a", b"1", &volatile).unwrap();
    db.engine().writes.memtables.lock().next_seq = 1;
    let put = || db.put_opt(cf, b"a", b"2", &volatile);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(put)).is_err());
    let writes = &db.engine().writes;
    let e = writes.memtables.wait_visible(2).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io, "what is told of a write that was logged behind it");
    assert!(e.to_string().contains("a thread panicked while it put a write into the memtables"), "{e}");
    assert_eq!(db.put(b"b", b"3").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    db.close().unwrap_err();
}
