//! Who waits for records of which log: an append wakes those, and nobody else.
//!
//! A reader that found nothing more says which log it waits for, looks once more, and sleeps until that log has changed since. Who has
//! written asks first whether anybody waits at all, which costs one look at a number, and then for readers of the logs that he
//! wrote to.
//!
//! **No wake-up is lost.** A reader is counted before he looks at the logs, and the writer asks for the count after he changed them, both under
//! the lock of all logs. Either the reader comes to that lock second, and sees the record; or the writer does, and then he sees the count, too. A
//! change that comes between the look and the sleep has raised the count of changes, which is compared under the lock that the
//! reader sleeps by.

use crate::entry::LogId;
use base::HashMap;
use base::sync::model::atomic::{AtomicUsize, Ordering};
use base::sync::model::{Condvar, Mutex, lock, wait_timeout};
use base::sync::rank;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    /// How many wait.
    waiting: AtomicUsize,
    /// Guards the logs that somebody waits for.
    logs: Mutex<HashMap<LogId, Tail>, rank::Parked>,
}

/// A log that is waited for.
#[derive(Debug, Default)]
struct Tail {
    readers: usize,
    /// How often it has changed since somebody waits.
    changes: u64,
    changed: Arc<Condvar>,
}

/// One who waits for a log, as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    tails: &'a Tails,
    log: LogId,
    changed: Arc<Condvar>,
}

impl Tails {
    /// Somebody is going to wait for a log: before he looks for the last time.
    pub fn enter(&self, log: LogId) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut logs = lock(&self.logs);
        let tail = logs.entry(log).or_default();
        tail.readers += 1;
        Waiting { tails: self, log, changed: tail.changed.clone() }
    }

    /// Logs have changed: after what did it was applied.
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

    /// All are to look: something has happened to the store.
    pub fn wake_all(&self) {
        for tail in lock(&self.logs).values_mut() {
            tail.changes += 1;
            tail.changed.notify_all();
        }
    }
}

impl Waiting<'_> {
    /// What to compare later: see [`Waiting::sleep`].
    pub fn changes(&self) -> u64 {
        lock(&self.tails.logs).get(&self.log).map_or(0, |tail| tail.changes)
    }

    /// Sleeps, so long at most, unless the log has changed since.
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
