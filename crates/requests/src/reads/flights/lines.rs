//! Which flight begins next: point reads have a line, and scans have one, since a scan wants so much at a time that a get behind it in the same line would
//! wait for hundreds of reads.
//!
//! In each line it is first come, first served. At the device scans have [`SCANS_FLYING_MAX`] reads in flight at most, so a get that
//! comes meets no more of theirs, and the rest of the room at the device is never theirs. Where both wait, a flight of a scan begins after
//! [`PASSED_MAX`] of point reads, so that scans come to their end however many gets there are.
//!
//! Of the bytes that requests may hold ([`BYTES_MAX`]) scans have half at most, so that half is left for point reads whatever scans hold. Point reads may
//! have all; then the oldest scan goes on.

use super::BYTES_MAX;
use base::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;

/// Reads of the device at most that are in flight for scans.
pub(crate) const SCANS_FLYING_MAX: usize = 64;
/// So many flights of point reads begin before one of a scan that could have begun as well.
const PASSED_MAX: u32 = 3;

/// Whose a flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Points,
    Scans,
}

/// Bytes that were read for requests that are not over.
#[derive(Debug, Default)]
pub(crate) struct Charged {
    of: [AtomicU64; 2],
}

impl Charged {
    pub fn add(&self, side: Side, bytes: u64) {
        self.of[side as usize].fetch_add(bytes, Ordering::AcqRel);
    }

    pub fn sub(&self, side: Side, bytes: u64) {
        self.of[side as usize].fetch_sub(bytes, Ordering::AcqRel);
    }

    pub fn of(&self, side: Side) -> u64 {
        self.of[side as usize].load(Ordering::Acquire)
    }

    pub fn all(&self) -> u64 {
        self.of(Side::Points) + self.of(Side::Scans)
    }

    /// True if so many more may be read.
    pub fn have_room(&self, side: Side, bytes: u64) -> bool {
        let is_in_half = self.of(side) + bytes <= BYTES_MAX / 2;
        let is_in_all = self.all() + bytes <= BYTES_MAX;
        match side {
            Side::Points => is_in_half || is_in_all,
            Side::Scans => is_in_half && is_in_all,
        }
    }
}

/// Flights of one side that are at the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flying {
    pub flights: usize,
    pub bytes: u64,
}

/// Flights that have not begun, by number, and by request and number.
#[derive(Debug, Default)]
pub(super) struct Line {
    by_number: BTreeSet<u64>,
    by_request: BTreeSet<(u64, u64)>,
}

impl Line {
    pub fn insert(&mut self, request: u64, number: u64) {
        self.by_number.insert(number);
        self.by_request.insert((request, number));
    }

    /// True if it was there.
    pub fn remove(&mut self, request: u64, number: u64) -> bool {
        self.by_request.remove(&(request, number));
        self.by_number.remove(&number)
    }

    pub fn first(&self) -> Option<u64> {
        self.by_number.first().copied()
    }

    /// Of the oldest request that has one.
    pub fn of_oldest(&self) -> Option<(u64, u64)> {
        self.by_request.first().copied()
    }

    #[cfg(all(test, not(loom)))]
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.by_request.is_empty()
    }
}

/// Who is next where both sides wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Flights of point reads that have begun since one of a scan could have.
    passed: u32,
}

impl Turns {
    /// Of what could begin, what begins.
    pub fn next(&mut self, of_points: Option<u64>, of_scans: Option<u64>) -> Option<u64> {
        if of_scans.is_some() && (of_points.is_none() || self.passed >= PASSED_MAX) {
            self.passed = 0;
            return of_scans;
        }
        self.passed += u32::from(of_points.is_some() && of_scans.is_some());
        of_points
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_their_turns() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(None, None), None);
        assert_eq!((0..5).filter(|_| turns.next(Some(1), None) == Some(1)).count(), 5);
        assert_eq!((0..40).filter(|_| turns.next(Some(1), Some(2)) == Some(2)).count(), 10);
        assert_eq!((0..5).filter(|_| turns.next(None, Some(2)) == Some(2)).count(), 5);
    }

    #[test]
    fn half_is_left_for_point_reads_whatever_scans_hold() {
        let charged = Charged::default();
        charged.add(Side::Scans, BYTES_MAX * 2);
        assert!(charged.have_room(Side::Points, BYTES_MAX / 2));
        assert!(!charged.have_room(Side::Points, BYTES_MAX / 2 + 1) && !charged.have_room(Side::Scans, 1));
        charged.sub(Side::Scans, BYTES_MAX * 2);
        assert!(
            charged.have_room(Side::Points, BYTES_MAX) && !charged.have_room(Side::Points, BYTES_MAX + 1)
        );
        assert!(
            charged.have_room(Side::Scans, BYTES_MAX / 2)
                && !charged.have_room(Side::Scans, BYTES_MAX / 2 + 1)
        );
        charged.add(Side::Points, BYTES_MAX);
        assert!(!charged.have_room(Side::Scans, 1) && !charged.have_room(Side::Points, 1));
        assert_eq!(charged.all(), BYTES_MAX);
    }
}
