//! What lies side by side in a file is read by one request, where the gap between costs less than another would.

use std::ops::Range;

/// Bytes between two records that are read along rather than left out: about as many as cost next to nothing beside
/// a request (see `table::readahead` for what was measured).
pub(crate) const GAP_MAX: u64 = 16 << 10;
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

/// Joins extents (file, and where in it), sorted, into runs.
pub(crate) fn join(extents: impl Iterator<Item = (u64, Range<u64>)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last_file = None;
    for (nth, (file, extent)) in extents.enumerate() {
        match runs.last_mut() {
            Some(run)
                if last_file == Some(file)
                    && extent.start <= run.bytes.end.saturating_add(GAP_MAX)
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
        assert_eq!(join(extents.into_iter()), runs);
    }
}
