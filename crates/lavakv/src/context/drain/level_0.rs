//! How fast the level 0 of a family is drained, and by what, now.
//!
//! **The rate is what the chain drains**: bytes that left level 0, for the time in which somebody worked on it. The time counts from the moment at
//! which a job of the chain begins (one that drains level 0, or that makes room for those below it), goes on as long as level 0 is
//! deeper than where slowing starts, whoever works then or nobody does, and else ends with the job. So it holds all that
//! stands between a memtable and its place, in whatever order and on however many threads: jobs of deeper levels that level 0 waits
//! for, flushes, and what other jobs take of the device. It holds what the jobs under way have done, and the time that they have taken, so one
//! that is slower than usual is believed while it goes on. To average the rates of the jobs does not do: two that take turns are slower than each, two at
//! a time are faster, and a short one says as much as a long one.
//!
//! All are hints for writers: nothing depends on what two jobs that end at the same time make of a sum.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// Thousandths of a table of level 0, or of a job.
const PARTS: f64 = 1000.0;
/// So many times what level 0 holds at its stop is remembered.
const REMEMBERED: u64 = 2;

/// See the module. Of tables, in bytes of the memtables that they were.
#[derive(Debug, Default)]
pub(crate) struct Level0Drain {
    measured: Measured,
    jobs: UnderWay,
    /// Thousandths of a byte of a memtable for each byte that it has in a table: with separated values that is much. 0: not known.
    memtable_per_mille: AtomicU64,
    /// Bytes in tables that a flush leaves in level 0, usually; 0: not known.
    flush_bytes: AtomicU64,
    /// The last job left nothing there (1) or something (2); 0: there was none.
    thorough: AtomicU64,
}

/// Bytes that left level 0, and the time that it took.
#[derive(Debug, Default)]
struct Measured {
    bytes: AtomicU64,
    ns: AtomicU64,
    /// Jobs of the chain.
    running: AtomicU64,
    /// Since when time is to be counted, in clock nanoseconds; 0: it is not.
    since_ns: AtomicU64,
    /// What was to be counted before.
    before_ns: AtomicU64,
}

/// The sums of the jobs that drain level 0 now. Writers would else see nothing of them before their end.
#[derive(Debug, Default)]
struct UnderWay {
    /// Bytes of tables that they take.
    takes: AtomicU64,
    done: AtomicU64,
    /// How much less deep level 0 is going to be by them, in thousandths of a table.
    falls: AtomicU64,
    fallen: AtomicU64,
}

/// What a job takes of level 0.
#[derive(Debug)]
pub(crate) struct Share {
    /// Bytes of tables.
    takes: u64,
    /// Thousandths of a table.
    falls: u64,
    /// Thousandths of it.
    done: AtomicU64,
}

/// What drains level 0, as far as it has come, in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Draining {
    /// What it takes; 0: there is none now.
    pub takes: f64,
    /// What of that is left to do.
    pub left: f64,
    /// How much less deep level 0 is going to be for what it has done.
    pub fallen: f64,
    /// It takes all that there was when it began, or the last one did.
    pub takes_all: bool,
}

impl Level0Drain {
    /// A memtable of so many bytes has become tables of so many.
    pub fn flushed(&self, memtable_bytes: u64, table_bytes: u64) {
        let follow = |of: &AtomicU64, now: u64| {
            let old = of.load(Relaxed);
            of.store(if old == 0 { now } else { old / 4 * 3 + now / 4 }, Relaxed);
        };
        follow(&self.memtable_per_mille, memtable_bytes.saturating_mul(1000) / table_bytes.max(1));
        follow(&self.flush_bytes, table_bytes);
    }

    /// Bytes of memtables for so many of tables.
    pub fn of_memtables(&self, table_bytes: u64) -> u64 {
        match self.memtable_per_mille.load(Relaxed) {
            0 => table_bytes,
            per_mille => (u128::from(table_bytes) * u128::from(per_mille) / 1000) as u64,
        }
    }

    /// A job of the chain begins.
    pub fn begins(&self, now_ns: u64) {
        let measured = &self.measured;
        if measured.running.fetch_add(1, Relaxed) == 0 && measured.since_ns.load(Relaxed) == 0 {
            measured.since_ns.store(now_ns.max(1), Relaxed);
        }
    }

    /// It is over. `is_deep`: level 0 is deeper than where slowing starts.
    pub fn ends(&self, now_ns: u64, is_deep: bool) {
        let measured = &self.measured;
        if measured.running.fetch_sub(1, Relaxed) == 1 && !is_deep {
            let since_ns = measured.since_ns.swap(0, Relaxed);
            if since_ns > 0 {
                measured.before_ns.fetch_add(now_ns.saturating_sub(since_ns), Relaxed);
            }
        }
    }

    /// One of them has taken so many bytes of tables out of level 0, which stops at so many flushes.
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

    /// How fast level 0 is drained, bytes of memtables a second. 0 if nothing was measured.
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

    /// A job takes so many bytes of tables out of level 0, and leaves it less deep by `falls` of `depth` tables.
    pub fn is_drained(&self, table_bytes: u64, falls: f64, depth: f64) -> Share {
        self.thorough.store(if falls > 0.75 * depth { 1 } else { 2 }, Relaxed);
        if self.flush_bytes.load(Relaxed) == 0 {
            // The tables are from before the store was opened.
            self.flush_bytes.store((table_bytes as f64 / falls.max(1.0)) as u64, Relaxed);
        }
        let falls = (falls.max(0.0) * PARTS) as u64;
        self.jobs.takes.fetch_add(table_bytes, Relaxed);
        self.jobs.falls.fetch_add(falls, Relaxed);
        Share { takes: table_bytes, falls, done: AtomicU64::new(0) }
    }

    /// It has done such a part of its work. Of what several threads say the most counts.
    pub fn has_come(&self, share: &Share, part: f64) {
        let now = (part.clamp(0.0, 1.0) * PARTS) as u64;
        let before = share.done.fetch_max(now, Relaxed);
        if now > before {
            self.jobs.done.fetch_add(share.of(share.takes, now) - share.of(share.takes, before), Relaxed);
            self.jobs.fallen.fetch_add(share.of(share.falls, now) - share.of(share.falls, before), Relaxed);
        }
    }

    /// It is over: nobody says any more how far it has come.
    pub fn rests(&self, share: &Share) {
        let done = share.done.load(Relaxed);
        self.jobs.takes.fetch_sub(share.takes, Relaxed);
        self.jobs.done.fetch_sub(share.of(share.takes, done), Relaxed);
        self.jobs.falls.fetch_sub(share.falls, Relaxed);
        self.jobs.fallen.fetch_sub(share.of(share.falls, done), Relaxed);
    }

    /// What drains level 0.
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
