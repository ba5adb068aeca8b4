//! A device that takes its time over one sync holds up nobody who does not wait for that sync.
//!
//! The sync of a file of placed values is held for as long as the test wants. What else happens meanwhile is decided by the
//! order of events, not by time: the sync goes on when the others have come to their end.

use crate::common::*;
use lavastore_lavakv::{Db, Durability, ErrorKind, FamilyOptions, Options, ValuePlacement, WriteOptions};
use lavastore_lavakv::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Whether syncs of value files are held, how many are, how many tables were synced, and how many value files.
#[derive(Debug, Default)]
struct Syncs {
    state: Mutex<(bool, usize, usize, usize)>,
    changed: Condvar,
}

impl Syncs {
    fn change(&self, change: impl FnOnce(&mut (bool, usize, usize, usize))) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn hold(&self, on: bool) {
        self.change(|state| state.0 = on);
    }

    fn wait_until(&self, holds: impl Fn(&(bool, usize, usize, usize)) -> bool) {
        let mut state = self.state.lock().unwrap();
        while !holds(&state) {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// In place of a sync.
    fn at(&self, extension: &str, sync: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        if extension == "vsst" {
            self.change(|state| state.1 += 1);
            self.wait_until(|state| !state.0);
            self.change(|state| (state.1, state.3) = (state.1 - 1, state.3 + 1));
        }
        let synced = sync();
        if extension == "ksst" {
            self.change(|state| state.2 += 1);
        }
        synced
    }
}

/// A store whose family `one` has its values placed in the log.
fn store(tmp: &TempDir, syncs: &Arc<Syncs>, fails: Arc<AtomicBool>) -> Db {
    store_with(Options { memory_bytes: 1 << 20, ..small() }, tmp, syncs, fails)
}

fn store_with(options: Options, tmp: &TempDir, syncs: &Arc<Syncs>, fails: Arc<AtomicBool>) -> Db {
    let seen = syncs.clone();
    let env = around_syncs(move |path, sync| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        seen.at(extension, sync)?;
        match extension == "vsst" && fails.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the device lost it")),
            false => Ok(()),
        }
    });
    let options = Options { durability: Durability::Buffered, ..options };
    let db = Db::open_in(env, tmp.join("store"), options).unwrap();
    let placed = FamilyOptions { value_placement: ValuePlacement::Log, ..small_family() };
    db.create_column_family("one", placed).unwrap();
    db
}

/// Runs `others` while a durable write of key 1 waits for the sync of its value; what became of that write.
fn while_held(db: &Db, syncs: &Syncs, others: impl FnOnce() + Send) -> Result<()> {
    let one = db.column_family("one").unwrap();
    beside(syncs, || db.put_opt(&one, &key(1), &[1; 2000], &WriteOptions::durable()), others)
}

/// Runs `others` while `waits` waits for a sync of values; what became of it.
fn beside(
    syncs: &Syncs,
    waits: impl FnOnce() -> Result<()> + Send,
    others: impl FnOnce() + Send,
) -> Result<()> {
    let acknowledged = AtomicBool::new(false);
    syncs.hold(true);
    std::thread::scope(|scope| {
        let durable = scope.spawn(|| {
            let written = waits();
            acknowledged.store(true, Ordering::SeqCst);
            written
        });
        syncs.wait_until(|state| state.1 > 0);
        let (done, ended) = mpsc::channel();
        scope.spawn(move || {
            others();
            done.send(()).unwrap();
        });
        // Nothing depends on this but how a failure is told: without it, the test would hang.
        let ended = ended.recv_timeout(Duration::from_secs(60));
        let early = acknowledged.load(Ordering::SeqCst);
        syncs.hold(false);
        let written = durable.join().unwrap();
        assert!(ended.is_ok(), "others waited for a sync that is not theirs");
        assert!(!early, "a durable write was acknowledged before its value was durable");
        written
    })
}

