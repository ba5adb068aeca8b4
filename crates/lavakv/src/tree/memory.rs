//! What memtables take of the memory budget.

use base::sync::atomic::{AtomicU64, Ordering};

/// Bytes of memtables.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    active: AtomicU64,
    frozen: AtomicU64,
}

impl Memory {
    pub fn grew(&self, bytes: usize) {
        self.active.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    pub fn froze(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.frozen.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    pub fn flushed(&self, bytes: usize) {
        self.frozen.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
    pub fn discarded(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
    pub fn used(&self) -> u64 {
        self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed)
    }
    pub fn backlog(&self) -> u64 {
        self.frozen.load(Ordering::Relaxed)
    }
}
