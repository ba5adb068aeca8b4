//! Costs of reads of a family that compactions could spare: requests of scans whose values do not lie side by side, less the part that
//! writers would undo; and tombstones and old versions that iterators pass.

use base::sync::statistic::{AtomicU64, Ordering};

/// Beside writers, scans are expected to lose this much less for each byte that is written: what is put in order is read and written for
/// it, and out of order again when as much was written as there is.
const WRITTEN_FACTOR: u64 = 2;
/// A walk beside writers leaves this part of what scans lost beyond them: it goes on until they have undone so much.
const LEFT_PART: u64 = 2;
/// An entry that an iterator passes costs it as much time as so many bytes of a compaction.
const PASSED_ENTRY_BYTES: u64 = 64;
/// Fewer bytes are worth no compaction.
const PASSED_BYTES_MIN: u64 = 64 << 10;
/// More are not kept for later.
const PASSED_BYTES_MAX: u64 = 1 << 30;
/// As much as there can be of anything here; sums stay below.
const ALL: u64 = u64::MAX / 2;

/// What scans of a family have lost because its values do not lie side by side, in bytes that could have been read
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Demand {
    /// What they have lost and nobody has paid for yet.
    lost: AtomicU64,
    /// The same less what was written meanwhile, times [`WRITTEN_FACTOR`]; never below 0, so that what was long ago is forgotten.
    beyond_writes: AtomicU64,
    /// Bytes of values that no walk took since they were written. All of them at first: nobody knows.
    disordered: AtomicU64,
    /// Bytes of compactions that entries passed by iterators would have paid for.
    passed: AtomicU64,
}

/// What a walk is begun for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Of what scans have lost.
    pub lost: u64,
    /// Bytes of values that it takes.
    pub taken: u64,
    /// Bytes of values that there are.
    pub all: u64,
}

impl Default for Demand {
    fn default() -> Self {
        Demand { lost: 0.into(), beyond_writes: 0.into(), disordered: ALL.into(), passed: 0.into() }
    }
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

    /// An iterator passed so many entries that it did not show: tombstones, entries below them, and old versions.
    pub fn passed(&self, entries: u64) {
        if entries > 0 {
            let bytes = entries.saturating_mul(PASSED_ENTRY_BYTES);
            change(&self.passed, |passed| passed.saturating_add(bytes).min(PASSED_BYTES_MAX));
        }
    }

    /// Bytes that a compaction may rewrite so that iterators pass fewer entries. `None`: too few to be worth one.
    pub fn passed_bytes(&self) -> Option<u64> {
        Some(self.passed.load(Ordering::Relaxed)).filter(|bytes| *bytes >= PASSED_BYTES_MIN)
    }

    /// Such a compaction of so many bytes was begun.
    pub fn spend_passed(&self, bytes: u64) {
        change(&self.passed, |passed| passed.saturating_sub(bytes));
    }

    /// So many bytes of values were flushed.
    pub fn written(&self, bytes: u64) {
        change(&self.beyond_writes, |beyond| beyond.saturating_sub(bytes.saturating_mul(WRITTEN_FACTOR)));
        change(&self.disordered, |disordered| disordered.saturating_add(bytes).min(ALL));
    }

    /// What they have lost and nobody has paid for yet.
    pub fn bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What they have lost beyond what putting in order costs while writers put out of order.
    pub fn beyond_writes(&self) -> u64 {
        self.beyond_writes.load(Ordering::Relaxed)
    }

    /// Bytes of values, of so many, that may lie out of order: what was written since walks took as much.
    pub fn disordered(&self, all: u64) -> u64 {
        self.disordered.load(Ordering::Relaxed).min(all)
    }

    /// A walk was begun for so much.
    pub fn spent(&self, spent: Spent) {
        change(&self.lost, |lost| lost.saturating_sub(spent.lost));
        change(&self.beyond_writes, |beyond| beyond.saturating_sub(spent.lost / LEFT_PART));
        change(&self.disordered, |disordered| disordered.min(spent.all).saturating_sub(spent.taken));
    }
}

/// Lost updates at the same time are no matter.
fn change(sum: &AtomicU64, to: impl FnOnce(u64) -> u64) {
    sum.store(to(sum.load(Ordering::Relaxed)), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests;
