//! What the log did since it was started, and how long that took. Counted relaxed: any value a moment old will do.

use crate::durability::Durability;
use crate::rate::Rate;
use base::sync::statistic::{AtomicU64, Ordering};
use io::Env;
use io::timing::Timing;

/// What the log did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Batches appended.
    pub batches: u64,
    /// Their payload, bytes.
    pub payload_bytes: u64,
    /// Bytes of pages handed to the group files.
    pub written_bytes: u64,
    /// Bytes of pages that a flush overtook before they were handed to one: see [`crate::wal::Deferred::skip_to`].
    pub skipped_bytes: u64,
    /// Writes that made themselves durable.
    pub durable_writes: u64,
    /// Those of them that nobody waited for: what had waited long enough, and what lets go of groups.
    pub unasked_writes: u64,
    /// Those of them that began while others were at the device.
    pub beside_writes: u64,
    /// How many may be at the device at once now.
    pub writes_at_once: u64,
    /// Where nobody has said how many: how often another number was tried.
    pub loggers_tried: u64,
    /// How often it was kept.
    pub loggers_kept: u64,
    /// Writes that did not.
    pub writes: u64,
    /// Data syncs of group files.
    pub syncs: u64,
    /// Times an append found the ring full and wrote it out itself.
    pub inline_write_outs: u64,
    /// Groups closed.
    pub rolls: u64,
    /// The number of the next page.
    pub next_lpn: u64,
    /// All pages below are durable.
    pub durable_end: u64,
}

/// What is counted without a lock.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub written_bytes: AtomicU64,
    pub skipped_bytes: AtomicU64,
    pub durable_writes: AtomicU64,
    pub unasked_writes: AtomicU64,
    pub beside_writes: AtomicU64,
    /// Nanoseconds of durable writes, in all.
    pub durable_ns: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub inline_write_outs: AtomicU64,
    pub demand: Demand,
    /// How fast the device takes long writes.
    pub rate: Rate,
}

/// What those who append ask for.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Until then durable writes are to be expected, clock nanoseconds: somebody waited for one a while ago.
    asked_until_ns: AtomicU64,
    /// More than 0: there was a durable batch since the start, or somebody waited for one without a thread.
    durable_seen: AtomicU64,
    /// Bytes of buffered batches since the start, and of all. Changed by whoever appends.
    buffered_bytes: AtomicU64,
    appended_bytes: AtomicU64,
}

impl Demand {
    /// A buffered batch was appended.
    fn buffers(&self, len: u32) {
        add(&self.buffered_bytes, len.into());
    }
}

/// Among batches of which this part is buffered, pages that wait are worth a long ring.
const BUFFERED_PART: u64 = 8;

impl Counters {
    /// Nanoseconds of durable writes.
    pub fn durable_ns(&self) -> u64 {
        self.durable_ns.load(Ordering::Relaxed)
    }

    /// Somebody waits for a durable write: more are to be expected up to this time.
    pub fn asks_until(&self, until_ns: u64) {
        self.demand.asked_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// True if durable writes are to be expected.
    pub fn are_asked_for(&self, now_ns: u64) -> bool {
        now_ns < self.demand.asked_until_ns.load(Ordering::Relaxed)
    }

    /// Somebody waits for what he wrote to be durable, and others will.
    pub fn waits_for_durable(&self) {
        self.demand.durable_seen.store(1, Ordering::Relaxed);
    }

    /// A batch was appended to a log that keeps pages.
    pub fn comes(&self, durability: Durability, len: u32) {
        add(&self.demand.appended_bytes, len.into());
        if durability.waits_for_device() { self.waits_for_durable() } else { self.demand.buffers(len) }
    }

    /// True if anybody has waited for something durable.
    pub fn has_durable(&self) -> bool {
        self.demand.durable_seen.load(Ordering::Relaxed) > 0
    }

    /// True if a part of what was appended is buffered that counts. `None`: nothing was.
    pub fn has_buffered(&self) -> Option<bool> {
        let appended = self.demand.appended_bytes.load(Ordering::Relaxed);
        (appended > 0).then(|| self.demand.buffered_bytes.load(Ordering::Relaxed) >= appended / BUFFERED_PART)
    }

    /// What of the statistics is counted here.
    pub fn read(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            written_bytes: load(&self.written_bytes),
            skipped_bytes: load(&self.skipped_bytes),
            durable_writes: load(&self.durable_writes),
            unasked_writes: load(&self.unasked_writes),
            beside_writes: load(&self.beside_writes),
            writes: load(&self.writes),
            syncs: load(&self.syncs),
            inline_write_outs: load(&self.inline_write_outs),
            ..WalStats::default()
        }
    }
}

/// So many more.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// How long it takes to append a batch, to make what was appended durable, and to wait for room in the ring.
#[derive(Debug)]
pub struct Times {
    /// A batch into pages, and into the staging file if it is to survive the process. With the wait for the ring.
    pub append: Timing,
    /// Pages onto the device: by whoever does it for all who wait.
    pub sync: Timing,
    /// The ring was full, and was written out first.
    pub ring_full: Timing,
}

impl Times {
    pub(crate) fn new(env: &Env) -> Times {
        Times { append: Timing::sampled(env), sync: Timing::each(env), ring_full: Timing::each(env) }
    }
}
