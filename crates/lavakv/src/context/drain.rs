//! How fast what writers fill is drained: measured by jobs, asked by whoever slows writers down.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::statistic;
use store::run::{Rate, RateLimit};

/// So much of a flush is what comes after the last byte.
const FLUSH_END_PART: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Bytes of memtables that become tables.
    pub flush: Rate,
    /// Bytes that leave level 0.
    pub l0: Rate,
    /// Bytes that must leave the next levels before level 0 may send them more, where a policy has it so.
    pub spills: Rate,
    /// Bytes that collections free.
    pub gc: Rate,
    /// The bound on what jobs write.
    pub limit: RateLimit,
    /// Bytes of memtables that the flush under way has written already. A hint for writers, who would else see nothing of a flush
    /// before its end.
    flush_progress_bytes: statistic::AtomicU64,
    /// How many hold garbage collection off.
    gc_pauses: AtomicUsize,
}

impl Drain {
    /// With a bound on what jobs write in a second; 0: there is none.
    pub fn new(limit_bytes_per_s: u64) -> Drain {
        Drain {
            flush: Rate::default(),
            l0: Rate::default(),
            spills: Rate::default(),
            gc: Rate::default(),
            limit: RateLimit::new(limit_bytes_per_s),
            flush_progress_bytes: statistic::AtomicU64::default(),
            gc_pauses: AtomicUsize::new(0),
        }
    }

    /// The flush under way has written so much of its memtables; 0: it has ended.
    pub fn flush_has_written(&self, bytes: u64) {
        self.flush_progress_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What of `backlog` bytes of frozen memtables is still to be written. The last part of a flush, its syncs and its edit, is
    /// written with nothing to show for it.
    pub fn left_to_flush(&self, backlog: u64) -> u64 {
        let written = self.flush_progress_bytes.load(Ordering::Relaxed);
        backlog.saturating_sub(written).max(backlog / FLUSH_END_PART)
    }

    /// How fast level 0 is drained, with what has to be done before each time: the two take turns, so their times add up. 0 if
    /// nothing was measured.
    pub fn l0_bytes_per_s(&self) -> u64 {
        match (self.l0.get(), self.spills.get()) {
            (l0, 0) | (l0 @ 0, _) => l0,
            (l0, spills) => {
                (u128::from(l0) * u128::from(spills) / (u128::from(l0) + u128::from(spills))) as u64
            }
        }
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
mod tests {
    use super::*;

    #[test]
    fn a_flush_takes_from_the_backlog_while_it_writes() {
        let drain = Drain::new(0);
        assert_eq!(drain.left_to_flush(800), 800);
        drain.flush_has_written(300);
        assert_eq!(drain.left_to_flush(800), 500);
        drain.flush_has_written(799);
        assert_eq!((drain.left_to_flush(800), drain.left_to_flush(80)), (100, 10), "its end takes time, too");
        drain.flush_has_written(0);
        assert_eq!((drain.left_to_flush(800), drain.left_to_flush(0)), (800, 0));
    }
}
