//! Files that no manifest edit names any more, waiting for their last reader.
//!
//! A file is removed only after the edit that drops it is durable (only then is it added here) **and** nobody holds it any
//! more but this list ([`Retired::is_unread`]). Readers that let go of what they read wake the clean-up.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, lock, rank};

/// A file as whoever gave it up holds it.
pub trait Retired {
    /// True if only the list knows the file.
    fn is_unread(&self) -> bool;
}

/// See the module.
#[derive(Debug)]
pub struct Obsolete<F> {
    /// Files that no edit names any more.
    pending: Mutex<Vec<F>, rank::Obsolete>,
    /// The length of `pending`: changed under it, looked at without it.
    count: AtomicUsize,
}

impl<F> Default for Obsolete<F> {
    fn default() -> Self {
        Obsolete { pending: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<F: Retired> Obsolete<F> {
    /// Takes over files whose removal from the manifest is durable.
    pub fn add(&self, files: impl IntoIterator<Item = F>) {
        let mut pending = lock(&self.pending);
        pending.extend(files);
        self.count.store(pending.len(), Ordering::Release);
    }

    /// Files that nobody reads any more, taken off the list.
    pub fn take_ready(&self) -> Vec<F> {
        let mut pending = lock(&self.pending);
        let (ready, held) = pending.drain(..).partition(F::is_unread);
        *pending = held;
        self.count.store(pending.len(), Ordering::Release);
        ready
    }

    /// True if a file could be removed now.
    pub fn has_ready(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(F::is_unread)
    }

    /// True if it is true of a file on the list.
    pub fn any(&self, of: impl FnMut(&F) -> bool) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(of)
    }

    /// What `of` says of those that came last: at most so many of those of which it says something.
    pub fn latest<T>(&self, max: usize, of: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        lock(&self.pending).iter().rev().filter_map(of).take(max).collect()
    }

    /// What `of` says of each file on the list.
    pub fn map<T>(&self, of: impl FnMut(&F) -> T) -> Vec<T> {
        lock(&self.pending).iter().map(of).collect()
    }
}
