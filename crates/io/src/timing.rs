//! Latency histograms, and the clock that measures them.
//!
//! A clock reading takes 20 to 50 ns and two are needed, so timing would make a get that finds its
//! key in memory a sixth slower. [`Timing::sampled`] times a sample of frequent operations and lets
//! it count for all ([`base::histogram::Histogram::turn`] chooses the sample). [`Timing::each`] is
//! for operations of many microseconds. In simulation a clock reading costs nothing and advances
//! nothing, and every operation is timed, so the counts do not depend on the thread.

use crate::{Clock, Env};
use base::histogram::{Distribution, Histogram};
use std::sync::Arc;

/// Latencies of one kind of operation; see the module.
///
/// ```
/// use lavastore_io::{Env, timing::Timing};
/// let gets = Timing::sampled(&Env::kernel());
/// let answer = gets.time(|| 42);
/// assert_eq!((answer, gets.read().count()), (42, 1));
/// ```
#[derive(Debug)]
pub struct Timing {
    clock: Arc<dyn Clock>,
    histogram: Histogram,
    is_sampled: bool,
}

/// A started operation, and the number of operations that it stands for.
#[derive(Debug)]
#[must_use = "it is recorded when it ends"]
pub struct Begun {
    at_ns: u64,
    weight: u64,
}

impl Timing {
    /// Returns timing for operations that many threads do at once, and that may take less than a
    /// microsecond.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// assert!(Timing::sampled(&Env::kernel()).read().is_empty());
    /// ```
    pub fn sampled(env: &Env) -> Timing {
        let histogram = Histogram::frequent();
        Timing { clock: env.clock.clone(), histogram, is_sampled: !env.is_simulated() }
    }

    /// Returns timing for rare and long operations.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let flushes = Timing::each(&Env::kernel());
    /// flushes.record_ns(7_000_000);
    /// assert_eq!(flushes.read().max(), 7_000_000);
    /// ```
    pub fn each(env: &Env) -> Timing {
        Timing { clock: env.clock.clone(), histogram: Histogram::rare(), is_sampled: false }
    }

    /// Begins an operation. Reads the clock if the operation is in the sample.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let puts = Timing::sampled(&Env::kernel());
    /// let begun = puts.begin();
    /// puts.end(begun);
    /// assert_eq!(puts.read().count(), 1);
    /// ```
    #[inline]
    pub fn begin(&self) -> Begun {
        let weight = if self.is_sampled { self.histogram.turn() } else { 1 };
        Begun { at_ns: if weight > 0 { self.clock.now_ns() } else { 0 }, weight }
    }

    /// Begins an operation that is long enough to be timed in any case.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let puts = Timing::sampled(&Env::kernel());
    /// (0..1000).for_each(|_| puts.end(puts.begin_long()));
    /// assert_eq!(puts.read().count(), 1000);
    /// ```
    pub fn begin_long(&self) -> Begun {
        Begun { at_ns: self.clock.now_ns(), weight: 1 }
    }

    /// Begins an operation; a long one is timed in any case.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let puts = Timing::sampled(&Env::kernel());
    /// puts.end(puts.begin_as(true));
    /// assert_eq!(puts.read().count(), 1);
    /// ```
    #[inline]
    pub fn begin_as(&self, is_long: bool) -> Begun {
        if is_long { self.begin_long() } else { self.begin() }
    }

    /// Ends an operation.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let puts = Timing::each(&Env::kernel());
    /// puts.end(puts.begin());
    /// assert_eq!(puts.read().count(), 1);
    /// ```
    #[inline]
    pub fn end(&self, begun: Begun) {
        if begun.weight > 0 {
            self.record_since(begun);
        }
    }

    fn record_since(&self, Begun { at_ns, weight }: Begun) {
        self.histogram.record_weighted(self.clock.now_ns().saturating_sub(at_ns), weight);
    }

    /// Runs and times an operation.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// assert_eq!(Timing::sampled(&Env::kernel()).time(|| 7), 7);
    /// ```
    #[inline]
    pub fn time<T>(&self, operation: impl FnOnce() -> T) -> T {
        let begun = self.begin();
        let out = operation();
        self.end(begun);
        out
    }

    /// Records an operation that the caller has timed.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// let syncs = Timing::each(&Env::kernel());
    /// syncs.record_ns(80_000);
    /// assert_eq!(syncs.read().sum(), 80_000);
    /// ```
    pub fn record_ns(&self, ns: u64) {
        self.histogram.record(ns);
    }

    /// Returns the distribution of the durations, nanoseconds.
    ///
    /// ```
    /// use lavastore_io::{Env, timing::Timing};
    /// assert_eq!(Timing::each(&Env::kernel()).read().count(), 0);
    /// ```
    pub fn read(&self) -> Distribution {
        self.histogram.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimEnv;
    use base::histogram::{EACH_FIRST, ONE_IN};

    #[test]
    fn simulated_time_is_exact_for_every_operation() {
        let sim = SimEnv::new(1);
        let times = Timing::sampled(&sim.env());
        for i in 0..2000 {
            times.time(|| sim.advance_ns(i));
        }
        let told = times.read();
        assert_eq!((told.count(), told.sum(), told.max()), (2000, 1999 * 1000, 1999));
    }

    #[test]
    fn real_time_is_sampled_and_long_operations_counted_each() {
        let times = Timing::sampled(&Env::kernel());
        (0..EACH_FIRST + 100 * ONE_IN).for_each(|_| times.time(|| ()));
        assert_eq!(times.read().count(), EACH_FIRST + 100 * ONE_IN);
        (0..10).for_each(|_| times.end(times.begin_long()));
        assert_eq!(times.read().count(), EACH_FIRST + 100 * ONE_IN + 10);
    }
}
