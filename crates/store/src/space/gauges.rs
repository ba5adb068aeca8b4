//! What the users of the space say of themselves, so that the budget asks nobody.
//!
//! Each is set where what it counts changes, and read whenever room is worked out: a moment old at most.

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
    /// So many bytes more are in memtables that are written to.
    #[inline]
    pub fn grew(&self, bytes: usize) {
        self.active.fetch_add(bytes as u64, Relaxed);
    }
    /// So many of these are not written to any more.
    pub fn froze(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
        self.frozen.fetch_add(bytes as u64, Relaxed);
    }
    /// So many of those are in tables.
    pub fn flushed(&self, bytes: usize) {
        self.frozen.fetch_sub(bytes as u64, Relaxed);
    }
    /// So many bytes that were written to are given up.
    pub fn discarded(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Relaxed);
    }
    /// All of them.
    #[inline]
    pub fn used(&self) -> u64 {
        self.active.load(Relaxed) + self.frozen.load(Relaxed)
    }
    /// Those that wait to be flushed.
    #[inline]
    pub fn backlog(&self) -> u64 {
        self.frozen.load(Relaxed)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Bytes of all files of each lane of the log: groups, those kept as storage, free ones and ballast included.
    log_bytes: [AtomicU64; Lane::ALL.len()],
    /// Bytes of the segments that only memtables refer to.
    segment_bytes: AtomicU64,
    /// The log has begun. Before, the files that recovery flushes were admitted when they were logged.
    serves: AtomicBool,
    /// Some of the ballast was used, and it is not whole again. It is one for all lanes.
    ballast_used: AtomicBool,
}

impl Gauges {
    /// Some of the ballast was used, or all of it is there again.
    pub(crate) fn set_ballast_used(&self, used: bool) {
        self.ballast_used.store(used, Ordering::Release);
    }

    /// True while the ballast is not whole after it was used.
    pub(crate) fn ballast_is_used(&self) -> bool {
        self.ballast_used.load(Ordering::Acquire)
    }

    /// Files of a lane of the log have so many bytes now, and had so many before.
    pub fn change_log_bytes(&self, lane: Lane, before: u64, after: u64) {
        // One addition, so that nobody sees a part of it.
        self.log_bytes[usize::from(lane.0)].fetch_add(after.wrapping_sub(before), Relaxed);
    }

    /// Bytes of all files of a lane of the log.
    pub fn log_bytes(&self, lane: Lane) -> u64 {
        self.log_bytes[usize::from(lane.0)].load(Relaxed)
    }
    /// Bytes of the segments that only memtables refer to.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }
    /// The log has begun.
    pub fn set_serves(&self) {
        self.serves.store(true, Ordering::Release);
    }
    /// True once the log has begun.
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }
}

/// A segment that only a memtable refers to, as long as this lives.
#[derive(Debug)]
pub struct SegmentBytes {
    gauges: Arc<Gauges>,
    bytes: u64,
}

impl SegmentBytes {
    /// Counts it.
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
