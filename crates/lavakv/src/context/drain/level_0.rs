//! The rate at which jobs drain level 0 of a family now.
//!
//! **The rate** is the bytes that left level 0, divided by the time of work on it. The time counts
//! from the start of a job of the chain: one that drains level 0, or that makes room in the levels
//! below. It continues while level 0 is above its slowdown depth, even without a running job, and
//! otherwise stops at the end of the job. So the rate includes all delays between a memtable and
//! its place in the tree, in any order and on any number of threads. These are jobs of deeper
//! levels that level 0 waits for, flushes, and the device time of other jobs. The progress and time
//! of running jobs are included, so an unusually slow job lowers the rate while it runs. An average
//! of per-job rates would be wrong: alternating jobs are slower than each of them, concurrent jobs
//! are faster, and short jobs would count like long ones.
//!
//! All values are hints for the write throttle; races between jobs that end at the same time do no
//! harm.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// Fixed-point unit: thousandths of a table of level 0, or of a job.
const PARTS: f64 = 1000.0;
/// Length of the history, as a multiple of level 0 at its stop.
const REMEMBERED: u64 = 2;

/// Drain state of level 0. Tables are counted in bytes of their former memtables. See the module.
#[derive(Debug, Default)]
pub(crate) struct Level0Drain {
    measured: Measured,
    jobs: UnderWay,
    /// Memtable bytes per table byte, in thousandths; large with separated values. 0: unknown.
    memtable_per_mille: AtomicU64,
    /// Average table bytes that a flush adds to level 0; 0: unknown.
    flush_bytes: AtomicU64,
    /// Whether the job that began last takes most of level 0 (1) or less (2); 0: no job yet.
    thorough: AtomicU64,
}

/// Bytes that left level 0, and the working time.
#[derive(Debug, Default)]
struct Measured {
    bytes: AtomicU64,
    ns: AtomicU64,
    /// Running jobs of the chain.
    running: AtomicU64,
    /// Start of the uncounted working time, in clock nanoseconds; 0: the time is not running.
    since_ns: AtomicU64,
    /// Working time of earlier intervals that is not in `ns` yet.
    before_ns: AtomicU64,
}

/// Progress of the running jobs. Without it, the throttle would learn of a job only at its end.
#[derive(Debug, Default)]
struct UnderWay {
    /// Bytes of tables in their inputs.
    takes: AtomicU64,
    done: AtomicU64,
    /// Total reduction of the depth of level 0 by these jobs, in thousandths of a table.
    falls: AtomicU64,
    fallen: AtomicU64,
}

/// The share of level 0 that a job takes.
#[derive(Debug)]
pub(crate) struct Share {
    /// Bytes of tables.
    takes: u64,
    /// Thousandths of a table.
    falls: u64,
    /// Progress of the job, in thousandths.
    done: AtomicU64,
}

/// The running jobs that drain level 0, in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Draining {
    /// Their inputs in level 0; 0: no job runs.
    pub takes: f64,
    /// The remaining part of the inputs.
    pub left: f64,
    /// Reduction of the depth of level 0 that corresponds to the completed part.
    pub fallen: f64,
    /// True if the job that began last takes more than three quarters of the depth of level 0, or
    /// if none began yet.
    pub takes_all: bool,
}

impl Level0Drain {
    /// Records a flush: bytes of the memtable, and bytes of its tables.
    pub fn flushed(&self, memtable_bytes: u64, table_bytes: u64) {
        let follow = |of: &AtomicU64, now: u64| {
            let old = of.load(Relaxed);
            of.store(if old == 0 { now } else { old / 4 * 3 + now / 4 }, Relaxed);
        };
        follow(&self.memtable_per_mille, memtable_bytes.saturating_mul(1000) / table_bytes.max(1));
        follow(&self.flush_bytes, table_bytes);
    }

    /// Converts table bytes to memtable bytes.
    pub fn of_memtables(&self, table_bytes: u64) -> u64 {
        match self.memtable_per_mille.load(Relaxed) {
            0 => table_bytes,
            per_mille => (u128::from(table_bytes) * u128::from(per_mille) / 1000) as u64,
        }
    }

    /// Records the start of a job of the chain.
    pub fn begins(&self, now_ns: u64) {
        let measured = &self.measured;
        if measured.running.fetch_add(1, Relaxed) == 0 && measured.since_ns.load(Relaxed) == 0 {
            measured.since_ns.store(now_ns.max(1), Relaxed);
        }
    }

