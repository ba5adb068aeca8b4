//! A bound on how many bytes go to and from the device in a second.
//!
//! What has passed is charged, whatever it was for; who can wait does so until all that was charged has had its time.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// A bound in bytes per second; 0 is none.
#[derive(Debug, Default)]
pub struct Budget {
    bytes_per_s: AtomicU64,
    /// When all bytes charged so far have had their time, in clock nanoseconds.
    paid_until_ns: AtomicU64,
}

/// Bytes may pass ahead of their time by so much: jobs read and write in large pieces.
const BURST_NS: u64 = 20_000_000;

impl Budget {
    /// So many bytes in a second; 0: there is no bound.
    pub fn new(bytes_per_s: u64) -> Self {
        Budget { bytes_per_s: AtomicU64::new(bytes_per_s), paid_until_ns: AtomicU64::new(0) }
    }

    /// From now on so many; to be said before anything passes.
    pub fn set(&self, bytes_per_s: u64) {
        self.bytes_per_s.store(bytes_per_s, Relaxed);
    }

    /// So many bytes in a second; 0: there is no bound.
    pub fn get(&self) -> u64 {
        self.bytes_per_s.load(Relaxed)
    }

    /// Charges bytes that have passed.
    pub fn charge(&self, now_ns: u64, bytes: u64) {
        let bytes_per_s = self.get();
        if bytes_per_s == 0 || bytes == 0 {
            return;
        }
        let cost_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64;
        let next = |paid: u64| Some(paid.max(now_ns.saturating_sub(BURST_NS)).saturating_add(cost_ns));
        let _ = self.paid_until_ns.fetch_update(Relaxed, Relaxed, next);
    }

    /// How long a job should wait before it lets more pass.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        self.paid_until_ns.load(Relaxed).saturating_sub(now_ns)
    }
}
