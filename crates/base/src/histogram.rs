//! Distributions of values, such as latencies of operations and sizes of jobs.
//!
//! Many threads record into a [`Histogram`]; a read of it is a [`Distribution`], a plain value.
//!
//! **Buckets.** As in an HDR histogram, each power of two is cut into [`SUB_BUCKETS`] buckets of
//! equal width; below that each value has a bucket. So a bucket is at most a sixteenth of its
//! values wide, and a reported quantile is at most that much too high and never too low. Values
//! from 2^44 on (five hours in nanoseconds, 16 TiB) are in the last bucket; the largest value is
//! kept exactly.
//!
//! **Cost.** A record adds to a bucket and to a sum, both relaxed, in a stripe that few other
//! threads use: no lock, no allocation, about ten nanoseconds (`io/examples/timing_cost`). The
//! expensive part is reading the clock, twice. So an operation that takes no longer than that is
//! sampled: [`Histogram::turn`] picks the first [`EACH_FIRST`] of a stripe and then one of each
//! [`ONE_IN`], which counts for all of them. Its position varies between runs, since a program with
//! a rhythm would otherwise always hit the same operation.
//!
//! Invariants: buckets only grow; the sum of a stripe's buckets is the total weight of its values.
//! A concurrent reader sees some of the values being recorded.

use crate::sync::statistic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::cell::Cell;

/// Buckets for each power of two.
pub const SUB_BUCKETS: u64 = 1 << SUB_BITS;
const SUB_BITS: u32 = 4;
/// The largest value outside the last bucket.
const VALUE_MAX: u64 = (1 << 44) - 1;
const BUCKETS: usize = 656;

/// Values of a stripe that are all recorded before sampling begins, so that a rare operation is
/// counted exactly.
pub const EACH_FIRST: u64 = 256;
/// Afterwards one in this many is recorded.
pub const ONE_IN: u64 = 1 << ONE_IN_BITS;
const ONE_IN_BITS: u32 = 6;

/// Stripes of a histogram that many threads use at once.
const STRIPES: usize = 8;
const _: () = assert!(STRIPES.is_power_of_two());

/// Returns the bucket of a value.
fn bucket_of(value: u64) -> usize {
    let value = value.min(VALUE_MAX);
    let shift = u64::BITS - 1 - SUB_BITS - (value | SUB_BUCKETS).leading_zeros();
    ((shift << SUB_BITS) as usize) + (value >> shift) as usize
}

/// Returns the largest value of a bucket.
fn upper_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / SUB_BUCKETS).saturating_sub(1);
    ((bucket - shift * SUB_BUCKETS + 1) << shift) - 1
}

thread_local! {
    /// The stripe of this thread; `usize::MAX`: none yet. Initialized at compile time, so that a
    /// read is one load.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn stripe_of_thread() -> usize {
    let stripe = STRIPE.get();
    if stripe != usize::MAX { stripe } else { next_stripe() }
}

/// Assigns a stripe to this thread, in turn.
#[cold]
fn next_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    STRIPE.set(NEXT.fetch_add(1, Relaxed) % STRIPES);
    STRIPE.get()
}

/// Counters of a few threads. Aligned so that no two stripes share a cache line.
#[repr(align(128))]
struct Stripe {
    /// Values to skip before the next one is recorded.
    left: AtomicU64,
    /// Number of recorded values.
    recorded: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// Values, counted by size; see the module.
///
/// ```
/// use lavastore_base::histogram::Histogram;
/// let waits = Histogram::rare();
/// [10, 20, 1_000_000].into_iter().for_each(|ns| waits.record(ns));
/// let seen = waits.read();
/// assert_eq!((seen.count(), seen.max(), seen.quantile(0.5)), (3, 1_000_000, 20));
/// ```
pub struct Histogram {
    stripes: Box<[Stripe]>,
}

impl Stripe {
    /// Returns the weight of the value to be recorded now. The number of the run determines the
    /// recorded position in the next run, and so how many values to skip.
    #[cold]
    fn take_turn(&self) -> u64 {
        let recorded = self.recorded.load(Relaxed);
        self.recorded.store(recorded + 1, Relaxed);
        let place = |run: u64| run.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - ONE_IN_BITS);
        match (recorded + 1).checked_sub(EACH_FIRST) {
            None => 1,
            Some(0) => {
                self.left.store(place(1), Relaxed);
                1
            }
            Some(run) => {
                self.left.store(ONE_IN - 1 - place(run) + place(run + 1), Relaxed);
                ONE_IN
            }
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read().fmt(f)
    }
}

impl Histogram {
    /// Returns a histogram for values that many threads record at once. 42 KiB.
    ///
    /// ```
    /// assert!(lavastore_base::histogram::Histogram::frequent().read().is_empty());
    /// ```
    pub fn frequent() -> Histogram {
        Histogram::of(STRIPES)
    }

