//! Cost of reads on a disk, learned from the store's own reads: the cost of an additional request,
//! and of an additional byte.
//!
//! A reader of several ranges decides whether to read over the gap between two of them: one request
//! less, and more bytes. With several reads in flight the device works on them in parallel, so
//! latency is not cost. Of 32 reads that take 100 us together each takes up to 100 us, but one read
//! less would save 2 us. So the cost model is the time of all of them, as a function of their
//! number and length.
//!
//! The unit of measurement is a *burst*: reads that begin while the disk is otherwise idle, all
//! before the first of them ends, until the last ends. It is no burst if later reads join, because
//! they change its duration, or if it includes reads of another disk. Two kinds of bursts are used,
//! by the mean length of their reads:
//!
//! * a burst of one read gives the latency of a single read;
//! * in a burst of [`MANY_MIN`] or more reads, the time beyond a single read's latency is the cost
//!   of the other reads.
//!
//! The cost model is linear: `request + byte * length`, through the shortest and the longest known
//! length class of the second kind. If only one class is known, the slope comes from single reads.
//! That is too steep on a device that transfers several reads in parallel, so gaps are rather too
//! short than too long. Two results follow. `request / byte` is the number of bytes that cost as
//! much as a request: the **gap** worth reading over. The latency of a single read, divided by the
//! cost of a byte, is the number of bytes in flight that keeps the device transferring: the
//! **window**. Neither is reported before enough is known.
//!
//! Reads without a waiting thread ([`ReadCost::begin_unlimited`]) are not measured, because their
//! end is not noticed at once. Reads beside them form no burst. That holds for at most
//! [`BESIDE_NS_MAX`]. A job that is held back, or whose thread does other work, may notice the end
//! much later, and nothing would be learned meanwhile.
//!
//! Page cache hits are fast and count as measured: the cost includes the page cache. Hits are not
//! evenly spread over lengths, so ratios may be far off. So the gap is always between [`GAP_MIN`]
//! and [`GAP_MAX`]; users of the window have their own bounds. A read much slower than usual counts
//! as [`OUTLIER`] times the usual. Sums are halved from time to time, for each length class on its
//! own, so that old measurements fade. Long reads stay known while only short ones are made.
//!
//! Reads update counters, which are estimates: with two threads at the same moment one burst may be
//! taken for another. The sums are under a lock that the end of a burst takes. A single reading
//! thread makes each read a burst, so an end only adds to sums. The results are derived at every
//! [`DERIVED_EVERY`]th end. If measured costs are switched off, nothing is counted.

use base::sync::model::{Mutex, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use io::ReadCosts;

/// Minimum gap worth reading over, whatever was measured, bytes.
pub const GAP_MIN: u64 = 4 << 10;
/// Maximum gap worth reading over, bytes.
pub const GAP_MAX: u64 = 256 << 10;
/// Minimum reads of a burst of many.
const MANY_MIN: u64 = 4;
/// Minimum number of reads for a known cost: single reads, and additional reads of a burst.
const ALONE_MIN: u64 = 16;
const BESIDE_MIN: u64 = 64;
/// Number of reads at which sums are halved.
const ALONE_MAX: u64 = 512;
const BESIDE_MAX: u64 = 4096;
/// Cap of a measurement, as a multiple of the usual time.
const OUTLIER: u64 = 8;
/// Minimum ratio of two length classes for a slope.
const SPREAD: u64 = 3;
/// Boundaries of the length classes, bytes.
const LENGTHS: [u64; 3] = [8 << 10, 32 << 10, 128 << 10];
const KINDS: usize = LENGTHS.len() + 1;
/// Bursts between two derivations of the results. Under loom there are only two bursts.
const DERIVED_EVERY: u64 = if cfg!(loom) { 1 } else { 16 };
/// Reads without a waiting thread count as ended after this time, noticed or not.
const BESIDE_NS_MAX: u64 = 500_000_000;
/// Marks a burst that other reads joined.
const NONE: u64 = u64::MAX;
/// Marks a gap that is not fixed.
const MEASURED: u64 = u64::MAX;
const MIB: u128 = 1 << 20;

/// Known cost of reads; 0: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCostReport {
    /// Cost of an additional request without its bytes, nanoseconds.
    pub request_ns: u64,
    /// Cost of a mebibyte, nanoseconds.
    pub mib_ns: u64,
    /// Gap worth reading over.
    pub gap_bytes: u64,
    /// Bytes in flight that keep the device transferring.
    pub window_bytes: u64,
}

