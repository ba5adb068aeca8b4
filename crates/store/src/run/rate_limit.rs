//! The bound on what background jobs write per second.
//!
//! Flush is charged but never held back (writers wait for it); compaction waits until the bytes of both fit the rate.

use base::sync::statistic::{AtomicU64, Ordering};

/// A bound in bytes per second; 0 is none.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_s: u64,
    /// When all bytes charged so far have had their time, in clock nanoseconds.
    paid_until_ns: AtomicU64,
}

/// Bytes may be written ahead of their time by so much: jobs write in large pieces.
const BURST_NS: u64 = 20_000_000;

impl RateLimit {
    /// So many bytes in a second; 0: there is no bound.
    pub fn new(bytes_per_s: u64) -> Self {
        RateLimit { bytes_per_s, paid_until_ns: AtomicU64::new(0) }
    }

    /// Charges bytes that were written.
    pub fn charge(&self, now_ns: u64, bytes: u64) {
        if self.bytes_per_s == 0 || bytes == 0 {
            return;
        }
        let cost_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64;
        let next = |paid: u64| Some(paid.max(now_ns.saturating_sub(BURST_NS)) + cost_ns);
        let _ = self.paid_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// How long a job should wait before it writes more.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.paid_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_binds_over_time() {
        let limit = RateLimit::new(10 << 20);
        let (mut now_ns, mut bytes) = (0u64, 0u64);
        while now_ns < 2_000_000_000 {
            now_ns += limit.wait_ns(now_ns) + 1000;
            limit.charge(now_ns, 256 << 10);
            bytes += 256 << 10;
        }
        let rate = bytes as f64 / (now_ns as f64 / 1e9);
        assert!((0.95..1.05).contains(&(rate / (10 << 20) as f64)), "{rate}");
        let none = RateLimit::new(0);
        none.charge(0, 1 << 40);
        assert_eq!(none.wait_ns(0), 0);
    }
}
