//! Runs of consecutive LSNs, and how much something is.

use crate::entry::Lsn;
use std::iter::Sum;
use std::ops::{AddAssign, Sub, SubAssign};

/// How many records, and how many bytes they have. Sums stop at the largest number: a file may say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Records.
    pub records: u64,
    /// Their bytes, without anything that is stored with them.
    pub bytes: u64,
}

impl Size {
    /// One record.
    pub fn one(len: u32) -> Size {
        Size { records: 1, bytes: u64::from(len) }
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Sub for Size {
    type Output = Size;
    fn sub(self, other: Size) -> Size {
        Size {
            records: self.records.saturating_sub(other.records),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl SubAssign for Size {
    fn sub_assign(&mut self, other: Size) {
        *self = *self - other;
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Size>>(sizes: I) -> Size {
        sizes.fold(Size::default(), |mut sum, size| {
            sum += size;
            sum
        })
    }
}

/// Consecutive LSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The lowest.
    pub first: Lsn,
    /// How many; not 0.
    pub count: u32,
    /// Bytes of all their records.
    pub bytes: u64,
}

impl Run {
    /// The highest.
    pub fn last(&self) -> Lsn {
        self.first + u64::from(self.count - 1)
    }

    /// How many, and their bytes.
    pub fn size(&self) -> Size {
        Size { records: u64::from(self.count), bytes: self.bytes }
    }

    /// What lies between two LSNs, both of which count.
    pub(super) fn between(&self, low: Lsn, high: Lsn) -> Option<Run> {
        let (low, high) = (low.max(self.first), high.min(self.last()));
        if low > high {
            return None;
        }
        // The bytes before an LSN in proportion: pieces of a run add up to it, wherever it is cut.
        let before = |count: u64| {
            (u128::from(self.bytes) * u128::from(count)).checked_div(u128::from(self.count)).unwrap_or(0)
                as u64
        };
        let (skipped, end) = (low - self.first, high - self.first + 1);
        Some(Run { first: low, count: (end - skipped) as u32, bytes: before(end) - before(skipped) })
    }

    /// What lies below and above two LSNs.
    pub(super) fn without(&self, low: Lsn, high: Lsn) -> impl Iterator<Item = Run> + use<> {
        let below = low.checked_sub(1).and_then(|end| self.between(0, end));
        let above = high.checked_add(1).and_then(|start| self.between(start, u64::MAX));
        [below, above].into_iter().flatten()
    }
}
