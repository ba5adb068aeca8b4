//! Joining of neighboring reads of a file into one request to the device.
//!
//! The longest gap that a request reads over follows from the measured cost of reads on the file's
//! disk (`store::pacing`). A gap changes only the duration of a read: each record is cut out at its
//! own place and verified.

use crate::source::{BlockRequest, Extent};
use io::{ReadCosts, ReadFile};
use std::ops::Range;

/// Maximum gap that a request reads over if the disk's costs are unknown, in bytes: about as many
/// as cost almost nothing beside a request (`readahead` has the measurement).
pub const GAP_UNKNOWN: u64 = 16 << 10;
/// Longest request for several records, bytes. A longer one would leave the device's parallelism
/// unused.
pub const RUN_LEN_MAX: u64 = 256 << 10;

/// One request for several extents of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// Indexes of the extents.
    pub places: Range<usize>,
    /// Bytes of the file.
    pub bytes: Range<u64>,
}

impl Run {
    /// Length of the request, bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }
}

/// A wanted extent of an open file.
pub struct WantedExtent<'f> {
    /// Number of the file.
    pub number: u64,
    /// The open file.
    pub file: &'f dyn ReadFile,
    /// Its wanted bytes.
    pub extent: Range<u64>,
}

impl<'f> From<&'f BlockRequest> for WantedExtent<'f> {
    fn from(want: &'f BlockRequest) -> Self {
        let Extent { file, offset, len } = want.extent;
        WantedExtent { number: file, file: &*want.file, extent: offset..offset.saturating_add(len) }
    }
}

/// Returns the longest gap of a file that a request reads over, bytes.
fn gap_in(file: &dyn ReadFile) -> u64 {
    ReadCosts::of(file).gap_bytes.unwrap_or(GAP_UNKNOWN)
}

/// Joins wanted extents into runs. `wanted` is sorted by file and offset.
pub fn join<'f>(wanted: impl Iterator<Item = WantedExtent<'f>>) -> Vec<Run> {
    // Looked up once per file, so that one batch uses one cost.
    let mut last: Option<(u64, u64)> = None;
    join_by(wanted.map(|WantedExtent { number, file, extent }| {
        let gap = last.filter(|(of, _)| *of == number).map_or_else(|| gap_in(file), |(_, gap)| gap);
        last = Some((number, gap));
        (number, extent, gap)
    }))
}

/// Joins extents, each with the number of its file and the longest gap of that file.
fn join_by(extents: impl Iterator<Item = (u64, Range<u64>, u64)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last_file = None;
    for (nth, (file, extent, gap)) in extents.enumerate() {
        match runs.last_mut() {
            Some(run)
                if last_file == Some(file)
                    && extent.start <= run.bytes.end.saturating_add(gap)
                    && extent.end.saturating_sub(run.bytes.start) <= RUN_LEN_MAX =>
            {
                run.places.end = nth + 1;
                run.bytes.end = run.bytes.end.max(extent.end);
            }
            _ => runs.push(Run { places: nth..nth + 1, bytes: extent }),
        }
        last_file = Some(file);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_reads_of_one_file_are_joined() {
        let run = |places, bytes| Run { places, bytes };
        const GAP_MAX: u64 = 1000;
        assert_eq!(join(std::iter::empty()), []);
        let near = GAP_MAX + 100;
        let extents = [
            (1, 0..50),
            (1, 50..100),
            (1, near..near + 10),
            (1, near + 11 + GAP_MAX..near + 12 + GAP_MAX),
            (2, near + 12 + GAP_MAX..near + 13 + GAP_MAX),
            (2, 1 << 40..(1 << 40) + RUN_LEN_MAX - 1),
            (2, (1 << 40) + RUN_LEN_MAX..(1 << 40) + RUN_LEN_MAX + 2),
            (2, u64::MAX - 5..u64::MAX),
        ];
        let runs = [
            run(0..3, 0..near + 10),
            run(3..4, near + 11 + GAP_MAX..near + 12 + GAP_MAX),
            run(4..5, near + 12 + GAP_MAX..near + 13 + GAP_MAX),
            run(5..6, 1 << 40..(1 << 40) + RUN_LEN_MAX - 1),
            run(6..7, (1 << 40) + RUN_LEN_MAX..(1 << 40) + RUN_LEN_MAX + 2),
            run(7..8, u64::MAX - 5..u64::MAX),
        ];
        let with_gap = |(file, extent)| (file, extent, GAP_MAX);
        assert_eq!(join_by(extents.into_iter().map(with_gap)), runs);
        // Each file has its own gap, and a gap of 0 joins only adjacent extents.
        let extents = [(1, 0..5, 0), (1, 5..9, 0), (1, 10..11, 0), (2, 0..1, 50), (2, 51..52, 50)];
        let runs = [run(0..2, 0..9), run(2..3, 10..11), run(3..5, 0..52)];
        assert_eq!(join_by(extents.into_iter()), runs);
    }
}
