//! How fast what writers fill is drained: measured by jobs, asked by whoever slows writers down.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::statistic;
use store::run::Rate;

pub(crate) mod level_0;

/// So much of a flush is what comes after the last byte.
const FLUSH_END_PART: u64 = 8;

/// What all families share. See the module.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Bytes of memtables that become tables.
    pub flush: Rate,
    /// Bytes that collections free.
    pub gc: Rate,
    /// The flush under way: when it began, in clock nanoseconds (0: there is none), bytes of its memtables, and those that it has written
    /// already. Hints for writers, who would else see nothing of a flush before its end.
    flush_begun_ns: statistic::AtomicU64,
    flush_bytes: statistic::AtomicU64,
    flush_progress_bytes: statistic::AtomicU64,
    /// How many hold garbage collection off.
    gc_pauses: AtomicUsize,
}

impl Drain {
    /// A flush of so many bytes begins.
    pub fn flush_begins(&self, now_ns: u64, bytes: u64) {
        self.flush_bytes.store(bytes, Ordering::Relaxed);
        self.flush_begun_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// It has ended.
    pub fn flush_ends(&self) {
        self.flush_begun_ns.store(0, Ordering::Relaxed);
        self.flush_progress_bytes.store(0, Ordering::Relaxed);
    }

    /// How fast memtables are flushed: as was measured, but no faster than the flush under way. One in an idle store is quicker than one
    /// beside compactions; who went by the former would run into the end of memory.
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

    /// The flush under way has written so much of its memtables.
    pub fn flush_has_written(&self, bytes: u64) {
        self.flush_progress_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What of `backlog` bytes of frozen memtables is still to be written. The last part of a flush, its syncs and its edit, is
    /// written with nothing to show for it.
    pub fn left_to_flush(&self, backlog: u64) -> u64 {
        let written = self.flush_progress_bytes.load(Ordering::Relaxed);
        backlog.saturating_sub(written).max(backlog / FLUSH_END_PART)
    }

    /// No collection starts until as many have ended the pause as have begun it.
    pub fn pause_gc(&self) {
        self.gc_pauses.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them ends the pause. True if it was the last.
    pub fn resume_gc(&self) -> bool {
        self.gc_pauses.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// True while no collection may start.
    pub fn gc_is_paused(&self) -> bool {
        self.gc_pauses.load(Ordering::Acquire) > 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
