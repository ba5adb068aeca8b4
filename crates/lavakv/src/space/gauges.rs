//! What the users of the space say of themselves, so that the budget asks nobody.
//!
//! Each is set where what it counts changes, and read whenever room is worked out: a moment old at most.

use super::space_limit::SpaceBudget;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::Arc;

/// Bytes of memtables.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    active: AtomicU64,
    frozen: AtomicU64,
}

impl Memory {
    pub fn grew(&self, bytes: usize) {
        self.active.fetch_add(bytes as u64, Relaxed);
    }
    pub fn froze(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
        self.frozen.fetch_add(bytes as u64, Relaxed);
    }
    pub fn flushed(&self, bytes: usize) {
        self.frozen.fetch_sub(bytes as u64, Relaxed);
    }
    pub fn discarded(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
    }
    pub fn used(&self) -> u64 {
        self.active.load(Relaxed) + self.frozen.load(Relaxed)
    }
    pub fn backlog(&self) -> u64 {
        self.frozen.load(Relaxed)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Bytes of all files of the log: groups, free ones and ballast included.
    log_bytes: AtomicU64,
    /// Bytes of all tails of placed values.
    tail_bytes: AtomicU64,
    /// Bytes of the segments that only memtables refer to.
    segment_bytes: AtomicU64,
    /// The log has begun. Before, the files that recovery flushes were admitted when they were logged.
    serves: AtomicBool,
}

impl Gauges {
    pub fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Relaxed)
    }
    pub fn tail_made(&self, bytes: u64) {
        self.tail_bytes.fetch_add(bytes, Relaxed);
    }
    pub fn tail_removed(&self, bytes: u64) {
        self.tail_bytes.fetch_sub(bytes, Relaxed);
    }
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes.load(Relaxed)
    }
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }
    pub fn set_serves(&self) {
        self.serves.store(true, Ordering::Release);
    }
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }
}

/// A segment that only a memtable refers to, as long as this lives.
#[derive(Debug)]
pub(crate) struct SegmentBytes {
    space: Arc<SpaceBudget>,
    bytes: u64,
}

impl SegmentBytes {
    pub fn count(space: &Arc<SpaceBudget>, bytes: u64) -> SegmentBytes {
        space.gauges.segment_bytes.fetch_add(bytes, Relaxed);
        SegmentBytes { space: space.clone(), bytes }
    }
}

impl Drop for SegmentBytes {
    fn drop(&mut self) {
        self.space.gauges.segment_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
