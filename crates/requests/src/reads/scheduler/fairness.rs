//! Fairness between point reads and scans. Each kind has a queue of its own: a scan wants so much
//! at a time that a get behind it in one queue would wait for hundreds of reads.
//!
//! In each queue reads start first in, first out. Scans have at most [`SCAN_READS_MAX`] reads at
//! the device, so a new get waits behind at most these, and scans never use the rest of the
//! device's depth. Where both kinds are queued, a read of a scan starts after [`PASSED_MAX`] of
//! point reads, so that scans finish for any number of gets.
//!
//! Of the buffers ([`BUFFER_BYTES_MAX`]) scans have at most half, and half is left for point reads
//! whatever scans hold. Point reads may have all; then only the oldest scan continues.

use super::BUFFER_BYTES_MAX;
use base::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;

/// Bound on device reads of scans in flight.
pub(crate) const SCAN_READS_MAX: usize = 64;
/// Point reads that start before a read of a scan that could have started as well.
const PASSED_MAX: u32 = 3;

/// Kind of the requests that a device read serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Point,
    Scan,
}

/// Buffers of unfinished requests, bytes by kind.
#[derive(Debug, Default)]
pub(crate) struct BufferBytes {
    by_kind: [AtomicU64; 2],
}

impl BufferBytes {
    pub fn add(&self, kind: ReadKind, bytes: u64) {
        self.by_kind[kind as usize].fetch_add(bytes, Ordering::AcqRel);
    }

    pub fn sub(&self, kind: ReadKind, bytes: u64) {
        self.by_kind[kind as usize].fetch_sub(bytes, Ordering::AcqRel);
    }

    pub fn of(&self, kind: ReadKind) -> u64 {
        self.by_kind[kind as usize].load(Ordering::Acquire)
    }

    pub fn all(&self) -> u64 {
        self.of(ReadKind::Point) + self.of(ReadKind::Scan)
    }

    /// Returns true if this many more bytes may be read.
    pub fn have_room(&self, kind: ReadKind, bytes: u64) -> bool {
        let is_in_half = self.of(kind) + bytes <= BUFFER_BYTES_MAX / 2;
        let is_in_all = self.all() + bytes <= BUFFER_BYTES_MAX;
        match kind {
            ReadKind::Point => is_in_half || is_in_all,
            ReadKind::Scan => is_in_half && is_in_all,
        }
    }
}

/// Device reads of one kind in flight: their number and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AtDevice {
    pub reads: usize,
    pub bytes: u64,
}

/// Device reads that have not begun, by number, and by request and number.
#[derive(Debug, Default)]
pub(super) struct QueuedReads {
    by_number: BTreeSet<u64>,
    by_request: BTreeSet<(u64, u64)>,
}

impl QueuedReads {
    pub fn insert(&mut self, request: u64, number: u64) {
        self.by_number.insert(number);
        self.by_request.insert((request, number));
    }

    /// Returns true if the read was queued.
    pub fn remove(&mut self, request: u64, number: u64) -> bool {
        self.by_request.remove(&(request, number));
        self.by_number.remove(&number)
    }

    pub fn first(&self) -> Option<u64> {
        self.by_number.first().copied()
    }

    /// Returns the first read of the oldest request that has one.
    pub fn of_oldest(&self) -> Option<(u64, u64)> {
        self.by_request.first().copied()
    }

    #[cfg(all(test, not(loom)))]
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.by_request.is_empty()
    }
}

/// Alternation where both kinds are queued.
#[derive(Debug, Default)]
pub(super) struct Alternation {
    /// Point reads that have started since a read of a scan could have.
    passed: u32,
}

impl Alternation {
    /// Chooses between the reads that could start.
    pub fn next(&mut self, point: Option<u64>, scan: Option<u64>) -> Option<u64> {
        if scan.is_some() && (point.is_none() || self.passed >= PASSED_MAX) {
            self.passed = 0;
            return scan;
        }
        self.passed += u32::from(point.is_some() && scan.is_some());
        point
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gets_and_scans_alternate_fairly() {
        let mut alternation = Alternation::default();
        assert_eq!(alternation.next(None, None), None);
        assert_eq!((0..5).filter(|_| alternation.next(Some(1), None) == Some(1)).count(), 5);
        assert_eq!((0..40).filter(|_| alternation.next(Some(1), Some(2)) == Some(2)).count(), 10);
        assert_eq!((0..5).filter(|_| alternation.next(None, Some(2)) == Some(2)).count(), 5);
    }

    #[test]
    fn half_of_the_buffers_is_left_for_point_reads() {
        let buffers = BufferBytes::default();
        buffers.add(ReadKind::Scan, BUFFER_BYTES_MAX * 2);
        assert!(buffers.have_room(ReadKind::Point, BUFFER_BYTES_MAX / 2));
        assert!(
            !buffers.have_room(ReadKind::Point, BUFFER_BYTES_MAX / 2 + 1)
                && !buffers.have_room(ReadKind::Scan, 1)
        );
        buffers.sub(ReadKind::Scan, BUFFER_BYTES_MAX * 2);
        assert!(
            buffers.have_room(ReadKind::Point, BUFFER_BYTES_MAX)
                && !buffers.have_room(ReadKind::Point, BUFFER_BYTES_MAX + 1)
        );
        assert!(
            buffers.have_room(ReadKind::Scan, BUFFER_BYTES_MAX / 2)
                && !buffers.have_room(ReadKind::Scan, BUFFER_BYTES_MAX / 2 + 1)
        );
        buffers.add(ReadKind::Point, BUFFER_BYTES_MAX);
        assert!(!buffers.have_room(ReadKind::Scan, 1) && !buffers.have_room(ReadKind::Point, 1));
        assert_eq!(buffers.all(), BUFFER_BYTES_MAX);
    }
}