/// Sums over bursts of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct BurstSums {
    bursts: u64,
    reads: u64,
    bytes: u64,
    ns: u64,
}

impl BurstSums {
    fn add(&mut self, reads: u64, bytes: u64, ns: u64, reads_max: u64) {
        self.bursts += 1;
        self.reads += reads;
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(ns);
        if self.reads > reads_max {
            let BurstSums { bursts, reads, bytes, ns } = *self;
            *self = BurstSums { bursts: bursts / 2, reads: reads / 2, bytes: bytes / 2, ns: ns / 2 };
        }
    }

    fn mean_len(&self) -> u64 {
        self.bytes / self.reads.max(1)
    }
}

/// Cost of one read of a length, picoseconds.
#[derive(Clone, Copy, Debug)]
struct Point {
    len: u64,
    ps: u128,
}

/// Cost of a byte, as picoseconds for a number of bytes.
#[derive(Clone, Copy, Debug)]
struct Slope {
    ps: u128,
    bytes: u128,
}

impl Slope {
    /// Returns the slope between two points that are far enough apart. A longer read is never
    /// cheaper.
    fn between(short: Point, long: Point) -> Option<Slope> {
        let bytes = long.len.checked_sub(short.len).filter(|_| long.len >= SPREAD * short.len.max(1))?;
        Some(Slope { ps: long.ps.saturating_sub(short.ps), bytes: bytes.into() })
    }

    fn cost_ps(self, bytes: u64) -> u128 {
        self.ps * u128::from(bytes) / self.bytes
    }

