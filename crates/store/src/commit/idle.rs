//! Idle detection: when the durable end of the log gets a page of its own, and when an idle log
//! removes its free files.
//!
//! Once the durable end is confirmed, recovery can distinguish a damaged page at the end of the log
//! from a torn one.

use base::sync::{Mutex, lock, rank};
use wal::WalStats;

/// Idle time before the watermark gets its own page, after durable and after buffered writes.
const IDLE_DURABLE_NS: u64 = 10_000_000;
const IDLE_BUFFERED_NS: u64 = 1_000_000_000;
/// Idle time before free files are removed. Recreating one costs a device write of its length.
const IDLE_FREE_NS: u64 = 10_000_000_000;

/// State of the log at the last check.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Seen, rank::LogIdle>);

#[derive(Debug, Default)]
struct Seen {
    batches: u64,
    since_ns: u64,
    confirmed_batches: u64,
    /// Durable writes that a caller requested, as of the last confirmation.
    confirmed_durable_writes: u64,
}

/// Returns the durable writes that a caller requested. The log makes the others on its own.
fn asked_for(stats: &WalStats) -> u64 {
    stats.durable_writes.saturating_sub(stats.durable_writes_without_waiter)
}

impl Idle {
    /// Returns true if the log has been idle long enough to persist its watermark.
    pub fn is_idle(&self, stats: &WalStats, now_ns: u64) -> bool {
        let mut idle = lock(&self.0);
        if stats.batches != idle.batches {
            (idle.batches, idle.since_ns) = (stats.batches, now_ns);
            return false;
        }
        let durable = asked_for(stats) > idle.confirmed_durable_writes;
        let wait_ns = if durable { IDLE_DURABLE_NS } else { IDLE_BUFFERED_NS };
        stats.batches > idle.confirmed_batches && now_ns.saturating_sub(idle.since_ns) >= wait_ns
    }

    /// Returns true if the log has been idle long enough to remove its free files. Call it after
    /// [`Idle::is_idle`].
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(lock(&self.0).since_ns) >= IDLE_FREE_NS
    }

    /// Returns true if the log has batches without a confirmed watermark.
    pub fn has_unconfirmed(&self, stats: &WalStats) -> bool {
        stats.batches > lock(&self.0).confirmed_batches
    }

    /// Records that all batches in `before` are confirmed. `after`: the counters after that.
    pub fn confirmed(&self, before: &WalStats, after: &WalStats) {
        let mut idle = lock(&self.0);
        idle.confirmed_batches = before.batches;
        idle.confirmed_durable_writes = asked_for(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_pause_is_short_after_durable_writes() {
        let idle = Idle::default();
        let stats = |batches, durable_writes, durable_writes_without_waiter| WalStats {
            batches,
            durable_writes,
            durable_writes_without_waiter,
            ..WalStats::default()
        };
        let after = |idle: &Idle, stats: WalStats, ns: u64| {
            idle.is_idle(&stats, 0);
            idle.is_idle(&stats, ns)
        };
        assert!(!after(&idle, stats(1, 0, 0), IDLE_DURABLE_NS), "buffered writes");
        assert!(idle.is_idle(&stats(1, 0, 0), IDLE_BUFFERED_NS));
        assert!(!after(&idle, stats(2, 1, 1), IDLE_DURABLE_NS), "that became old enough");
        assert!(after(&idle, stats(3, 2, 1), IDLE_DURABLE_NS), "one was waited for");
        // The confirming page is a durable write as well.
        idle.confirmed(&stats(3, 2, 1), &stats(3, 3, 1));
        assert!(!idle.has_unconfirmed(&stats(3, 3, 1)));
        assert!(!after(&idle, stats(4, 4, 2), IDLE_DURABLE_NS));
    }
}
