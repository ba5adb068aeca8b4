//! What lookups cost, as measured while they go on.
//!
//! Whether keys are looked up one by one or a whole stream is read past them depends on where the blocks are: in the
//! engine's cache a point lookup takes a microsecond, from the kernel's cache a few, from a device a hundred; a reference
//! that a cursor passes takes some tens of nanoseconds from anywhere. So both are timed as they happen, and the choice
//! follows the figures. Without a clock, reads are counted and priced as those of a fast device.

/// A reference passed by a cursor, before anything is measured.
pub(crate) const REFERENCE_NS: u64 = 40;
/// A point lookup in the cache, before anything is measured.
pub(crate) const POINT_NS: u64 = 1000;
/// A read from the device, where nothing can be measured.
pub(crate) const DEVICE_READ_NS: u64 = 25_000;

/// A running mean of what one of something takes, in parts of a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean(u64);

const PARTS: u64 = 256;
/// A mean is never nothing, and never so much that it overflows.
const MEAN_MAX: u64 = 1 << 40;

impl Mean {
    const fn ns(ns: u64) -> Mean {
        Mean(ns * PARTS)
    }

    /// Takes in that `count` of it took `ns`. One measurement moves the mean by little: the thread may have been off the
    /// processor meanwhile.
    pub(crate) fn observe(&mut self, count: u64, ns: u64) {
        if let Some(one) = ns.saturating_mul(PARTS).checked_div(count) {
            let one = one.clamp(self.0 / 4, self.0 * 4);
            self.0 = ((self.0 * 3 + one) / 4).clamp(PARTS, MEAN_MAX);
        }
    }

    /// What `count` of it take.
    pub(crate) fn of(self, count: u64) -> u64 {
        count.saturating_mul(self.0) / PARTS
    }
}

/// See the module.
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
    /// True if passing so many references is cheaper than looking up so many keys.
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
    /// `now_ns` is the clock if there is one, `reads` the reads from the device so far.
    pub(crate) fn start(now_ns: Option<u64>, reads: u64) -> Stopwatch {
        Stopwatch { from_ns: now_ns, reads }
    }

    /// What the stretch took; without a clock, `estimate_ns` and the price of its reads.
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
    fn without_a_clock_reads_are_priced() {
        let watch = Stopwatch::start(None, 10);
        assert_eq!(watch.stop(None, 12, 500), 500 + 2 * DEVICE_READ_NS);
        assert_eq!(Stopwatch::start(Some(5), 0).stop(Some(45), 100, 500), 40);
    }
}