    /// Returns the number of bytes with this cost.
    fn bytes_for(self, ps: u128) -> u64 {
        (ps * self.bytes).checked_div(self.ps).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
struct Learnt {
    alone: [BurstSums; KINDS],
    many: [BurstSums; KINDS],
    /// Bursts since the last derivation.
    underived: u64,
}

impl Learnt {
    fn alone(&self, kind: usize) -> Option<Point> {
        let sums = self.alone.get(kind).filter(|sums| sums.reads >= ALONE_MIN)?;
        Some(Point { len: sums.mean_len(), ps: u128::from(sums.ns) * 1000 / u128::from(sums.reads) })
    }

    /// Returns the cost of an additional read of this length class.
    fn beside(&self, kind: usize) -> Option<Point> {
        let sums = self.many.get(kind).filter(|sums| sums.reads - sums.bursts >= BESIDE_MIN)?;
        // If the latency of this length is unknown or outdated, that of shorter reads serves: most
        // of it is the request.
        let first_ps = (0..=kind).filter_map(|kind| self.alone(kind)).map(|point| point.ps).max()?;
        let beyond = (u128::from(sums.ns) * 1000).saturating_sub(first_ps * u128::from(sums.bursts));
        Some(Point { len: sums.mean_len(), ps: beyond / u128::from(sums.reads - sums.bursts) })
    }

    fn add(&mut self, reads: u64, bytes: u64, ns: u64) {
        let len = bytes / reads.max(1);
        let kind = LENGTHS.iter().filter(|longer| len >= **longer).count();
        let bound =
            |usual_ps: u128| ns.min(u64::try_from(usual_ps / 1000).unwrap_or(NONE).saturating_mul(OUTLIER));
        if reads == 1 {
            let ns = self.alone(kind).map_or(ns, |usual| bound(usual.ps));
            self.alone[kind].add(1, bytes, ns, ALONE_MAX);
        } else if reads >= MANY_MIN {
            let usual = self.many[kind];
            let is_known = usual.reads - usual.bursts >= BESIDE_MIN;
            let usual_ps = u128::from(usual.ns) * 1000 * u128::from(reads) / u128::from(usual.reads.max(1));
            self.many[kind].add(reads, bytes, if is_known { bound(usual_ps) } else { ns }, BESIDE_MAX);
        }
    }

    fn report(&self) -> ReadCostReport {
        let ends =
            |of: &dyn Fn(usize) -> Option<Point>| (0..KINDS).find_map(of).zip((0..KINDS).rev().find_map(of));
        let (beside, alone) = (ends(&|kind| self.beside(kind)), ends(&|kind| self.alone(kind)));
        let slope_of = |(short, long): (Point, Point)| Slope::between(short, long);
        let (Some((short, _)), Some((first, _)), Some(slope)) =
            (beside, alone, beside.and_then(slope_of).or_else(|| alone.and_then(slope_of)))
        else {
            return ReadCostReport::default();
        };
        let request_ps = short.ps.saturating_sub(slope.cost_ps(short.len));
        let ns = |ps: u128| u64::try_from(ps / 1000).unwrap_or(u64::MAX);
        ReadCostReport {
            request_ns: ns(request_ps),
            mib_ns: ns(slope.ps * MIB / slope.bytes),
            gap_bytes: slope.bytes_for(request_ps).clamp(GAP_MIN, GAP_MAX),
            window_bytes: slope.bytes_for(first.ps),
        }
    }
}

/// Cost of reads: see the module.
#[derive(Debug)]
pub struct ReadCost {
    /// Reads begun, and reads ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The burst: the number of reads begun before it ([`NONE`]: no burst), its start, and its
    /// bytes.
    first: AtomicU64,
    since_ns: AtomicU64,
    bytes: AtomicU64,
    /// Reads without a waiting thread whose end was not noticed, and the latest time of their end.
    beside: AtomicU64,
    beside_until_ns: AtomicU64,
    /// Sums over bursts. The lock also covers the published results: they are derived and stored
    /// under it, so that the last stored are the last derived.
    learnt: Mutex<Learnt, rank::ReadCost>,
    /// Results of the last derivation; 0: unknown.
    gap_bytes: AtomicU64,
    window_bytes: AtomicU64,
    /// The fixed gap.
    given: AtomicU64,
    is_off: AtomicBool,
}

impl ReadCost {
    pub fn new() -> ReadCost {
        ReadCost {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            first: AtomicU64::new(NONE),
            since_ns: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            beside_until_ns: AtomicU64::new(0),
            learnt: Mutex::new(Learnt::default()),
            gap_bytes: AtomicU64::new(0),
            window_bytes: AtomicU64::new(0),
            given: AtomicU64::new(MEASURED),
            is_off: AtomicBool::new(false),
        }
    }

    /// Fixes the gap, whatever is measured.
    pub fn give_gap(&self, bytes: u64) {
        self.given.store(bytes, Relaxed);
    }

    /// Switches off measurement and its results.
    pub fn switch_off(&self) {
        self.is_off.store(true, Relaxed);
    }

    /// Records the begin of reads that are in flight together.
    pub fn begins(&self, now_ns: u64, reads: u64, bytes: u64) {
        if self.is_off.load(Relaxed) {
            return;
        }
        let before = self.begun.fetch_add(reads, Relaxed);
        let ended = self.ended.load(Relaxed);
        if before == ended && self.is_beside(now_ns) {
            self.first.store(NONE, Relaxed);
        } else if before == ended {
            self.since_ns.store(now_ns, Relaxed);
            self.bytes.store(bytes, Relaxed);
            self.first.store(before, Relaxed);
        } else if ended > self.first.load(Relaxed) {
            self.first.store(NONE, Relaxed);
        } else {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Records the begin of reads whose end is not noticed at once: reads without a waiting thread,
    /// or together with reads of another disk. They belong to no burst, and there is none before
    /// they have ended.
    pub fn begin_unlimited(&self, now_ns: u64, reads: u64) {
        if self.is_off.load(Relaxed) {
            return;
        }
        self.beside_until_ns.fetch_max(now_ns.saturating_add(BESIDE_NS_MAX), Relaxed);
        self.beside.fetch_add(reads, Relaxed);
        self.first.store(NONE, Relaxed);
    }

    /// Records the end of such reads.
    pub fn end_unlimited(&self, reads: u64) {
        if !self.is_off.load(Relaxed) {
            self.beside.fetch_sub(reads, Relaxed);
        }
    }

    fn is_beside(&self, now_ns: u64) -> bool {
        self.beside.load(Relaxed) > 0 && now_ns < self.beside_until_ns.load(Relaxed)
    }

    /// Records the end of reads.
    pub fn ends(&self, now_ns: u64, reads: u64) {
        if self.is_off.load(Relaxed) {
            return;
        }
        let ended = self.ended.fetch_add(reads, Relaxed) + reads;
        let first = self.first.load(Relaxed);
        if ended != self.begun.load(Relaxed) || first >= ended {
            return;
        }
        let took_ns = now_ns.saturating_sub(self.since_ns.load(Relaxed));
        self.learn(ended - first, self.bytes.load(Relaxed), took_ns);
    }

    fn learn(&self, reads: u64, bytes: u64, ns: u64) {
        let mut learnt = lock(&self.learnt);
        learnt.add(reads, bytes, ns);
        learnt.underived += 1;
        if learnt.underived >= DERIVED_EVERY {
            learnt.underived = 0;
            let report = learnt.report();
            self.gap_bytes.store(report.gap_bytes, Relaxed);
            self.window_bytes.store(report.window_bytes, Relaxed);
        }
    }

    /// Returns the costs for readers to use.
    pub fn get(&self) -> ReadCosts {
        let known = |of: &AtomicU64| Some(of.load(Relaxed)).filter(|n| *n > 0 && !self.is_off.load(Relaxed));
        let given = Some(self.given.load(Relaxed)).filter(|n| *n != MEASURED);
        ReadCosts {
            gap_bytes: given.or_else(|| known(&self.gap_bytes)),
            window_bytes: known(&self.window_bytes),
        }
    }

    /// Returns the known costs, with the gap and the window in use.
    pub fn report(&self) -> ReadCostReport {
        let ReadCosts { gap_bytes, window_bytes } = self.get();
        let (gap_bytes, window_bytes) = (gap_bytes.unwrap_or(0), window_bytes.unwrap_or(0));
        ReadCostReport { gap_bytes, window_bytes, ..lock(&self.learnt).report() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    /// With concurrent reads, in the end none is in flight and no burst has more reads than were
    /// made. The next read is a burst.
    #[test]
    fn loom_every_read_burst_ends() {
        check(3, || {
            let cost = Arc::new(ReadCost::new());
            let other = {
                let cost = cost.clone();
                thread::spawn(move || {
                    cost.begins(10, 4, 400);
                    cost.ends(20, 4);
                })
            };
            cost.begins(11, 1, 100);
            cost.ends(12, 1);
            other.join().unwrap();
            let made = |learnt: &Learnt| learnt.alone[0].reads + learnt.many[0].reads;
            let before = made(&lock(&cost.learnt));
            assert!(before <= 6, "{before}");
            cost.begins(30, 1, 100);
            cost.ends(40, 1);
            assert_eq!(made(&lock(&cost.learnt)), before + 1);
        });
    }

    /// After two successive bursts the published results include both.
    #[test]
    fn loom_published_read_cost_is_the_latest() {
        check(3, || {
            let cost = Arc::new(ReadCost::new());
            {
                let mut learnt = lock(&cost.learnt);
                learnt.alone[0] = BurstSums { bursts: 16, reads: 16, bytes: 16 * 4096, ns: 16 * 80_000 };
                learnt.many[0] = BurstSums { bursts: 10, reads: 100, bytes: 100 * 1000, ns: 1_000_000 };
                learnt.many[2] = BurstSums { bursts: 10, reads: 100, bytes: 100 * 60_000, ns: 10_000_000 };
            }
            let other = {
                let cost = cost.clone();
                thread::spawn(move || cost.learn(1, 4096, 500_000))
            };
            cost.learn(1, 4096, 100);
            other.join().unwrap();
            let derived = lock(&cost.learnt).report();
            let known = |bytes| Some(bytes).filter(|n| *n > 0);
            let told =
                ReadCosts { gap_bytes: known(derived.gap_bytes), window_bytes: known(derived.window_bytes) };
            assert!(told.window_bytes.is_some(), "{derived:?}");
            assert_eq!(cost.get(), told);
        });
    }

    /// After reads without a waiting thread have ended, the next read is a burst.
    #[test]
    fn loom_reads_without_waiters_end_their_burst() {
        check(3, || {
            let cost = Arc::new(ReadCost::new());
            let other = {
                let cost = cost.clone();
                thread::spawn(move || {
                    cost.begin_unlimited(10, 2);
                    cost.end_unlimited(2);
                })
            };
            cost.begins(11, 1, 100);
            cost.ends(12, 1);
            other.join().unwrap();
            let made = |learnt: &Learnt| learnt.alone[0].reads + learnt.many[0].reads;
            let before = made(&lock(&cost.learnt));
            assert!(before <= 1, "{before}");
            cost.begins(30, 1, 100);
            cost.ends(40, 1);
            assert_eq!(made(&lock(&cost.learnt)), before + 1);
        });
    }
}
