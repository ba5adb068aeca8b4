//! What reads of a disk cost, learnt from those that the store makes: what one request more costs beside others, and what a byte more does.
//!
//! Whoever reads several places of a file decides whether to read over the gap between two of them: a request less, and so many bytes more. With
//! reads in flight together the device works on several at once, so what a read takes is not what it costs: of 32 reads that take 100 us together, each
//! takes up to 100 us, but one less would save 2. What is asked here is the time of all of them, as a function of how many they are and how long.
//!
//! So it goes by *bursts*: reads that begin while none of the store's is at the disk, all before the first of them has ended, until all
//! have. One that is joined by others later is none: how long that takes is up to those; nor is one with reads of another disk among them. Two kinds say something, each by the mean length of its reads:
//!
//! * a burst of one read says what a read takes alone;
//! * of a burst of [`MANY_MIN`] or more, what it takes beyond one that is alone is what the others cost, each of them.
//!
//! Cost is a line over length: `request + byte * length`. The line goes through the shortest and the longest kind of the latter that are known. If only one
//! is, how steep it is is taken from reads that are alone: too steep where a device moves the bytes of several reads at once, so that gaps are
//! rather too short than too long. Then `request / byte` is how many bytes cost as much as a request: the **gap** worth reading over. What one read that is alone takes, divided by the cost of a byte, is how
//! much has to be in flight so that the device moves bytes all the time: the **window**. Nothing is told before enough is known.
//!
//! Reads that their thread does not wait for ([`ReadCost::begins_beside`]) say nothing: nobody notices when they end. What is made beside them is no burst. That holds for
//! [`BESIDE_NS_MAX`]: a job that is held back, or whose thread has turned to something else, may notice very much later that its reads have ended, and nothing would be
//! learnt meanwhile.
//!
//! What a page cache has comes quickly and is counted as it is: reads cost what they cost where they are made. Its hits are not evenly spread over lengths, so that
//! ratios may be far off. The gap is held between [`GAP_MIN`] and [`GAP_MAX`] whatever was measured; whoever takes the window has bounds of his own. A read that took very
//! much longer than usual counts as one that took [`OUTLIER`] times as long. Sums are halved now and then, so that what was long ago is forgotten,
//! each length for itself: what is known of long reads stays known while only short ones are made.
//!
//! Reads touch counters, which are estimates: of two threads at the same moment one burst may be taken for another. What is learnt is under a lock that
//! the end of a burst takes, and of these there is one at a time. A thread that reads alone makes a burst of each read, so an end adds to sums and no
//! more: what follows from them is derived at every [`DERIVED_EVERY`]th. Where nobody is to go by it, nothing is counted.

use base::sync::model::{Mutex, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use io::ReadCosts;

/// The least and the most bytes that are worth reading over, whatever was measured.
pub const GAP_MIN: u64 = 4 << 10;
/// See [`GAP_MIN`].
pub const GAP_MAX: u64 = 256 << 10;
/// So many reads are many.
const MANY_MIN: u64 = 4;
/// Reads that are alone are known from so many on, and those that are with others.
const ALONE_MIN: u64 = 16;
const BESIDE_MIN: u64 = 64;
/// Sums of more reads than so many are halved.
const ALONE_MAX: u64 = 512;
const BESIDE_MAX: u64 = 4096;
/// What takes more than so many times as long as is usual counts as that.
const OUTLIER: u64 = 8;
/// Two kinds of reads say what a byte costs if one is so many times as long as the other.
const SPREAD: u64 = 3;
/// Where the next longer kind of reads begins.
const LENGTHS: [u64; 3] = [8 << 10, 32 << 10, 128 << 10];
const KINDS: usize = LENGTHS.len() + 1;
/// What is told is derived anew after so many bursts. Threads that loom interleaves make two.
const DERIVED_EVERY: u64 = if cfg!(loom) { 1 } else { 16 };
/// Reads that nobody waits for have ended after so long, whether or not somebody has noticed.
const BESIDE_NS_MAX: u64 = 500_000_000;
/// A burst that something else began in the middle of.
const NONE: u64 = u64::MAX;
/// No gap is given.
const MEASURED: u64 = u64::MAX;
const MIB: u128 = 1 << 20;

/// What is known of the cost of reads; 0: it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCostReport {
    /// What a request costs beside others, without its bytes, nanoseconds.
    pub request_ns: u64,
    /// What a mebibyte costs, nanoseconds.
    pub mib_ns: u64,
    /// The gap that is worth reading over.
    pub gap_bytes: u64,
    /// What has to be in flight so that bytes are moved all the time.
    pub window_bytes: u64,
}

/// Bursts of reads of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bursts: u64,
    reads: u64,
    bytes: u64,
    ns: u64,
}

impl Sums {
    fn add(&mut self, reads: u64, bytes: u64, ns: u64, reads_max: u64) {
        self.bursts += 1;
        self.reads += reads;
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(ns);
        if self.reads > reads_max {
            let Sums { bursts, reads, bytes, ns } = *self;
            *self = Sums { bursts: bursts / 2, reads: reads / 2, bytes: bytes / 2, ns: ns / 2 };
        }
    }

    fn mean_len(&self) -> u64 {
        self.bytes / self.reads.max(1)
    }
}

/// Of reads of one length: what one costs.
#[derive(Clone, Copy, Debug)]
struct Point {
    len: u64,
    ps: u128,
}

