//! Readers waiting for new records of a log. An append wakes only the readers of its logs.
//!
//! A reader at the end of a log registers, looks once more, and sleeps until the log changes. A
//! writer first checks the number of waiting readers, which costs one load, and then looks for
//! readers of its logs.
//!
//! **No wake-up is lost.** A reader increments the count before its look, and a writer reads the
//! count after its change. The look and the change both hold the lock of all logs. If the look
//! comes second, the reader sees the record; if the change comes second, the writer sees the count.
//! A change between the reader's look and its sleep increments `changes`, which the reader compares
//! under the lock of its condition variable.

use crate::entry::LogId;
use base::HashMap;
use base::sync::model::atomic::{AtomicUsize, Ordering};
use base::sync::model::{Condvar, Mutex, lock, wait_timeout};
use base::sync::rank;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct RecordWaiters {
    /// Number of waiting readers.
    waiting: AtomicUsize,
    /// Guards the logs with waiting readers.
    logs: Mutex<HashMap<LogId, Tail>, rank::Parked>,
}

/// A log with waiting readers.
#[derive(Debug, Default)]
struct Tail {
    readers: usize,
    /// Number of changes since the first of these readers registered.
    changes: u64,
    changed: Arc<Condvar>,
}

/// Registration of a reader for a log, removed on drop.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    tails: &'a RecordWaiters,
    log: LogId,
    changed: Arc<Condvar>,
}

impl RecordWaiters {
    /// Registers a reader of a log. The reader must look at the log once more after this.
    pub fn enter(&self, log: LogId) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut logs = lock(&self.logs);
        let tail = logs.entry(log).or_default();
        tail.readers += 1;
        Waiting { tails: self, log, changed: tail.changed.clone() }
    }

    /// Wakes the readers of changed logs. Called after the changes are applied.
    pub fn changed(&self, logs: impl IntoIterator<Item = LogId>) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut tails = lock(&self.logs);
        for log in logs {
            if let Some(tail) = tails.get_mut(&log) {
                tail.changes += 1;
                tail.changed.notify_all();
            }
        }
    }

    /// Wakes all readers, after a change of the store's state.
    pub fn wake_all(&self) {
        for tail in lock(&self.logs).values_mut() {
            tail.changes += 1;
            tail.changed.notify_all();
        }
    }
}

impl Waiting<'_> {
    /// Returns the number of changes, for [`Waiting::sleep`].
    pub fn changes(&self) -> u64 {
        lock(&self.tails.logs).get(&self.log).map_or(0, |tail| tail.changes)
    }

    /// Sleeps for at most `longest`, unless the log has changed since `seen`.
    pub fn sleep(&self, seen: u64, longest: Duration) {
        let logs = lock(&self.tails.logs);
        if logs.get(&self.log).is_some_and(|tail| tail.changes == seen) {
            drop(wait_timeout(&self.changed, logs, longest));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut logs = lock(&self.tails.logs);
        if let Some(tail) = logs.get_mut(&self.log) {
            tail.readers -= 1;
            if tail.readers == 0 {
                logs.remove(&self.log);
            }
        }
        drop(logs);
        self.tails.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
