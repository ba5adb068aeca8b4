//! How fast what writers fill is drained: measured by jobs, asked by whoever slows writers down.

use base::sync::atomic::{AtomicUsize, Ordering};
use store::run::{Rate, RateLimit};

/// See the module.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Bytes of memtables that become tables.
    pub flush: Rate,
    /// Bytes that leave level 0.
    pub l0: Rate,
    /// Bytes that collections free.
    pub gc: Rate,
    /// The bound on what jobs write.
    pub limit: RateLimit,
    /// How many hold garbage collection off.
    gc_pauses: AtomicUsize,
}

impl Drain {
    /// With a bound on what jobs write in a second; 0: there is none.
    pub fn new(limit_bytes_per_s: u64) -> Drain {
        Drain {
            flush: Rate::default(),
            l0: Rate::default(),
            gc: Rate::default(),
            limit: RateLimit::new(limit_bytes_per_s),
            gc_pauses: AtomicUsize::new(0),
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
