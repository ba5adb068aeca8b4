//! Detection of stores without recent writes.

use base::SeqNo;
use base::sync::atomic::{AtomicU64, Ordering};

/// Time since the last write. Background work that only saves space runs in idle stores.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last_seq: AtomicU64,
    /// Time of the last write, clock nanoseconds. [`AWAITED`]: a caller waits for the end of all
    /// work.
    since_ns: AtomicU64,
}

/// Time without writes after which a store is idle.
const QUIET_NS: u64 = 1_000_000_000;
/// Time without writes after which a store is at rest.
const REST_NS: u64 = 10_000_000_000;
/// See [`Quiet::declare`].
const AWAITED: u64 = u64::MAX;

impl Quiet {
    /// Returns whether the store is idle, given its last sequence number. Call it regularly: it
    /// compares with the previous call.
    pub fn is_quiet(&self, seq: SeqNo, now_ns: u64) -> bool {
        self.is_unwritten_for(QUIET_NS, seq, now_ns)
    }

    /// Returns whether the store is at rest, by a longer time without writes.
    pub fn is_at_rest(&self, seq: SeqNo, now_ns: u64) -> bool {
        self.is_unwritten_for(REST_NS, seq, now_ns)
    }

    /// Returns whether a caller waits for the end of all work, without writes since.
    pub fn is_awaited(&self) -> bool {
        self.since_ns.load(Ordering::Relaxed) == AWAITED
    }

    fn is_unwritten_for(&self, ns: u64, seq: SeqNo, now_ns: u64) -> bool {
        if self.last_seq.swap(seq, Ordering::Relaxed) != seq {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            return false;
        }
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        since_ns == AWAITED || now_ns.saturating_sub(since_ns) >= ns
    }

    /// Makes the store idle and at rest at once, for a caller that waits for the end of all work.
    pub fn declare(&self, seq: SeqNo) {
        self.last_seq.store(seq, Ordering::Relaxed);
        self.since_ns.store(AWAITED, Ordering::Relaxed);
    }
}