    /// Returns a histogram for values recorded at most a few thousand times per second. 5 KiB.
    ///
    /// ```
    /// assert!(lavastore_base::histogram::Histogram::rare().read().is_empty());
    /// ```
    pub fn rare() -> Histogram {
        Histogram::of(1)
    }

    fn of(stripes: usize) -> Histogram {
        let stripe = || Stripe {
            left: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Histogram { stripes: (0..stripes).map(|_| stripe()).collect() }
    }

    #[inline]
    fn stripe(&self) -> &Stripe {
        // There are `STRIPES` of them, or one.
        &self.stripes[stripe_of_thread() & (self.stripes.len() - 1)]
    }

    /// Returns the weight of the next value: 0 if it need be neither measured nor recorded. See the
    /// module.
    ///
    /// ```
    /// use lavastore_base::histogram::{EACH_FIRST, Histogram, ONE_IN};
    /// let times = Histogram::frequent();
    /// let counted: u64 = (0..EACH_FIRST + 10 * ONE_IN).map(|_| times.turn()).sum();
    /// assert_eq!(counted, EACH_FIRST + 10 * ONE_IN);
    /// ```
    #[inline]
    pub fn turn(&self) -> u64 {
        let stripe = self.stripe();
        // Not one atomic operation: two threads of a stripe may take the same turn, which costs
        // some accuracy.
        let left = stripe.left.load(Relaxed);
        if left > 0 {
            stripe.left.store(left - 1, Relaxed);
            return 0;
        }
        stripe.take_turn()
    }

    /// Records a value.
    ///
    /// ```
    /// let widths = lavastore_base::histogram::Histogram::rare();
    /// widths.record(4096);
    /// assert_eq!(widths.read().sum(), 4096);
    /// ```
    pub fn record(&self, value: u64) {
        self.record_weighted(value, 1);
    }

    /// Records a value that counts for `weight`.
    ///
    /// ```
    /// let times = lavastore_base::histogram::Histogram::rare();
    /// times.record_weighted(100, 32);
    /// assert_eq!((times.read().count(), times.read().sum()), (32, 3200));
    /// ```
    pub fn record_weighted(&self, value: u64, weight: u64) {
        let stripe = self.stripe();
        stripe.buckets[bucket_of(value)].fetch_add(weight, Relaxed);
        stripe.sum.fetch_add(value.min(VALUE_MAX).saturating_mul(weight), Relaxed);
        // A new maximum is rare: a load costs less than a write.
        if value > stripe.max.load(Relaxed) {
            stripe.max.fetch_max(value, Relaxed);
        }
    }

    /// Returns the values recorded so far, by all threads.
    ///
    /// ```
    /// assert_eq!(lavastore_base::histogram::Histogram::rare().read().count(), 0);
    /// ```
    pub fn read(&self) -> Distribution {
        let mut all = Distribution::default();
        for stripe in &self.stripes {
            let mut buckets: Vec<u64> = stripe.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
            let used = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            buckets.truncate(used);
            let (sum, max) = (stripe.sum.load(Relaxed), stripe.max.load(Relaxed));
            all.merge(&Distribution { buckets, sum, max });
        }
        all
    }
}

/// Shows percentiles of latencies or sizes: a read of one histogram of a store, or several merged.
/// It is a copy and does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Counts, up to the last one that is not 0.
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Distribution {
    /// Returns the number of values. For sampled operations it is an estimate.
    ///
    /// ```
    /// assert_eq!(lavastore_base::histogram::Distribution::default().count(), 0);
    /// ```
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns true if there are no values, so that the mean and the quantiles say nothing.
    ///
    /// ```
    /// assert!(lavastore_base::histogram::Distribution::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the sum of the values, each limited to 2^44, for a rate or a share of time. It has
    /// the unit of the values, such as nanoseconds; 0 if there are none.
    ///
    /// ```
    /// assert_eq!(lavastore_base::histogram::Distribution::default().sum(), 0);
    /// ```
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the largest value, exactly, for the worst case; 0 if there is none. Of sampled
    /// operations it is the largest value of the sample.
    ///
    /// ```
    /// assert_eq!(lavastore_base::histogram::Distribution::default().max(), 0);
    /// ```
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean, rounded down; 0 if there are no values. Prefer [`Distribution::quantile`]
    /// for latencies, which are skewed.
    ///
    /// ```
    /// assert_eq!(lavastore_base::histogram::Distribution::default().mean(), 0);
    /// ```
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count()).unwrap_or(0)
    }

