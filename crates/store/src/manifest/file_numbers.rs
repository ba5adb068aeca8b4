//! Numbers of files: each is given once.

use crate::numbers::NUMBER_MAX;
use base::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
pub(super) struct FileNumbers {
    /// Only grows; no lock.
    next: AtomicU64,
}

impl FileNumbers {
    pub(super) fn from(next: u64) -> FileNumbers {
        FileNumbers { next: AtomicU64::new(next) }
    }

    /// A number that no file has had.
    pub(super) fn allocate(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number <= NUMBER_MAX, "file numbers are used up");
        number
    }

    /// The next number is at least this.
    pub(super) fn raise(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }
}
