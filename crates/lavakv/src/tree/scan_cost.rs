//! Scan cost of a family that compactions could save. It consists of the value requests of scans
//! beyond the ideal number, less the part that writes would undo. It also counts the tombstones and
//! old versions that iterators pass.

use crate::tree::family_work::FamilyWork;
use base::sync::OnceLock;
use base::sync::statistic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use version::FamilyId;

/// Bytes of scan cost forgiven for each byte written. Reordering reads and writes the values once,
/// and later writes scatter them again.
const WRITTEN_FACTOR: u64 = 2;
/// Divisor of the cost that a reorder takes off the scan cost beyond writes. The rest lasts until
/// writes have used it up.
const LEFT_PART: u64 = 2;
/// Bytes of compaction that cost as much time as one entry passed by an iterator.
const PASSED_ENTRY_BYTES: u64 = 64;
/// Smallest compaction worth its while for passed entries.
const PASSED_BYTES_MIN: u64 = 64 << 10;
/// Largest stored budget for such compactions.
const PASSED_BYTES_MAX: u64 = 1 << 30;
/// Upper bound for all sums here, below overflow.
const ALL: u64 = u64::MAX / 2;

/// Cost of scattered values for the scans of a family, in bytes that could have been read instead.
#[derive(Debug)]
pub(crate) struct ScanCost {
    /// Scan cost that no reorder was charged for yet.
    lost: AtomicU64,
    /// The same less [`WRITTEN_FACTOR`] times the bytes written meanwhile; never below 0, so that
    /// old cost is forgotten.
    beyond_writes: AtomicU64,
    /// Bytes of values that no reorder has covered since they were written. Initially all, since
    /// the order is unknown.
    disordered: AtomicU64,
    /// Bytes of compaction earned by entries that iterators passed.
    passed: AtomicU64,
    /// True if the store knows that these are enough for a compaction.
    is_told: AtomicBool,
    /// The store's set of families with work, and the id of the family.
    work: OnceLock<(Arc<FamilyWork>, FamilyId)>,
}

/// The cost and the extent of a reorder, charged at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Scan cost it is charged for.
    pub lost: u64,
    /// Bytes of values it covers.
    pub taken: u64,
    /// Bytes of values of the family.
    pub all: u64,
}

impl Default for ScanCost {
    fn default() -> Self {
        ScanCost {
            lost: 0.into(),
            beyond_writes: 0.into(),
            disordered: ALL.into(),
            passed: 0.into(),
            is_told: false.into(),
            work: OnceLock::new(),
        }
    }
}

impl ScanCost {
    /// Records a scan with `requests` where `fewest` would have sufficed. A request costs as much
    /// as reading `request_bytes`.
    pub fn scanned(&self, requests: u64, fewest: u64, request_bytes: u64) {
        if requests > fewest {
            let bytes = (requests - fewest).saturating_mul(request_bytes);
            self.lost.fetch_add(bytes, Ordering::Relaxed);
            self.beyond_writes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records entries that an iterator passed without returning them: tombstones, entries below
    /// them, and old versions.
    pub fn passed(&self, entries: u64) {
        if entries > 0 {
            let bytes = entries.saturating_mul(PASSED_ENTRY_BYTES);
            change(&self.passed, |passed| passed.saturating_add(bytes).min(PASSED_BYTES_MAX));
            if self.passed_bytes().is_some() && !self.is_told.load(Ordering::Relaxed) {
                self.tell(true);
            }
        }
    }

    /// Registers the set of families with work.
    pub fn tells_work(&self, work: &Arc<FamilyWork>, id: FamilyId) {
        let _ = self.work.set((work.clone(), id));
    }

    /// An entry passed between the two steps is told by a later one.
    fn tell(&self, is_passed: bool) {
        if let Some((work, id)) = self.work.get() {
            work.set_passed(*id, is_passed);
        }
        self.is_told.store(is_passed, Ordering::Relaxed);
    }

    /// Returns the bytes that a compaction may rewrite to save iterators work. `None`: too few for
    /// a compaction.
    pub fn passed_bytes(&self) -> Option<u64> {
        Some(self.passed.load(Ordering::Relaxed)).filter(|bytes| *bytes >= PASSED_BYTES_MIN)
    }

    /// Charges a compaction of `bytes` that was started for this.
    pub fn spend_passed(&self, bytes: u64) {
        change(&self.passed, |passed| passed.saturating_sub(bytes));
        if self.passed_bytes().is_none() {
            self.tell(false);
        }
    }

    /// Records flushed bytes of values.
    pub fn written(&self, bytes: u64) {
        change(&self.beyond_writes, |beyond| beyond.saturating_sub(bytes.saturating_mul(WRITTEN_FACTOR)));
        change(&self.disordered, |disordered| disordered.saturating_add(bytes).min(ALL));
    }

    /// Returns the scan cost that no reorder was charged for yet.
    pub fn bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the scan cost that exceeds the cost of reordering under the current writes.
    pub fn beyond_writes(&self) -> u64 {
        self.beyond_writes.load(Ordering::Relaxed)
    }

    /// Returns the bytes, of `all` bytes of values, that may be out of order: those written since
    /// reorders covered as much.
    pub fn disordered(&self, all: u64) -> u64 {
        self.disordered.load(Ordering::Relaxed).min(all)
    }

    /// Charges a reorder at its start.
    pub fn spent(&self, spent: Spent) {
        change(&self.lost, |lost| lost.saturating_sub(spent.lost));
        change(&self.beyond_writes, |beyond| beyond.saturating_sub(spent.lost / LEFT_PART));
        change(&self.disordered, |disordered| disordered.min(spent.all).saturating_sub(spent.taken));
    }
}

/// Concurrent updates may be lost: the sums are estimates.
fn change(sum: &AtomicU64, to: impl FnOnce(u64) -> u64) {
    sum.store(to(sum.load(Ordering::Relaxed)), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests;
