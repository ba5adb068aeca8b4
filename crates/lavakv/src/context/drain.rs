//! Flush and compaction rates: measured by jobs, read by the write throttle.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::statistic;
use store::run::Rate;

pub(crate) mod level_0;

/// Divisor: the part of a flush that remains after its last data byte.
const FLUSH_END_PART: u64 = 8;

/// Rates shared by all families. See the module.
#[derive(Debug, Default)]
pub(crate) struct DrainRates {
    /// Flush rate, in bytes of memtables.
    pub flush: Rate,
    /// Rate of bytes freed by collections.
    pub gc: Rate,
    /// The running flush: its start in clock nanoseconds (0: no flush runs), the bytes of its
    /// memtables, and the bytes written so far. Hints for the write throttle, which would otherwise
    /// learn of a flush only at its end.
    flush_begun_ns: statistic::AtomicU64,
    flush_bytes: statistic::AtomicU64,
    flush_progress_bytes: statistic::AtomicU64,
    /// Number of active pauses of garbage collection.
    gc_pauses: AtomicUsize,
}

impl DrainRates {
    /// Records the start of a flush of so many bytes.
    pub fn flush_begins(&self, now_ns: u64, bytes: u64) {
        self.flush_bytes.store(bytes, Ordering::Relaxed);
        self.flush_begun_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// Records the end of the flush.
    pub fn flush_ends(&self) {
        self.flush_begun_ns.store(0, Ordering::Relaxed);
        self.flush_progress_bytes.store(0, Ordering::Relaxed);
    }

    /// Returns the flush rate: the measured average, but at most the rate of the running flush. A
    /// flush in an idle store is faster than one beside compactions; the idle rate alone would let
    /// writers exhaust the memory.
    pub fn flush_bytes_per_s(&self, now_ns: u64) -> u64 {
        let (usual, begun_ns) = (self.flush.get(), self.flush_begun_ns.load(Ordering::Relaxed));
        if begun_ns == 0 {
            return usual;
        }
        let (bytes, written) =
            (self.flush_bytes.load(Ordering::Relaxed), self.flush_progress_bytes.load(Ordering::Relaxed));
        let most = u128::from(written.saturating_add(bytes / FLUSH_END_PART));
        let ns = u128::from(now_ns.saturating_sub(begun_ns).max(1));
        let now = u64::try_from(most * 1_000_000_000 / ns).unwrap_or(u64::MAX);
        if usual == 0 { now } else { usual.min(now) }
    }

    /// Records the progress of the running flush, in bytes of its memtables.
    pub fn flush_has_written(&self, bytes: u64) {
        self.flush_progress_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of `backlog` that the running flush still has to write. The final part of
    /// a flush, its syncs and version edit, has no visible progress, so the result has a minimum.
    pub fn left_to_flush(&self, backlog: u64) -> u64 {
        let written = self.flush_progress_bytes.load(Ordering::Relaxed);
        backlog.saturating_sub(written).max(backlog / FLUSH_END_PART)
    }

    /// Pauses garbage collection. No collection starts until each pause has ended.
    pub fn pause_gc(&self) {
        self.gc_pauses.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a pause. Returns whether it was the last.
    pub fn resume_gc(&self) -> bool {
        self.gc_pauses.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns whether collection is paused.
    pub fn gc_is_paused(&self) -> bool {
        self.gc_pauses.load(Ordering::Acquire) > 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
