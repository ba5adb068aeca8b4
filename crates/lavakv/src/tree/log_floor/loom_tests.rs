//! Every interleaving of a writer, a flush and a computation of the log floor.

use super::*;
use crate::context::options::Options;
use crate::tree::family::Family;
use base::ValueKind;
use base::sync::model::atomic::{AtomicU64, Ordering};
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;
use version::Version;

struct Store {
    snapshots: Snapshots,
    family: Family,
    /// All sequences below it are in durable tables.
    flushed_end: AtomicU64,
}

impl Store {
    fn new() -> Arc<Store> {
        let options = Options::default();
        let version = Arc::new(Version::new(1));
        let family =
            Family::new(1, "f".into(), options.family.clone(), version, 1, &options, Default::default());
        Arc::new(Store { snapshots: Snapshots::default(), family, flushed_end: AtomicU64::new(1) })
    }

    /// Inserts and publishes a write that is in the log.
    fn write(&self, seq: SeqNo) {
        let key = [seq as u8];
        self.family.read_state().active.insert(seq, ValueKind::Value, &key, b"v");
        self.snapshots.publish(seq);
    }

    /// Flushes all frozen memtables, the edit first.
    fn flush(&self) {
        let read_state = self.family.read_state();
        let Some(end) =
            read_state.frozen.iter().filter_map(|m| m.seq_range()).map(|(_, high)| high + 1).max()
        else {
            return;
        };
        self.flushed_end.store(end, Ordering::Release);
        let ids: Vec<u64> = read_state.frozen.iter().map(|m| m.id()).collect();
        self.family.install(Arc::new(Version::new(1)), None, &ids, 0);
    }

    /// Checks that the floor is not above the durably flushed sequences.
    fn check_floor(&self) {
        let floor = log_floor(&self.snapshots, || self.family.read_state().oldest_unflushed_seq());
        let flushed_end = self.flushed_end.load(Ordering::Acquire);
        assert!(
            floor <= flushed_end,
            "the floor is {floor}, and only what is below {flushed_end} is in tables"
        );
    }
}

fn spawn(store: &Arc<Store>, body: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || body(&store))
}

/// The memtables are empty, and a write begins and ends during the computation of the floor.
#[test]
fn loom_no_write_is_below_the_floor() {
    check(3, || {
        let store = Store::new();
        let writer = spawn(&store, |store| {
            store.write(1);
            store.write(2);
        });
        store.check_floor();
        writer.join().unwrap();
        store.check_floor();
    });
}

/// A writer rotates its memtable while a flush runs.
#[test]
fn loom_the_floor_follows_the_flush() {
    check(2, || {
        let store = Store::new();
        store.write(1);
        let writer = spawn(&store, |store| {
            store.family.rotate(2);
            store.write(2);
        });
        let flush = spawn(&store, Store::flush);
        store.check_floor();
        writer.join().unwrap();
        flush.join().unwrap();
        store.flush();
        assert_eq!(log_floor(&store.snapshots, || store.family.read_state().oldest_unflushed_seq()), 2);
    });
}
