//! Statistics and latencies of the log since it was started. Relaxed atomics: a slightly old value
//! is fine.

use crate::durability::Durability;
use crate::rate::Rate;
use base::sync::statistic::{AtomicU64, Ordering};
use io::Env;
use io::timing::Timing;

/// Statistics of the log since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Batches appended.
    pub batches: u64,
    /// Their payload, bytes.
    pub payload_bytes: u64,
    /// Bytes of pages handed to the group files.
    pub written_bytes: u64,
    /// Bytes of pages that were superseded by a flush before they were written: see
    /// [`crate::wal::DeferredWriter::skip_to`].
    pub skipped_bytes: u64,
    /// Durable writes.
    pub durable_writes: u64,
    /// Durable writes without a waiter: for old buffered records, and for the release of groups.
    pub durable_writes_without_waiter: u64,
    /// Durable writes that began while others were in flight.
    pub concurrent_durable_writes: u64,
    /// Durable writes that may be in flight at once now.
    pub writes_at_once: u64,
    /// Trials of another number of concurrent writes ([`crate::Loggers::AUTO`]).
    pub loggers_tried: u64,
    /// Trials whose number was kept.
    pub loggers_kept: u64,
    /// Writes that were not durable by themselves.
    pub writes: u64,
    /// Data syncs of group files.
    pub syncs: u64,
    /// Times that an append found the tail buffer full and wrote it out itself.
    pub inline_write_outs: u64,
    /// Groups closed.
    pub rolls: u64,
    /// The number of the next page.
    pub next_lpn: u64,
    /// All pages below are durable.
    pub durable_end: u64,
}

/// Counters that need no lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub written_bytes: AtomicU64,
    pub skipped_bytes: AtomicU64,
    pub durable_writes: AtomicU64,
    pub durable_writes_without_waiter: AtomicU64,
    pub concurrent_durable_writes: AtomicU64,
    /// Total nanoseconds of durable writes.
    pub durable_ns: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub inline_write_outs: AtomicU64,
    pub demand: Demand,
    /// Write rate of the device, from long writes.
    pub rate: Rate,
}

/// Demand for durable and buffered appends.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Durable writes are expected until this time, clock nanoseconds, since there was a waiter for
    /// one.
    asked_until_ns: AtomicU64,
    /// Nonzero: since the start there was a durable batch, or an asynchronous waiter for one.
    durable_seen: AtomicU64,
    /// Bytes of buffered batches since the start, then of all batches. Changed by appends.
    buffered_bytes: AtomicU64,
    appended_bytes: AtomicU64,
}

impl Demand {
    /// Counts a buffered batch.
    fn buffers(&self, len: u32) {
        add(&self.buffered_bytes, len.into());
    }
}

/// A long tail buffer pays if at least one in this many appended bytes is buffered.
const BUFFERED_PART: u64 = 8;

impl Counters {
    /// Returns the total nanoseconds of durable writes.
    pub fn durable_ns(&self) -> u64 {
        self.durable_ns.load(Ordering::Relaxed)
    }

    /// Sets the end of the time in which durable writes are expected.
    pub fn asks_until(&self, until_ns: u64) {
        self.demand.asked_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Returns true if durable writes are expected.
    pub fn are_asked_for(&self, now_ns: u64) -> bool {
        now_ns < self.demand.asked_until_ns.load(Ordering::Relaxed)
    }

    /// Records that there is a waiter for a durable batch, so that more are expected.
    pub fn waits_for_durable(&self) {
        self.demand.durable_seen.store(1, Ordering::Relaxed);
    }

    /// Counts a batch appended to a log that keeps pages in its tail buffer.
    pub fn comes(&self, durability: Durability, len: u32) {
        add(&self.demand.appended_bytes, len.into());
        if durability.waits_for_device() { self.waits_for_durable() } else { self.demand.buffers(len) }
    }

    /// Returns true if there was a waiter for a durable batch.
    pub fn has_durable(&self) -> bool {
        self.demand.durable_seen.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a significant part of the appended bytes is buffered. `None`: nothing was
    /// appended.
    pub fn has_buffered(&self) -> Option<bool> {
        let appended = self.demand.appended_bytes.load(Ordering::Relaxed);
        (appended > 0).then(|| self.demand.buffered_bytes.load(Ordering::Relaxed) >= appended / BUFFERED_PART)
    }

    /// Returns the statistics that are counted here.
    pub fn read(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            written_bytes: load(&self.written_bytes),
            skipped_bytes: load(&self.skipped_bytes),
            durable_writes: load(&self.durable_writes),
            durable_writes_without_waiter: load(&self.durable_writes_without_waiter),
            concurrent_durable_writes: load(&self.concurrent_durable_writes),
            writes: load(&self.writes),
            syncs: load(&self.syncs),
            inline_write_outs: load(&self.inline_write_outs),
            ..WalStats::default()
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Latencies of appends, of syncs, and of waits for room in the tail buffer.
#[derive(Debug)]
pub struct Times {
    /// Appends a batch to pages and, if buffered, to the staging file. Includes the wait for the
    /// tail buffer.
    pub append: Timing,
    /// Writes of pages to the device, by the leader for all waiters.
    pub sync: Timing,
    /// Writes of a full tail buffer before an append.
    pub ring_full: Timing,
}

impl Times {
    pub(crate) fn new(env: &Env) -> Times {
        Times { append: Timing::sampled(env), sync: Timing::each(env), ring_full: Timing::each(env) }
    }
}