/// What a byte costs: so many picoseconds for so many bytes.
#[derive(Clone, Copy, Debug)]
struct Slope {
    ps: u128,
    bytes: u128,
}

impl Slope {
    /// Of the line through both, if they are far enough apart. Nothing is cheaper for being longer.
    fn between(short: Point, long: Point) -> Option<Slope> {
        let bytes = long.len.checked_sub(short.len).filter(|_| long.len >= SPREAD * short.len.max(1))?;
        Some(Slope { ps: long.ps.saturating_sub(short.ps), bytes: bytes.into() })
    }

    fn cost_ps(self, bytes: u64) -> u128 {
        self.ps * u128::from(bytes) / self.bytes
    }

    /// How many bytes cost so much.
    fn bytes_for(self, ps: u128) -> u64 {
        (ps * self.bytes).checked_div(self.ps).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
struct Learnt {
    alone: [Sums; KINDS],
    many: [Sums; KINDS],
    /// Bursts since the report was derived.
    underived: u64,
}

impl Learnt {
    fn alone(&self, kind: usize) -> Option<Point> {
        let sums = self.alone.get(kind).filter(|sums| sums.reads >= ALONE_MIN)?;
        Some(Point { len: sums.mean_len(), ps: u128::from(sums.ns) * 1000 / u128::from(sums.reads) })
    }

    /// What reads beside others cost, each.
    fn beside(&self, kind: usize) -> Option<Point> {
        let sums = self.many.get(kind).filter(|sums| sums.reads - sums.bursts >= BESIDE_MIN)?;
        // What is not known of this length, or only of long ago, is known of shorter ones: most of it is what a request takes.
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

/// See the module.
#[derive(Debug)]
pub struct ReadCost {
    /// Reads that have begun, and those of them that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The burst: how many reads had begun before it ([`NONE`]: it is none), when it began, and its bytes.
    first: AtomicU64,
    since_ns: AtomicU64,
    bytes: AtomicU64,
    /// Reads that are beside all this and have not ended, as far as anybody has noticed, and when they have at the latest.
    beside: AtomicU64,
    beside_until_ns: AtomicU64,
    /// What bursts came to. It guards what is told as well: derived and told under it, so that the last that is told is the last that was derived.
    learnt: Mutex<Learnt, rank::ReadCost>,
    /// What was known when it was derived, 0 for what was not.
    gap_bytes: AtomicU64,
    window_bytes: AtomicU64,
    /// The gap that was given.
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

    /// From now on gaps of so many bytes are read over, whatever is measured.
    pub fn give_gap(&self, bytes: u64) {
        self.given.store(bytes, Relaxed);
    }

    /// From now on nothing is measured, and nothing told of what was.
    pub fn switch_off(&self) {
        self.is_off.store(true, Relaxed);
    }

    /// So many reads begin, together.
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

    /// So many reads begin, together with reads of another disk: when those of this one end nobody is told, or
    /// nobody waits for them: they are part of no burst, and there is none before they have ended.
    pub fn begins_beside(&self, now_ns: u64, reads: u64) {
        if self.is_off.load(Relaxed) {
            return;
        }
        self.beside_until_ns.fetch_max(now_ns.saturating_add(BESIDE_NS_MAX), Relaxed);
        self.beside.fetch_add(reads, Relaxed);
        self.first.store(NONE, Relaxed);
    }

    /// So many of these have ended.
    pub fn ends_beside(&self, reads: u64) {
        if !self.is_off.load(Relaxed) {
            self.beside.fetch_sub(reads, Relaxed);
        }
    }

    fn is_beside(&self, now_ns: u64) -> bool {
        self.beside.load(Relaxed) > 0 && now_ns < self.beside_until_ns.load(Relaxed)
    }

    /// So many have ended.
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

    /// What whoever reads may go by.
    pub fn get(&self) -> ReadCosts {
        let known = |of: &AtomicU64| Some(of.load(Relaxed)).filter(|n| *n > 0 && !self.is_off.load(Relaxed));
        let given = Some(self.given.load(Relaxed)).filter(|n| *n != MEASURED);
        ReadCosts {
            gap_bytes: given.or_else(|| known(&self.gap_bytes)),
            window_bytes: known(&self.window_bytes),
        }
    }

    /// What is known; of gap and window what is gone by.
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

    /// Whoever reads beside whom: at the end none is at the disk, no burst has more reads than were made, and the next one is one.
    #[test]
    fn loom_bursts_end() {
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

    /// Two bursts end, one after the other: what is told when both threads are gone is what follows from both.
    #[test]
    fn loom_what_is_told_is_what_was_derived_last() {
        check(3, || {
            let cost = Arc::new(ReadCost::new());
            {
                let mut learnt = lock(&cost.learnt);
                learnt.alone[0] = Sums { bursts: 16, reads: 16, bytes: 16 * 4096, ns: 16 * 80_000 };
                learnt.many[0] = Sums { bursts: 10, reads: 100, bytes: 100 * 1000, ns: 1_000_000 };
                learnt.many[2] = Sums { bursts: 10, reads: 100, bytes: 100 * 60_000, ns: 10_000_000 };
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

    /// Whoever reads beside reads that nobody waits for: when all have ended the next one is a burst.
    #[test]
    fn loom_what_nobody_waits_for_ends_too() {
        check(3, || {
            let cost = Arc::new(ReadCost::new());
            let other = {
                let cost = cost.clone();
                thread::spawn(move || {
                    cost.begins_beside(10, 2);
                    cost.ends_beside(2);
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
