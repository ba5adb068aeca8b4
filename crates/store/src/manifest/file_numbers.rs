//! Allocator of file numbers: each number is used once.

use crate::numbers::NUMBER_MAX;
use base::sync::atomic::{AtomicU64, Ordering};

/// The allocator: see the module.
#[derive(Debug)]
pub(super) struct FileNumbers {
    /// Only grows, so it needs no lock.
    next: AtomicU64,
}

impl FileNumbers {
    pub(super) fn from(next: u64) -> FileNumbers {
        FileNumbers { next: AtomicU64::new(next) }
    }

    /// Allocates a number that no file has had.
    pub(super) fn allocate(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number <= NUMBER_MAX, "file numbers are used up");
        number
    }

    /// Raises the next number to at least this.
    pub(super) fn raise(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }
}
