//! What lies side by side in a file is read by one request, where the gap between costs less than another would.
//!
//! How long such a gap may be follows from what reads of the file's disk cost (`store::pacing`). Which gaps are read over changes how long a read takes, and
//! nothing else: each record is taken from where it is, and verified.

use io::{ReadCosts, ReadFile};
use std::ops::Range;
use table::{Extent, Want};

/// Bytes between two records that are read along rather than left out where nobody knows what reads cost: about as many as cost next to nothing beside
/// a request (see `table::readahead` for what was measured).
pub(crate) const GAP_UNKNOWN: u64 = 16 << 10;
/// The longest request made of several records; longer ones would leave the device's parallelism unused.
pub(crate) const RUN_LEN_MAX: u64 = 256 << 10;

/// Extents of one file that are read by one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Which of them.
    pub places: Range<usize>,
    /// What is read of the file.
    pub bytes: Range<u64>,
}

impl Run {
    /// How many bytes are read.
    pub fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }
}

/// What is wanted of a file.
pub(crate) struct Wanted<'f> {
    /// The number of the file.
    pub number: u64,
    pub file: &'f dyn ReadFile,
    pub extent: Range<u64>,
}

impl<'f> From<&'f Want> for Wanted<'f> {
    fn from(want: &'f Want) -> Self {
        let Extent { file, offset, len } = want.extent;
        Wanted { number: file, file: &*want.file, extent: offset..offset.saturating_add(len) }
    }
}

/// The longest gap in a file that is read over.
fn gap_in(file: &dyn ReadFile) -> u64 {
    ReadCosts::of(file).gap_bytes.unwrap_or(GAP_UNKNOWN)
}

/// Joins what is wanted, by file and place, into runs.
pub(crate) fn join<'f>(wanted: impl Iterator<Item = Wanted<'f>>) -> Vec<Run> {
    // Of each file it is asked once, so that one batch goes by one cost.
    let mut last: Option<(u64, u64)> = None;
    join_by(wanted.map(|Wanted { number, file, extent }| {
        let gap = last.filter(|(of, _)| *of == number).map_or_else(|| gap_in(file), |(_, gap)| gap);
        last = Some((number, gap));
        (number, extent, gap)
    }))
}

/// The same of numbers of files, extents, and the longest gaps.
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
    fn neighbours_of_one_file_are_joined() {
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
        // Each file has a gap of its own, and none means that only what touches is joined.
        let extents = [(1, 0..5, 0), (1, 5..9, 0), (1, 10..11, 0), (2, 0..1, 50), (2, 51..52, 50)];
        let runs = [run(0..2, 0..9), run(2..3, 10..11), run(3..5, 0..52)];
        assert_eq!(join_by(extents.into_iter()), runs);
    }
}
