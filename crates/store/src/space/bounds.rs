//! The limit, the ceiling above it, and the bytes requested by a waiting write.

use base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bounds of a store: see the module.
#[derive(Debug)]
pub(super) struct Bounds {
    /// `u64::MAX`: none.
    limit_bytes: AtomicU64,
    /// Maximum of files and grants, bytes; `u64::MAX`: none. Never below the limit.
    ceiling_bytes: AtomicU64,
    wanted_bytes: AtomicU64,
}

impl Bounds {
    /// Returns the bounds of a store without a limit.
    pub fn none() -> Bounds {
        Bounds {
            limit_bytes: AtomicU64::new(u64::MAX),
            ceiling_bytes: AtomicU64::new(u64::MAX),
            wanted_bytes: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limit_bytes() != u64::MAX
    }

    pub fn ceiling_bytes(&self) -> u64 {
        self.ceiling_bytes.load(Relaxed)
    }

    /// Sets the limit. `needed_bytes` returns the used and claimed bytes below it. Returns the
    /// ceiling, which is above the limit as long as the store is.
    pub fn set_limit(&self, limit: u64, needed_bytes: impl FnOnce() -> u64) -> u64 {
        self.limit_bytes.store(limit, Relaxed);
        // The share of deletes in the reserve does not lower the ceiling: the needed bytes may
        // still grow, as levels do, and the reserve with them.
        let ceiling = limit.max(self.ceiling_bytes().min(needed_bytes()));
        self.ceiling_bytes.store(ceiling, Relaxed);
        ceiling
    }

    /// Removes the limit and the ceiling.
    pub fn lift(&self) {
        self.limit_bytes.store(u64::MAX, Relaxed);
        self.ceiling_bytes.store(u64::MAX, Relaxed);
    }

    pub fn lower_ceiling(&self, bytes: u64) {
        self.ceiling_bytes.fetch_min(bytes, Relaxed);
    }

    pub fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes.load(Relaxed)
    }

    /// Records the bytes that a waiting write requests; 0: the caller knows of no waiting write.
    pub fn want(&self, bytes: u64) {
        match bytes {
            0 => self.wanted_bytes.store(0, Relaxed),
            bytes => drop(self.wanted_bytes.fetch_max(bytes, Relaxed)),
        }
    }
}
