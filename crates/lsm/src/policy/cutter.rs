//! Decides where the outputs of a compaction end.
//!
//! An output ends when it reaches the target size, or when it overlaps too much of the next level.
//! In the second case compacting it there would be a wide job for little data. Both are checked
//! only between user keys.

use super::compaction::{Compaction, PHYSICAL_BYTES_GOOD, Reason};
use crate::{OutputCutter, OutputSize};
use version::{Level, Version};

/// Minimum physical size of a file with separated values. Such files are cut by compensated bytes,
/// but a tree of tiny files costs more in files than it saves in I/O.
pub(super) const PHYSICAL_BYTES_MIN: u64 = 256 << 10;
/// Factor over the target size at which a file ends although it is physically short.
const COMPENSATED_FACTOR: u64 = 4;

/// Decides where the outputs of one compaction end. Keys must ascend from call to call.
#[derive(Clone, Debug)]
pub struct Cutter {
    /// Target size of an output, in compensated bytes.
    file_bytes: u64,
    /// Minimum physical size of an output.
    physical_bytes_min: u64,
    /// Preferred physical size of an output.
    physical_bytes_good: u64,
    /// Files of the level below the outputs.
    below: Level,
    /// Index of the first file of `below` that does not end before the last key asked.
    at: usize,
    /// Physical bytes of `below` that the open output overlaps.
    overlap: u64,
    overlap_max: u64,
}

impl Cutter {
    /// Returns a cutter for the outputs of `c`; `version` is the one from which it was picked.
    pub fn new(c: &Compaction, version: &Version) -> Self {
        let to_level_0 = c.output_level == 0;
        Cutter {
            // Reads search level 0 file by file, so one file is better than several.
            file_bytes: match (to_level_0, c.compensated) {
                (true, _) => u64::MAX,
                (false, true) => c.file_bytes,
                (false, false) => 0,
            },
            // A cut for lack of space needs short tables.
            physical_bytes_min: match c.compensated {
                true if c.reason == Reason::Cut => 0,
                true => PHYSICAL_BYTES_MIN.min(c.file_bytes / 4),
                false => c.file_bytes,
            },
            physical_bytes_good: match c.compensated {
                true if c.reason == Reason::Cut => 0,
                true => PHYSICAL_BYTES_GOOD.min(c.file_bytes / 4),
                false => 0,
            },
            below: version
                .levels
                .get(c.output_level + 1)
                .filter(|_| !to_level_0)
                .cloned()
                .unwrap_or_default(),
            at: 0,
            overlap: 0,
            overlap_max: c.overlap_max,
        }
    }
}

impl Cutter {
    /// Returns true if the output has reached its target size.
    pub(super) fn is_full(&self, open: OutputSize) -> bool {
        open.raw_bytes >= self.file_bytes
            && open.file_bytes >= self.physical_bytes_min
            && (open.file_bytes >= self.physical_bytes_good
                || open.raw_bytes / COMPENSATED_FACTOR >= self.file_bytes)
    }
}

impl OutputCutter for Cutter {
    fn cut_before(&mut self, next_user_key: &[u8], open: OutputSize) -> bool {
        while let Some(file) = self.below.get(self.at).filter(|f| f.ends_before(next_user_key)) {
            self.overlap = self.overlap.saturating_add(file.len);
            self.at += 1;
        }
        if open.is_empty {
            // An output does not overlap files before its first key.
            self.overlap = 0;
        }
        let cut = !open.is_empty && (self.is_full(open) || self.overlap > self.overlap_max);
        if cut {
            self.overlap = 0;
        }
        cut
    }
}
