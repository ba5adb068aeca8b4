//! Where the outputs of a compaction end.
//!
//! An output ends when it has reached the target size, or when it meets so much in the level below its own that
//! compacting it there one day would be a wide job for little data. Both are asked only between user keys.

use super::compaction::{Compaction, PHYSICAL_BYTES_GOOD, Reason};
use crate::{OutputCutter, OutputSize};
use version::{Level, Version};

/// Files with separated values are cut by what they stand for, but not below this many physical bytes: a tree of tiny
/// files costs more in files than it saves in I/O.
pub(super) const PHYSICAL_BYTES_MIN: u64 = 256 << 10;
/// How much more.
const COMPENSATED_FACTOR: u64 = 4;

/// Decides where the outputs of one compaction end. Asked with ascending keys.
#[derive(Clone, Debug)]
pub struct Cutter {
    /// Compensated bytes of an output.
    file_bytes: u64,
    /// Physical bytes of it that must be there as well.
    physical_bytes_min: u64,
    /// As many are welcome.
    physical_bytes_good: u64,
    /// The level below the outputs.
    below: Level,
    /// The first file of it that does not end before the last key asked.
    at: usize,
    /// Physical bytes of it that the open output has passed or entered.
    overlap: u64,
    overlap_max: u64,
}

impl Cutter {
    /// For the outputs of `c`; `version` is the one it was picked from.
    pub fn new(c: &Compaction, version: &Version) -> Self {
        let to_level_0 = c.output_level == 0;
        Cutter {
            // Level 0 is searched file by file: one is better than several.
            file_bytes: match (to_level_0, c.compensated) {
                (true, _) => u64::MAX,
                (false, true) => c.file_bytes,
                (false, false) => 0,
            },
            // Whoever cuts for want of room wants short tables.
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
    /// True if an output has the size that it is to have.
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
            // What lies before its first key an output does not meet.
            self.overlap = 0;
        }
        let cut = !open.is_empty && (self.is_full(open) || self.overlap > self.overlap_max);
        if cut {
            self.overlap = 0;
        }
        cut
    }
}
