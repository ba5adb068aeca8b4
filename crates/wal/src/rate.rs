//! Write rate of the device, measured from the log's long writes.
//!
//! Bytes and time of the writes so far; each new write first removes an eighth of the sums, so
//! about the last ten count. Short writes measure latency rather than throughput, and are left out.
//! Changed by the holder of the token; a slightly old value is fine.

use base::sync::statistic::{AtomicU64, Ordering};

/// Each write removes one part in this many of the earlier measurements.
const PART: u64 = 8;
/// Rate before anything is measured, bytes per second: a slow flash disk.
const UNKNOWN_BYTES_PER_S: u64 = 200_000_000;

/// Measured write rate of the device; see the module.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl Rate {
    /// Records a long write.
    pub fn took(&self, bytes: u64, ns: u64) {
        let add = |sum: &AtomicU64, more: u64| {
            let old = sum.load(Ordering::Relaxed);
            sum.store((old - old / PART).saturating_add(more), Ordering::Relaxed);
        };
        add(&self.bytes, bytes);
        add(&self.ns, ns);
    }

    /// Returns the bytes that the device writes in `ns` nanoseconds.
    pub fn bytes_within(&self, ns: u64) -> u64 {
        let (bytes, took_ns) = match self.bytes.load(Ordering::Relaxed) {
            0 => (UNKNOWN_BYTES_PER_S, 1_000_000_000),
            bytes => (bytes, self.ns.load(Ordering::Relaxed)),
        };
        u64::try_from(u128::from(bytes) * u128::from(ns) / u128::from(took_ns.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_recent_writes() {
        let rate = Rate::default();
        assert_eq!(rate.bytes_within(10_000_000), 2_000_000, "nothing is known");
        let per_ms = || rate.bytes_within(1_000_000) / 1000;
        rate.took(1 << 20, 10 << 20);
        assert_eq!(per_ms(), 100);
        (0..40).for_each(|_| rate.took(1 << 20, 1 << 20));
        assert!((900..=1000).contains(&per_ms()), "{}", per_ms());
        (0..40).for_each(|_| rate.took(1 << 20, 100 << 20));
        assert!((10..12).contains(&per_ms()), "{}", per_ms());
        assert_eq!(rate.bytes_within(0), 0);
        let at_once = Rate::default();
        at_once.took(5, 0);
        assert_eq!(at_once.bytes_within(u64::MAX), u64::MAX);
    }
}
