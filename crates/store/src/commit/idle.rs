//! When the log has been idle for long enough that its durable end is worth a page of its own: after that a damaged page at
//! its end is told from a torn one.

use base::sync::{Mutex, lock, rank};
use wal::WalStats;

/// How long the log must be idle before its watermark is written on its own, after durable and after other writes.
const IDLE_DURABLE_NS: u64 = 10_000_000;
const IDLE_BUFFERED_NS: u64 = 1_000_000_000;

/// What the log looked like when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Seen, rank::LogIdle>);

#[derive(Debug, Default)]
struct Seen {
    batches: u64,
    since_ns: u64,
    confirmed_batches: u64,
    confirmed_durable_writes: u64,
}

impl Idle {
    /// True if the log has been idle for long enough that its watermark should be persisted.
    pub fn is_idle(&self, stats: &WalStats, now_ns: u64) -> bool {
        let mut idle = lock(&self.0);
        if stats.batches != idle.batches {
            (idle.batches, idle.since_ns) = (stats.batches, now_ns);
            return false;
        }
        let durable = stats.durable_writes > idle.confirmed_durable_writes;
        let wait_ns = if durable { IDLE_DURABLE_NS } else { IDLE_BUFFERED_NS };
        stats.batches > idle.confirmed_batches && now_ns.saturating_sub(idle.since_ns) >= wait_ns
    }

    /// True if the log will want its watermark persisted once it has been idle for long enough.
    pub fn has_unconfirmed(&self, stats: &WalStats) -> bool {
        stats.batches > lock(&self.0).confirmed_batches
    }

    /// All that there was in `before` is confirmed; `after`: the log since.
    pub fn confirmed(&self, before: &WalStats, after: &WalStats) {
        let mut idle = lock(&self.0);
        idle.confirmed_batches = before.batches;
        idle.confirmed_durable_writes = after.durable_writes;
    }
}
