//! Decides where tables of level 1 end, by their overlap with level 2.
//!
//! Level 2 is up to F times as large as level 1, so a table of average density overlaps F times its
//! own bytes there: too much. But neither level is even. A table is *good* while its overlap is at
//! most f times its own bytes ([`OverlapOf`](super::parameters::OverlapOf)). It ends, as a good
//! table, before the key that would end that, or at its full size. A table that is not good from
//! the start, and does not become good by growing, ends as a *poor* one at m. It takes its part of
//! level 2 away from the overlap of the other tables.
//!
//! A table of level 2 counts when an output enters it, in each output that has a part of it; all
//! tables between two keys count as well. Overlap is in physical bytes, and is checked only on
//! entering a table of level 2. No table is cut for its overlap below `least_bytes`, unless it
//! would exceed `overlap_cap`, which bounds the width of a job. That happens only where level 1 is
//! a thousand times thinner than elsewhere.

use super::parameters::Vlsm;
use crate::policy::compaction::Compaction;
use crate::policy::cutter::Cutter;
use crate::{OutputCutter, OutputSize};
use std::ops::Range;
use version::{Level, Version};

/// Decides where the outputs of one compaction into level 1 end. Keys must ascend from call to
/// call.
#[derive(Clone, Debug)]
pub struct OverlapCutter {
    policy: Vlsm,
    size: Cutter,
    /// Tables of level 2.
    below: Level,
    /// Physical bytes of a full table of level 2.
    full: u64,
    cap: u64,
    /// Index of the first table of level 2 that does not end before the last key asked.
    at: usize,
    /// Index of the first table of level 2 that is not counted yet.
    counted: usize,
    /// Physical bytes of level 2 that the open output overlaps.
    overlap: u64,
}

impl OverlapCutter {
    /// Returns a cutter for the outputs of `c`; `version` is the one from which it was picked.
    pub fn new(policy: &Vlsm, c: &Compaction, version: &Version) -> Self {
        OverlapCutter {
            size: Cutter::new(c, version),
            below: version.levels.get(c.output_level + 1).cloned().unwrap_or_default(),
            full: policy.tree.table_bytes(version, c.output_level + 1),
            cap: policy.overlap_cap(version, c.output_level),
            at: 0,
            counted: 0,
            overlap: 0,
            policy: policy.clone(),
        }
    }

    /// Returns an index range that ends after the table with `user_key` in its range. The range is
    /// empty if there is no such table.
    fn find(&mut self, user_key: &[u8]) -> Range<usize> {
        while self.below.get(self.at).is_some_and(|f| f.ends_before(user_key)) {
            self.at += 1;
        }
        let covers = self.below.get(self.at).is_some_and(|f| !f.starts_after(user_key));
        self.at..self.at + usize::from(covers)
    }

    fn bytes(&self, tables: Range<usize>) -> u64 {
        self.below.get(tables).unwrap_or_default().iter().fold(0, |sum: u64, f| sum.saturating_add(f.len))
    }

    fn begin(&mut self, here: Range<usize>) {
        self.counted = here.end;
        self.overlap = self.bytes(here);
    }

    fn is_good(&self, overlap: u64, open: OutputSize) -> bool {
        overlap <= self.policy.good_overlap(open.file_bytes, self.full)
    }
}

impl OutputCutter for OverlapCutter {
    fn cut_before(&mut self, next_user_key: &[u8], open: OutputSize) -> bool {
        let here = self.find(next_user_key);
        if open.is_empty {
            self.begin(here);
            return false;
        }
        let enters = here.end > self.counted;
        let with_next = match enters {
            true => self.overlap.saturating_add(self.bytes(self.counted..here.end)),
            false => self.overlap,
        };
        let is_poor = !self.is_good(with_next, open);
        let for_overlap = is_poor
            && open.file_bytes >= self.policy.least_bytes()
            && (open.raw_bytes >= self.policy.poor_bytes() || enters && self.is_good(self.overlap, open));
        let cut = self.size.is_full(open) || for_overlap || enters && with_next > self.cap;
        match cut {
            true => self.begin(here),
            false => (self.overlap, self.counted) = (with_next, here.end.max(self.counted)),
        }
        cut
    }
}
