//! Every interleaving of writers and readers about to sleep. In the model only a wake-up ends a
//! sleep, so a lost wake-up is a deadlock, which loom reports.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;

/// The store as seen by readers.
struct Store {
    /// Guards the last record of each log, as the lock of all logs does.
    lasts: Mutex<[u64; 2], rank::Records>,
    tails: RecordWaiters,
}

impl Store {
    fn new() -> Arc<Store> {
        Arc::new(Store { lasts: Mutex::new([0; 2]), tails: RecordWaiters::default() })
    }

    /// Appends as a store does: first applies, then wakes readers.
    fn append(&self, log: usize) {
        lock(&self.lasts)[log] += 1;
        self.tails.changed([log as LogId]);
    }

    /// Waits as a scan at the end of a log does.
    fn wait_for(&self, log: usize, last: u64) {
        let waiting = self.tails.enter(log as LogId);
        loop {
            let seen = waiting.changes();
            if lock(&self.lasts)[log] >= last {
                return;
            }
            waiting.sleep(seen, Duration::MAX);
        }
    }
}

fn spawn(store: &Arc<Store>, body: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || body(&store))
}

#[test]
fn loom_a_reader_is_woken_by_each_record_of_its_log() {
    check(3, || {
        let store = Store::new();
        let writer = spawn(&store, |store| {
            store.append(0);
            store.append(0);
        });
        store.wait_for(0, 1);
        store.wait_for(0, 2);
        writer.join().unwrap();
    });
}

#[test]
fn loom_two_readers_of_one_log_are_both_woken() {
    check(2, || {
        let store = Store::new();
        let readers = [0, 1].map(|_| spawn(&store, |store| store.wait_for(0, 1)));
        store.append(0);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(lock(&store.tails.logs).is_empty());
    });
}

#[test]
fn loom_readers_of_two_logs_and_two_writers() {
    check(2, || {
        let store = Store::new();
        let reader = spawn(&store, |store| store.wait_for(1, 1));
        let writer = spawn(&store, |store| store.append(1));
        store.append(0);
        store.wait_for(0, 1);
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

/// A change of the store's state wakes the waiters of every log.
#[test]
fn loom_a_failed_store_wakes_all_readers() {
    check(3, || {
        let store = Store::new();
        let reader = spawn(&store, |store| store.wait_for(0, u64::MAX));
        lock(&store.lasts)[0] = u64::MAX;
        store.tails.wake_all();
        reader.join().unwrap();
    });
}