    /// Records the end of a job of the chain. `is_deep`: level 0 is above its slowdown depth.
    pub fn ends(&self, now_ns: u64, is_deep: bool) {
        let measured = &self.measured;
        if measured.running.fetch_sub(1, Relaxed) == 1 && !is_deep {
            let since_ns = measured.since_ns.swap(0, Relaxed);
            if since_ns > 0 {
                measured.before_ns.fetch_add(now_ns.saturating_sub(since_ns), Relaxed);
            }
        }
    }

    /// Records table bytes that a job of the chain moved out of level 0. `stop_files`: the stop
    /// depth of level 0.
    pub fn record_drained(&self, table_bytes: u64, now_ns: u64, stop_files: usize) {
        let measured = &self.measured;
        let since_ns = measured.since_ns.swap(now_ns.max(1), Relaxed);
        let ns = measured.before_ns.swap(0, Relaxed).saturating_add(now_ns.saturating_sub(since_ns));
        let mut bytes = measured.bytes.load(Relaxed).saturating_add(self.of_memtables(table_bytes));
        let mut ns = measured.ns.load(Relaxed).saturating_add(ns);
        let most = self.of_memtables(self.flush_bytes.load(Relaxed)).saturating_mul(stop_files as u64);
        while most > 0 && bytes > most.saturating_mul(REMEMBERED) && ns > 1 {
            (bytes, ns) = (bytes / 2, ns / 2);
        }
        measured.bytes.store(bytes, Relaxed);
        measured.ns.store(ns, Relaxed);
    }

    /// Returns the drain rate, in memtable bytes per second; 0 without a measurement.
    pub fn bytes_per_s(&self, now_ns: u64) -> u64 {
        let measured = &self.measured;
        let bytes = measured.bytes.load(Relaxed);
        if bytes == 0 {
            return 0;
        }
        let since_ns = measured.since_ns.load(Relaxed);
        let now_ns = if since_ns > 0 { now_ns.saturating_sub(since_ns) } else { 0 };
        let ns = measured.ns.load(Relaxed) + measured.before_ns.load(Relaxed) + now_ns;
        let bytes = bytes + self.of_memtables(self.jobs.done.load(Relaxed));
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
    }

    /// Registers a job that takes table bytes out of level 0, and reduces its `depth` by `falls`
    /// tables.
    pub fn is_drained(&self, table_bytes: u64, falls: f64, depth: f64) -> Share {
        self.thorough.store(if falls > 0.75 * depth { 1 } else { 2 }, Relaxed);
        if self.flush_bytes.load(Relaxed) == 0 {
            // These tables were written before the store was opened.
            self.flush_bytes.store((table_bytes as f64 / falls.max(1.0)) as u64, Relaxed);
        }
        let falls = (falls.max(0.0) * PARTS) as u64;
        self.jobs.takes.fetch_add(table_bytes, Relaxed);
        self.jobs.falls.fetch_add(falls, Relaxed);
        Share { takes: table_bytes, falls, done: AtomicU64::new(0) }
    }

    /// Records the progress of a job. Threads report independently; the maximum counts.
    pub fn has_come(&self, share: &Share, part: f64) {
        let now = (part.clamp(0.0, 1.0) * PARTS) as u64;
        let before = share.done.fetch_max(now, Relaxed);
        if now > before {
            self.jobs.done.fetch_add(share.of(share.takes, now) - share.of(share.takes, before), Relaxed);
            self.jobs.fallen.fetch_add(share.of(share.falls, now) - share.of(share.falls, before), Relaxed);
        }
    }

    /// Unregisters a job, which reports no further progress.
    pub fn rests(&self, share: &Share) {
        let done = share.done.load(Relaxed);
        self.jobs.takes.fetch_sub(share.takes, Relaxed);
        self.jobs.done.fetch_sub(share.of(share.takes, done), Relaxed);
        self.jobs.falls.fetch_sub(share.falls, Relaxed);
        self.jobs.fallen.fetch_sub(share.of(share.falls, done), Relaxed);
    }

    /// Returns the running jobs that drain level 0.
    pub fn draining(&self) -> Draining {
        let (jobs, flush_bytes) = (&self.jobs, self.flush_bytes.load(Relaxed).max(1) as f64);
        let (takes, done) = (jobs.takes.load(Relaxed), jobs.done.load(Relaxed));
        Draining {
            takes: takes as f64 / flush_bytes,
            left: takes.saturating_sub(done) as f64 / flush_bytes,
            fallen: jobs.fallen.load(Relaxed) as f64 / PARTS,
            takes_all: self.thorough.load(Relaxed) < 2,
        }
    }
}

impl Share {
    fn of(&self, all: u64, done: u64) -> u64 {
        (u128::from(all) * u128::from(done) / PARTS as u128) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
