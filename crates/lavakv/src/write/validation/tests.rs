//! Writes that come between the two passes: before the writer's lock is taken, each time.

use super::*;
use crate::{Db, Options};
use io::sim::SimEnv;

fn store() -> Db {
    Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap()
}

/// A set with a key and a range.
fn reads(db: &Db) -> ReadSet {
    let (family, mut reads) = (db.default_column_family(), ReadSet::new(db.snapshot()));
    reads.add(family, b"key").unwrap();
    let range = reads.add_range(family, b"r").unwrap();
    reads.extend_range(range, Some(b"s")).unwrap();
    reads
}

/// Validates a set, with a call before the writer's lock is taken. Returns the number of attempts.
fn validate(db: &Db, reads: &ReadSet, mut between: impl FnMut(u32)) -> Result<u32> {
    let (writes, mut entered) = (&db.engine().writes, 0);
    let enter = || {
        entered += 1;
        between(entered);
        Ok(Entered::Open(writes.memtables.lock()))
    };
    // The first entry is before the first pass.
    reads.enter_unchanged(writes, enter).map(drop)?;
    Ok(entered - 1)
}

#[test]
fn a_change_between_the_passes_conflicts() {
    type Change = fn(&Db);
    let changes: [(Change, bool); 5] = [
        (|db| db.put(b"key", b"").unwrap(), true),
        (|db| db.delete(b"key").unwrap(), true),
        (|db| db.put(b"r/new", b"").unwrap(), true),
        (
            |db| db.delete_range_opt(db.default_column_family(), b"a", b"z", &Default::default()).unwrap(),
            true,
        ),
        (|db| db.put(b"other", b"").unwrap(), false),
    ];
    for (nth, (change, conflicts)) in changes.into_iter().enumerate() {
        let db = store();
        db.put(b"key", b"old").unwrap();
        let reads = reads(&db);
        let outcome = validate(&db, &reads, |entered| {
            if entered == 2 {
                change(&db)
            }
        });
        match outcome {
            Ok(attempts) => assert!(!conflicts && attempts == 1, "change {nth}, {attempts} attempts"),
            Err(e) => assert!(conflicts && e.kind() == ErrorKind::Conflict, "change {nth}: {e}"),
        }
    }
}

#[test]
fn a_flush_between_the_passes_repeats_the_first() {
    for conflicts in [false, true] {
        let db = store();
        db.put(b"key", b"old").unwrap();
        let reads = reads(&db);
        let outcome = validate(&db, &reads, |entered| {
            if entered == 2 {
                db.put(if conflicts { b"r/new" } else { b"other" }, b"").unwrap();
                db.flush().unwrap();
            }
        });
        match outcome {
            Ok(attempts) => assert!(!conflicts && attempts == 2, "{attempts} attempts"),
            Err(e) => assert!(conflicts && e.kind() == ErrorKind::Conflict, "{e}"),
        }
    }
}

#[test]
fn a_range_with_too_many_entries_is_given_up_under_constant_writes() {
    let db = store();
    (0..LOOKS_MAX as u32 + 10).for_each(|n| db.put(&[&b"r/"[..], &n.to_be_bytes()].concat(), b"").unwrap());
    let reads = reads(&db);
    let write = |entered: u32| db.put(&entered.to_be_bytes(), b"").unwrap();
    let e = validate(&db, &reads, write).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
    // Without a write between the passes nothing is looked at again.
    assert_eq!(validate(&db, &reads, |_| {}).unwrap(), 1);
}

#[test]
fn a_set_is_bounded_and_knows_its_ranges() {
    let db = store();
    let (family, mut reads) = (db.default_column_family(), reads(&db));
    let range = reads.add_range(family, b"").unwrap();
    let e = ReadSet::new(db.snapshot()).extend_range(range, None).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    let full =
        (0..u32::MAX).find_map(|n| reads.add(family, &[&n.to_be_bytes()[..], &[0; 1000]].concat()).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::TooLarge);
    // A range whose end moves back and forth is booked once.
    let mut reads = ReadSet::new(db.snapshot());
    let range = reads.add_range(family, b"").unwrap();
    for _ in 0..READ_SET_BYTES_MAX {
        reads.extend_range(range, Some(b"a long end")).unwrap();
        reads.extend_range(range, Some(b"a")).unwrap();
    }
}
