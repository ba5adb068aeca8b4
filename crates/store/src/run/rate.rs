//! A throughput estimate.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// An exponentially weighted rate in bytes per second.
#[derive(Debug, Default)]
pub struct Rate(AtomicU64);

impl Rate {
    /// Records that `bytes` took `ns`.
    pub fn record(&self, bytes: u64, ns: u64) {
        let now = (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))) as u64;
        let old = self.0.load(Relaxed);
        let new = if old == 0 { now } else { old / 4 * 3 + now / 4 };
        self.0.store(new, Relaxed);
    }

    /// Returns the rate; 0 before the first measurement.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
