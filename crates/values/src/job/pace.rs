//! Measured cost of lookups.
//!
//! The choice between point lookups and passing a whole stream depends on where the blocks are. A
//! point lookup takes a microsecond from the engine's cache, a few from the kernel's cache, and a
//! hundred from a device. A reference that a cursor passes takes some tens of nanoseconds from
//! anywhere. So both are timed as they happen, and the choice follows the measurements. Without a
//! clock, reads are counted and priced as those of a fast device.

/// Initial cost of a reference passed by a cursor.
pub(crate) const REFERENCE_NS: u64 = 40;
/// Initial cost of a point lookup in the cache.
pub(crate) const POINT_NS: u64 = 1000;
/// Cost of a read from the device without a clock.
pub(crate) const DEVICE_READ_NS: u64 = 25_000;

/// A running mean of the duration of one operation, in fractions of a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean(u64);

const PARTS: u64 = 256;
/// Maximum of a mean, against overflow; it is never 0 either.
const MEAN_MAX: u64 = 1 << 40;

impl Mean {
    const fn ns(ns: u64) -> Mean {
        Mean(ns * PARTS)
    }

    /// Records that `count` operations took `ns`. One measurement moves the mean only a little: the
    /// thread may have been off the processor meanwhile.
    pub(crate) fn observe(&mut self, count: u64, ns: u64) {
        if let Some(one) = ns.saturating_mul(PARTS).checked_div(count) {
            let one = one.clamp(self.0 / 4, self.0 * 4);
            self.0 = ((self.0 * 3 + one) / 4).clamp(PARTS, MEAN_MAX);
        }
    }

    /// Returns the expected duration of `count` operations.
    pub(crate) fn of(self, count: u64) -> u64 {
        count.saturating_mul(self.0) / PARTS
    }
}

/// Measured cost of lookups: see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// A point lookup.
    pub(crate) point: Mean,
    /// A reference passed.
    pub(crate) reference: Mean,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { point: Mean::ns(POINT_NS), reference: Mean::ns(REFERENCE_NS) }
    }
}

impl Pace {
    /// Returns true if passing `references` references is cheaper than looking up `keys` keys.
    pub(crate) fn prefers_passing(&self, references: u64, keys: u64) -> bool {
        self.reference.of(references) <= self.point.of(keys)
    }
}

/// Times one stretch of work.
pub(crate) struct Stopwatch {
    from_ns: Option<u64>,
    reads: u64,
}

impl Stopwatch {
    /// Starts timing. `now_ns` is the clock if there is one, `reads` the number of device reads so
    /// far.
    pub(crate) fn start(now_ns: Option<u64>, reads: u64) -> Stopwatch {
        Stopwatch { from_ns: now_ns, reads }
    }

    /// Returns the duration of the stretch; without a clock, `estimate_ns` plus the price of its
    /// reads.
    pub(crate) fn stop(&self, now_ns: Option<u64>, reads: u64, estimate_ns: u64) -> u64 {
        match (self.from_ns, now_ns) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            _ => estimate_ns + (reads - self.reads) * DEVICE_READ_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_a_lasting_change_and_hardly_an_outlier() {
        let mut mean = Mean::ns(POINT_NS);
        mean.observe(64, 64 * 10_000_000);
        assert!(mean.of(1) <= 2 * POINT_NS, "{mean:?}");
        (0..20).for_each(|_| mean.observe(64, 64 * 50_000));
        assert!((45_000..55_000).contains(&mean.of(1)), "{mean:?}");
        (0..40).for_each(|_| mean.observe(64, 64 * 500));
        assert!((480..600).contains(&mean.of(1)), "{mean:?}");
        mean.observe(0, 5);
        (0..200).for_each(|_| mean.observe(1 << 20, 0));
        assert_eq!(mean.of(7), 7, "never nothing");
    }

    #[test]
    fn without_a_clock_reads_have_a_fixed_cost() {
        let watch = Stopwatch::start(None, 10);
        assert_eq!(watch.stop(None, 12, 500), 500 + 2 * DEVICE_READ_NS);
        assert_eq!(Stopwatch::start(Some(5), 0).stop(Some(45), 100, 500), 40);
    }
}