    /// Returns a bound for this part of the values (0.99: all but a hundredth), such as a 99th
    /// percentile. It is never below the least such value, and at most a sixteenth above it. A part
    /// outside of 0 to 1 counts as the nearer end. 0 if there are no values.
    ///
    /// ```
    /// let times = lavastore_base::histogram::Histogram::rare();
    /// (1..=1000).for_each(|ns| times.record(ns));
    /// let p99 = times.read().quantile(0.99);
    /// assert!((990..990 + 990 / 16).contains(&p99));
    /// ```
    pub fn quantile(&self, part: f64) -> u64 {
        let count = self.count();
        let rank = ((part.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0u64;
        for (bucket, n) in self.buckets.iter().enumerate() {
            below = below.saturating_add(*n);
            if below >= rank {
                // The last bucket has all larger values.
                return if bucket + 1 == BUCKETS { self.max } else { upper_of(bucket).min(self.max) };
            }
        }
        self.max
    }

    /// Returns how many values are at most `bound`, to count the operations within a goal. Exact at
    /// the end of a bucket, such as one less than a power of two; other bounds leave out the values
    /// of their own bucket.
    ///
    /// ```
    /// let times = lavastore_base::histogram::Histogram::rare();
    /// [5, 1023, 1024].into_iter().for_each(|ns| times.record(ns));
    /// assert_eq!(times.read().at_most(1023), 2);
    /// ```
    pub fn at_most(&self, bound: u64) -> u64 {
        let buckets = self.buckets.iter().enumerate().filter(|(bucket, _)| upper_of(*bucket) <= bound);
        buckets.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the values recorded since an earlier read of the same histogram, for the percentiles
    /// of an interval; [`Distribution::merge`] adds instead. An empty result means that nothing was
    /// recorded between. The maximum is exact if it is a new maximum of the histogram. Otherwise it
    /// is the end of the last bucket with a new value, at most a sixteenth too high.
    ///
    /// ```
    /// let times = lavastore_base::histogram::Histogram::rare();
    /// times.record(1_000_000);
    /// let before = times.read();
    /// [7, 9].into_iter().for_each(|ns| times.record(ns));
    /// let since = times.read().since(&before);
    /// assert_eq!((since.count(), since.sum(), since.max()), (2, 16, 9));
    /// ```
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let old = |bucket: usize| earlier.buckets.get(bucket).copied().unwrap_or(0);
        let grown = self.buckets.iter().enumerate().map(|(at, count)| count.saturating_sub(old(at)));
        let mut buckets: Vec<u64> = grown.collect();
        buckets.truncate(buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        let max = match buckets.len() {
            0 => 0,
            _ if self.max > earlier.max => self.max,
            used => upper_of(used - 1).min(self.max),
        };
        Distribution { buckets, sum: self.sum.saturating_sub(earlier.sum), max }
    }

    /// Adds the values of another distribution, for example of another store or operation, so that
    /// quantiles cover both. Both must have one unit, which is not checked.
    ///
    /// ```
    /// use lavastore_base::histogram::{Distribution, Histogram};
    /// let times = Histogram::rare();
    /// times.record(7);
    /// let mut both = times.read();
    /// both.merge(&times.read());
    /// assert_eq!((both.count(), both.sum(), both.max()), (2, 14, 7));
    /// ```
    pub fn merge(&mut self, other: &Distribution) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*others);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests;
