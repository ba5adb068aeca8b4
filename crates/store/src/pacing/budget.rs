//! A rate limit of the device, bytes per second (token bucket).
//!
//! All bytes are charged after the fact, whatever their purpose. Work that can wait does so until
//! the charged bytes are paid for.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// A rate limit in bytes per second; 0: unlimited.
#[derive(Debug, Default)]
pub struct RateLimiter {
    bytes_per_s: AtomicU64,
    /// Time at which all charged bytes are paid for, clock nanoseconds.
    paid_until_ns: AtomicU64,
}

/// Burst: work may be ahead by this time, because jobs read and write in large pieces.
const BURST_NS: u64 = 20_000_000;

impl RateLimiter {
    /// Creates a limit in bytes per second; 0: unlimited.
    pub fn new(bytes_per_s: u64) -> Self {
        RateLimiter { bytes_per_s: AtomicU64::new(bytes_per_s), paid_until_ns: AtomicU64::new(0) }
    }

    /// Sets the limit; call it before the first charge.
    pub fn set(&self, bytes_per_s: u64) {
        self.bytes_per_s.store(bytes_per_s, Relaxed);
    }

    /// Returns the limit in bytes per second; 0: unlimited.
    pub fn get(&self) -> u64 {
        self.bytes_per_s.load(Relaxed)
    }

    /// Charges bytes that were read or written.
    pub fn charge(&self, now_ns: u64, bytes: u64) {
        let bytes_per_s = self.get();
        if bytes_per_s == 0 || bytes == 0 {
            return;
        }
        let cost_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64;
        let next = |paid: u64| Some(paid.max(now_ns.saturating_sub(BURST_NS)).saturating_add(cost_ns));
        let _ = self.paid_until_ns.fetch_update(Relaxed, Relaxed, next);
    }

    /// Returns the time that a job should wait before its next request.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.paid_until_ns.load(Relaxed).saturating_sub(now_ns)
    }
}
