//! How fast what writers fill is drained: measured by jobs, asked by whoever slows writers down.

use super::rate_limit::RateLimit;
use base::sync::atomic::AtomicUsize;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

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
        self.gc_pauses.fetch_add(1, base::sync::atomic::Ordering::AcqRel);
    }

    /// One of them ends the pause. True if it was the last.
    pub fn resume_gc(&self) -> bool {
        self.gc_pauses.fetch_sub(1, base::sync::atomic::Ordering::AcqRel) == 1
    }

    /// True while no collection may start.
    pub fn gc_is_paused(&self) -> bool {
        self.gc_pauses.load(base::sync::atomic::Ordering::Acquire) > 0
    }
}

/// An exponentially weighted rate in bytes per second.
#[derive(Debug, Default)]
pub(crate) struct Rate(AtomicU64);

impl Rate {
    /// Takes in that `bytes` took `ns`.
    pub fn record(&self, bytes: u64, ns: u64) {
        let now = (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))) as u64;
        let old = self.0.load(Relaxed);
        let new = if old == 0 { now } else { old / 4 * 3 + now / 4 };
        self.0.store(new, Relaxed);
    }

    /// The rate; 0 if nothing was measured.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
