use super::*;
use crate::write::memtables::visibility_ring::InFlightInsert;
use crate::{Db, Options};
use base::ValueKind;
use io::sim::SimEnv;
use std::time::Duration;

fn put(db: &Db, key: &[u8], durability: Durability) -> PendingWrite {
    let writes = &db.engine().writes;
    let patience = WriteDeadline::new(&writes.context, Some(Duration::ZERO));
    let family = (*db.default_column_family().0).clone();
    let payload = OwnedPayload::one(family, ValueKind::Value, key.to_vec(), b"v".to_vec());
    PendingWrite::new(writes, payload, WriteTerms { durability, patience }, None)
}

/// Begins an insert, as another thread would.
fn insert_in_flight(db: &Db) -> InFlightInsert<'_> {
    let memtables = &db.engine().writes.memtables;
    let mut writer = memtables.lock();
    writer.next_seq += 1;
    memtables.order.begin(writer.next_seq - 1)
}

/// The store fails while a logged write waits for an earlier insert.
#[test]
fn a_failed_store_acknowledges_no_write_awaiting_visibility() {
    for durability in [Durability::Volatile, Durability::Buffered] {
        let sim = SimEnv::new(2);
        let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
        let before = insert_in_flight(&db);
        let mut write = put(&db, b"k", durability);
        assert_eq!(write.advance(false).unwrap(), WriteProgress::Device);
        db.engine().context.health.poison(&Error::new(ErrorKind::Io, "the manifest, say"));
        before.done();
        assert_eq!(write.advance(true).unwrap_err().kind(), ErrorKind::Io, "{durability:?}");
    }
}

/// While another thread inserts a write, a caller that must not block does not wait for it, and the
/// logged write cannot be refused any more.
#[test]
fn a_nonblocking_write_does_not_wait_for_visibility() {
    for durability in [Durability::Volatile, Durability::Buffered, Durability::Durable] {
        let sim = SimEnv::new(1);
        let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
        let before = insert_in_flight(&db);
        let mut write = put(&db, b"k", durability);
        for _ in 0..3 {
            assert_eq!(write.advance(false).unwrap(), WriteProgress::Device);
            assert_eq!(write.expired(u64::MAX - 1).map(|e| e.kind()), None, "it is written");
        }
        let told = write.given_up(Error::new(ErrorKind::Closed, "the store was closed"));
        assert_eq!(told.kind(), ErrorKind::Io, "nobody may think that it was not");
        assert_eq!(db.get(b"k").unwrap().as_deref(), None);
        before.done();
        let stand = write.advance(false).unwrap();
        match durability {
            Durability::Durable => assert!(matches!(stand, WriteProgress::Logged(..))),
            _ => assert_eq!(stand, WriteProgress::Done),
        }
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}
