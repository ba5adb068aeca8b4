//! How fast the device takes the log's long writes, as those that were made tell.
//!
//! Bytes and time of the writes so far, of which each takes away an eighth when it is added: the last ten or so count. Short writes say how long the device takes to
//! answer, not how much it takes, and are left out. Changed by whoever holds the token; any value a moment old will do.

use base::sync::statistic::{AtomicU64, Ordering};

/// Of what was measured before, a write leaves all but one part in so many.
const PART: u64 = 8;
/// Before anything is measured, bytes a second: a disk of flash that is in no hurry.
const UNKNOWN_BYTES_PER_S: u64 = 200_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl Rate {
    /// A long write took so long.
    pub fn took(&self, bytes: u64, ns: u64) {
        let add = |sum: &AtomicU64, more: u64| {
            let old = sum.load(Ordering::Relaxed);
            sum.store((old - old / PART).saturating_add(more), Ordering::Relaxed);
        };
        add(&self.bytes, bytes);
        add(&self.ns, ns);
    }

    /// Bytes that the device takes in such a time.
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
    fn the_last_writes_count() {
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
