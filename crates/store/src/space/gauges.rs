//! Byte counts that other parts of the store report, so that the budget queries none of them.
//!
//! Each is updated with the change of its subject, and read for each computation of room, so it is
//! at most a moment old.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::Arc;
use wal::Lane;

/// Bytes of memtables.
#[derive(Debug, Default)]
pub struct Memory {
    active: AtomicU64,
    frozen: AtomicU64,
}

impl Memory {
    /// Adds bytes to active memtables.
    #[inline]
    pub fn grew(&self, bytes: usize) {
        self.active.fetch_add(bytes as u64, Relaxed);
    }
    /// Moves bytes from active to frozen memtables.
    pub fn froze(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
        self.frozen.fetch_add(bytes as u64, Relaxed);
    }
    /// Removes flushed bytes.
    pub fn flushed(&self, bytes: usize) {
        self.frozen.fetch_sub(bytes as u64, Relaxed);
    }
    /// Removes bytes of active memtables that are dropped.
    pub fn discarded(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
    }
    /// Returns the bytes of all memtables.
    #[inline]
    pub fn used(&self) -> u64 {
        self.active.load(Relaxed) + self.frozen.load(Relaxed)
    }
    /// Returns the bytes that wait for a flush.
    #[inline]
    pub fn backlog(&self) -> u64 {
        self.frozen.load(Relaxed)
    }
}

/// The byte counts: see the module.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Bytes of all files of each log lane, including retained groups, free files and reserved
    /// space.
    log_bytes: [AtomicU64; Lane::ALL.len()],
    /// Bytes of the segments that only memtables refer to.
    segment_bytes: AtomicU64,
    /// The log has begun. Before that, recovery only flushes admitted bytes.
    serves: AtomicBool,
    /// Part of the reserved space was used, and it is not whole again. All lanes share it.
    ballast_used: AtomicBool,
}

impl Gauges {
    /// Sets whether part of the reserved space is missing after use.
    pub(crate) fn set_ballast_used(&self, used: bool) {
        self.ballast_used.store(used, Ordering::Release);
    }

    /// Returns true while part of the reserved space is missing after use.
    pub(crate) fn ballast_is_used(&self) -> bool {
        self.ballast_used.load(Ordering::Acquire)
    }

    /// Replaces the former byte count of a part of a log lane by the current one.
    pub fn change_log_bytes(&self, lane: Lane, before: u64, after: u64) {
        // A single addition, so that no reader sees half of it.
        self.log_bytes[usize::from(lane.0)].fetch_add(after.wrapping_sub(before), Relaxed);
    }

    /// Returns the bytes of all files of a log lane.
    pub fn log_bytes(&self, lane: Lane) -> u64 {
        self.log_bytes[usize::from(lane.0)].load(Relaxed)
    }
    /// Returns the bytes of the segments that only memtables refer to.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }
    /// Records that the log has begun.
    pub fn set_serves(&self) {
        self.serves.store(true, Ordering::Release);
    }
    /// Returns true once the log has begun.
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }
}

/// A segment that only a memtable refers to, counted while this lives.
#[derive(Debug)]
pub struct SegmentBytes {
    gauges: Arc<Gauges>,
    bytes: u64,
}

impl SegmentBytes {
    /// Counts a segment.
    pub fn count(gauges: &Arc<Gauges>, bytes: u64) -> SegmentBytes {
        gauges.segment_bytes.fetch_add(bytes, Relaxed);
        SegmentBytes { gauges: gauges.clone(), bytes }
    }
}

impl Drop for SegmentBytes {
    fn drop(&mut self) {
        self.gauges.segment_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
