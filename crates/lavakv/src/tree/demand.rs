//! What scans of a family lose because its values do not lie side by side.

use base::sync::statistic::{AtomicU64, Ordering};

/// What a request costs, in bytes that a device moves in the same time.
const REQUEST_BYTES: u64 = 16 << 10;

/// What scans of a family have lost because its values do not lie side by side, in bytes that could have been read
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Demand(AtomicU64);

impl Demand {
    /// A scan made so many requests where `fewest` would have done.
    pub fn scanned(&self, requests: u64, fewest: u64) {
        if requests > fewest {
            self.0.fetch_add((requests - fewest).saturating_mul(REQUEST_BYTES), Ordering::Relaxed);
        }
    }

    /// What they have lost and nobody has paid for yet.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A walk was begun for so much of it.
    pub fn spent(&self, bytes: u64) {
        // Lost updates of scans at the same time are no matter.
        self.0.store(self.bytes().saturating_sub(bytes), Ordering::Relaxed);
    }
}
