//! Fill of the volume at the last query.
//!
//! Other programs may take space between two queries. The store then meets a refusal (`NoSpace`)
//! like any other. The refused operation is undone, jobs are retried every tenth of a second, and
//! the volume is queried again. The ceiling of the meter refuses with the same error at the same
//! place, so a limit and a full volume share one path.

use crate::context::Context;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Minimum interval between two queries of the volume, nanoseconds.
pub const ASK_NS: u64 = 100_000_000;
/// The volume is queried earlier if the store's size has changed by this fraction of the free
/// bytes.
const ASK_PART: u64 = 16;

/// The fill of the volume: see the module.
#[derive(Debug)]
pub(super) struct VolumeFill {
    bytes: AtomicU64,
    used_bytes: AtomicU64,
    /// Bytes that the store may occupy: its own, and the free ones.
    limit_bytes: AtomicU64,
    /// Time of the next query, clock nanoseconds.
    ask_at_ns: AtomicU64,
    /// Bytes of the store at the last query.
    asked_bytes: AtomicU64,
}

impl VolumeFill {
    /// Returns the state before the first query.
    pub fn unknown() -> VolumeFill {
        VolumeFill {
            bytes: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(u64::MAX),
            ask_at_ns: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the bytes that the store may occupy: its own, and the free ones.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Returns the used bytes of the volume, and its total bytes.
    pub fn fill(&self) -> (u64, u64) {
        (self.used_bytes.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Returns true if the next query is due.
    pub fn is_old(&self, now_ns: u64) -> bool {
        now_ns >= self.ask_at_ns.load(Relaxed)
    }

    /// Records that the volume refused a write, so its last answer is void.
    pub fn refused(&self) {
        self.ask_at_ns.store(0, Relaxed);
    }

    /// Queries the volume, unless it was queried a moment ago and the store, of `used` bytes, has
    /// hardly changed since.
    pub fn ask(&self, context: &Context, used: u64) {
        let now_ns = context.now_ns();
        let (then, limit) = (self.asked_bytes.load(Relaxed), self.limit_bytes());
        let moved = used.abs_diff(then) > limit.saturating_sub(then) / ASK_PART;
        if !self.is_old(now_ns) && !moved {
            return;
        }
        self.asked_bytes.store(used, Relaxed);
        self.ask_at_ns.store(now_ns + ASK_NS, Relaxed);
        // Without an answer the last one holds.
        let Ok(space) = context.env.fs.space(&context.dir) else { return };
        self.bytes.store(space.total, Relaxed);
        self.used_bytes.store(space.total.saturating_sub(space.available), Relaxed);
        self.limit_bytes.store(used.saturating_add(space.available), Relaxed);
    }
}
