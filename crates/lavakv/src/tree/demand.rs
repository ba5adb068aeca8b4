//! What scans of a family lose because its values do not lie side by side.

use base::sync::statistic::{AtomicU64, Ordering};

/// Where writers are at work, scans are expected to lose this much less for each byte that is written: what is put in order is read and written for
/// it, and out of order again when as much was written as there is.
const WRITTEN_FACTOR: u64 = 2;

/// What scans of a family have lost because its values do not lie side by side, in bytes that could have been read
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// What they have lost and nobody has paid for yet.
    lost: AtomicU64,
    /// The same less what was written meanwhile, times [`WRITTEN_FACTOR`]; never below 0, so that what was long ago is forgotten.
    beyond_writes: AtomicU64,
}

impl Demand {
    /// A scan made so many requests where `fewest` would have done; each costs as much as reading so many bytes.
    pub fn scanned(&self, requests: u64, fewest: u64, request_bytes: u64) {
        if requests > fewest {
            let bytes = (requests - fewest).saturating_mul(request_bytes);
            self.lost.fetch_add(bytes, Ordering::Relaxed);
            self.beyond_writes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// So many bytes of values were flushed.
    pub fn written(&self, bytes: u64) {
        subtract(&self.beyond_writes, bytes.saturating_mul(WRITTEN_FACTOR));
    }

    /// What they have lost and nobody has paid for yet.
    pub fn bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What they have lost beyond what putting in order costs while writers put out of order.
    pub fn beyond_writes(&self) -> u64 {
        self.beyond_writes.load(Ordering::Relaxed)
    }

    /// A walk was begun for so much of it.
    pub fn spent(&self, bytes: u64) {
        subtract(&self.lost, bytes);
        subtract(&self.beyond_writes, bytes);
    }
}

/// Lost updates of scans at the same time are no matter.
fn subtract(from: &AtomicU64, bytes: u64) {
    from.store(from.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn writes_count_against_what_scans_lose() {
        let demand = Demand::default();
        demand.scanned(10, 10, 100);
        assert_eq!((demand.bytes(), demand.beyond_writes()), (0, 0));
        demand.scanned(13, 10, 100);
        demand.written(100);
        assert_eq!((demand.bytes(), demand.beyond_writes()), (300, 100));
        demand.written(1 << 40);
        demand.scanned(1, 0, 50);
        assert_eq!(
            (demand.bytes(), demand.beyond_writes()),
            (350, 50),
            "what was written long ago is forgotten, too"
        );
        demand.spent(60);
        assert_eq!((demand.bytes(), demand.beyond_writes()), (290, 0));
    }
}