fn check(tmp: &TempDir) {
    let again = Db::open_with(tmp.join("store"), small()).unwrap();
    let one = again.column_family("one").unwrap();
    for n in 1..3 {
        assert_eq!(again.get_cf(&one, &key(n)).unwrap().as_deref(), Some(&[n as u8; 2000][..]), "key {n}");
    }
}

#[test]
fn a_sync_of_placed_values_stops_neither_writers_nor_the_choice_of_jobs() {
    let (tmp, syncs) = (TempDir::new("held-sync"), Arc::new(Syncs::default()));
    let db = store(&tmp, &syncs, Arc::default());
    let one = db.column_family("one").unwrap();
    let written = while_held(&db, &syncs, || {
        // The same family, the same file.
        db.put_cf(&one, &key(2), &[2; 2000]).unwrap();
        // A memtable of another family becomes full, and its flush is picked, under the claims, and writes its table.
        fill(&db, &mut Model::new(), 0..400, 0);
        syncs.wait_until(|state| state.2 > 0);
        db.gc_plan(Default::default()).unwrap();
    });
    written.unwrap();
    db.close().unwrap();
    check(&tmp);
}

#[test]
fn what_was_placed_during_a_sync_is_not_durable_by_it() {
    let (tmp, syncs) = (TempDir::new("placed-during-sync"), Arc::new(Syncs::default()));
    let db = store(&tmp, &syncs, Arc::default());
    let one = db.column_family("one").unwrap();
    let before = syncs.state.lock().unwrap().3;
    while_held(&db, &syncs, || db.put_cf(&one, &key(2), &[2; 2000]).unwrap()).unwrap();
    // A durable write is one of all before it, in whatever family they are.
    db.put_opt(db.default_column_family(), b"durable", b"short", &WriteOptions::durable()).unwrap();
    // Or the log's thread has synced it already, when nobody wrote for a moment.
    assert!(syncs.state.lock().unwrap().3 >= before + 2, "the value of key 2 was not synced");
    db.close().unwrap();
    check(&tmp);
}

#[test]
fn a_failure_of_that_sync_stops_the_store_and_takes_nothing_that_was_acknowledged_meanwhile() {
    let (tmp, syncs) = (TempDir::new("failed-held-sync"), Arc::new(Syncs::default()));
    let fails = Arc::new(AtomicBool::new(true));
    let db = store(&tmp, &syncs, fails);
    let one = db.column_family("one").unwrap();
    let written = while_held(&db, &syncs, || db.put_cf(&one, &key(2), &[2; 2000]).unwrap());
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(db.put_cf(&one, &key(3), b"later").unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(db.close().is_err());
    check(&tmp);
}

/// Buffered writes fill the tail of their file while a sync of it is held: they wait, and nobody else does.
#[test]
fn who_waits_for_room_in_a_tail_holds_up_nobody_else() {
    /// So many fit into a tail of 64 KiB.
    const FIT: u64 = 31;
    let (tmp, syncs) = (TempDir::new("full-tail"), Arc::new(Syncs::default()));
    let options = Options { memtable_bytes: 512 << 10, memory_bytes: 4 << 20, ..small() };
    let db = store_with(options, &tmp, &syncs, Arc::default());
    let (one, written) = (db.column_family("one").unwrap(), AtomicU64::new(0));
    let fill = || {
        (0..2 * FIT).try_for_each(|i| {
            db.put_cf(&one, &key(1000 + i), &[i as u8; 2000])?;
            written.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    };
    let filled = beside(&syncs, fill, || {
        while written.load(Ordering::SeqCst) < FIT {
            std::thread::yield_now();
        }
        // By now it waits, or is about to.
        for i in 0..500 {
            std::thread::yield_now();
            db.put(&key(i), b"others").unwrap();
            db.put_cf(&one, &key(i), b"short").unwrap();
        }
        assert!(written.load(Ordering::SeqCst) <= FIT + 2);
    });
    filled.unwrap();
    db.close().unwrap();
}
