//! Whether anybody writes.

use base::SeqNo;
use base::sync::atomic::{AtomicU64, Ordering};

/// Whether anybody writes. Background work that only saves space goes on when nobody does.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last_seq: AtomicU64,
    since_ns: AtomicU64,
}

/// A store that was not written for so long is quiet.
const QUIET_NS: u64 = 1_000_000_000;

impl Quiet {
    /// True if there were no writes for a while, up to `seq`. To be asked now and then: it compares with what it saw last.
    pub fn is_quiet(&self, seq: SeqNo, now_ns: u64) -> bool {
        if self.last_seq.swap(seq, Ordering::Relaxed) != seq {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            return false;
        }
        now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)) >= QUIET_NS
    }

    /// Somebody waits until there is nothing left to do: the store counts as quiet from now on.
    pub fn declare(&self, seq: SeqNo, now_ns: u64) {
        self.last_seq.store(seq, Ordering::Relaxed);
        self.since_ns.store(now_ns.saturating_sub(QUIET_NS), Ordering::Relaxed);
    }
}
