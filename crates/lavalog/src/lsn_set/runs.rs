//! Runs of consecutive LSNs, and sizes of sets of records.

use crate::entry::Lsn;
use std::fmt;
use std::iter::Sum;
use std::ops::{AddAssign, Sub, SubAssign};

/// Number of records and their bytes. Sums saturate, because numbers from a file are arbitrary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of records.
    pub records: u64,
    /// Bytes of the records, without metadata.
    pub bytes: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let Size { records, bytes } = *self;
        write!(f, "{records} record{} of {bytes} byte{}", plural(records), plural(bytes))
    }
}

impl Size {
    /// Returns the size of one record.
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

/// A run of consecutive LSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Lowest LSN.
    pub first: Lsn,
    /// Number of LSNs, at least 1.
    pub count: u32,
    /// Total bytes of their records.
    pub bytes: u64,
}

impl Run {
    /// Returns the highest LSN.
    pub fn last(&self) -> Lsn {
        self.first + u64::from(self.count - 1)
    }

    /// Returns the number of LSNs and the bytes of their records.
    pub fn size(&self) -> Size {
        Size { records: u64::from(self.count), bytes: self.bytes }
    }

    /// Returns the part of the run from `low` to `high`, both included.
    pub(super) fn between(&self, low: Lsn, high: Lsn) -> Option<Run> {
        let (low, high) = (low.max(self.first), high.min(self.last()));
        if low > high {
            return None;
        }
        // Bytes before an LSN in proportion to the count: the pieces of a run add up to it,
        // wherever it is cut.
        let before = |count: u64| {
            (u128::from(self.bytes) * u128::from(count)).checked_div(u128::from(self.count)).unwrap_or(0)
                as u64
        };
        let (skipped, end) = (low - self.first, high - self.first + 1);
        Some(Run { first: low, count: (end - skipped) as u32, bytes: before(end) - before(skipped) })
    }

    /// Returns the parts of the run below `low` and above `high`.
    pub(super) fn without(&self, low: Lsn, high: Lsn) -> impl Iterator<Item = Run> + use<> {
        let below = low.checked_sub(1).and_then(|end| self.between(0, end));
        let above = high.checked_add(1).and_then(|start| self.between(start, u64::MAX));
        [below, above].into_iter().flatten()
    }
}
