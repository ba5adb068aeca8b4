//! Files that no manifest edit names any more, and that may still have readers.
//!
//! A file is removed only after the edit that drops it is durable, and once this list holds the
//! only reference ([`Retired::is_unread`]). Only files with a durable edit are added. Readers wake
//! the clean-up when they release a file.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, lock, rank};

/// An obsolete file.
pub trait Retired {
    /// Returns true if only this list references the file.
    fn is_unread(&self) -> bool;
}

/// The obsolete files of an engine: see the module.
#[derive(Debug)]
pub struct Obsolete<F> {
    /// Files that no edit names any more.
    pending: Mutex<Vec<F>, rank::Obsolete>,
    /// The length of `pending`: changed under its lock, read without it.
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

    /// Takes the files without readers off the list.
    pub fn take_ready(&self) -> Vec<F> {
        let mut pending = lock(&self.pending);
        let (ready, held) = pending.drain(..).partition(F::is_unread);
        *pending = held;
        self.count.store(pending.len(), Ordering::Release);
        ready
    }

    /// Returns true if a file could be removed now.
    pub fn has_ready(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(F::is_unread)
    }

    /// Returns true if `of` returns true for a file on the list.
    pub fn any(&self, of: impl FnMut(&F) -> bool) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.pending).iter().any(of)
    }

    /// Returns the first `max` results of `of` over the list, newest file first.
    pub fn latest<T>(&self, max: usize, of: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        lock(&self.pending).iter().rev().filter_map(of).take(max).collect()
    }

    /// Returns the result of `of` for each file on the list.
    pub fn map<T>(&self, of: impl FnMut(&F) -> T) -> Vec<T> {
        lock(&self.pending).iter().map(of).collect()
    }
}
