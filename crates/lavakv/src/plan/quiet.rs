//! Whether anybody writes.

use base::SeqNo;
use base::sync::atomic::{AtomicU64, Ordering};

/// Whether anybody writes. Background work that only saves space goes on when nobody does.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last_seq: AtomicU64,
    /// Time of the last write, clock nanoseconds; [`AWAITED`]: a caller waits for the end of all work.
    since_ns: AtomicU64,
}

/// A store that was not written for so long is quiet.
const QUIET_NS: u64 = 1_000_000_000;
/// A store that was not written for so long is at rest.
const REST_NS: u64 = 10_000_000_000;
/// See [`Quiet::declare`].
const AWAITED: u64 = u64::MAX;

impl Quiet {
    /// True if there were no writes for a while, up to `seq`. To be asked now and then: it compares with what it saw last.
    pub fn is_quiet(&self, seq: SeqNo, now_ns: u64) -> bool {
        self.is_unwritten_for(QUIET_NS, seq, now_ns)
    }

    /// The same, for a longer while.
    pub fn is_at_rest(&self, seq: SeqNo, now_ns: u64) -> bool {
        self.is_unwritten_for(REST_NS, seq, now_ns)
    }

    /// True if a caller waits for the end of all work, and nothing was written since it said so.
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

    /// A caller waits until there is nothing left to do: the store counts as quiet and at rest from now on.
    pub fn declare(&self, seq: SeqNo) {
        self.last_seq.store(seq, Ordering::Relaxed);
        self.since_ns.store(AWAITED, Ordering::Relaxed);
    }
}
