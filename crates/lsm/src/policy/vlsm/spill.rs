//! Spills from level 1 into level 2: picks the tables that free the most for their overlap.
//!
//! The overlap of the tables is recomputed, since level 2 has changed since they were cut.
//! Neighbors go together, up to one run, if that is better than one of them alone: they share the
//! tables that both overlap. Good ones go before all others (`Vlsm::good_overlap`). With level 2
//! full there may be none, and then the best of the rest goes at once ([`Reason::PoorSpill`], which
//! is counted). Waiting for a better one would mean waiting for level 0, which waits for space.

use super::parameters::Vlsm;
use crate::policy::compaction::{Compaction, Reason};
use crate::policy::leveled::picker::Picker;
use crate::policy::leveled::targets::LevelTargets;
use std::ops::Range;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Neighbors of level 1, with the value of their merge.
struct Candidate {
    tables: Range<usize>,
    is_good: bool,
    /// Compensated bytes removed from level 1 for each physical byte read.
    ratio: f64,
}

impl Candidate {
    /// Returns for each idle table the better of two candidates: the table alone, or with its
    /// successors.
    fn all(policy: &Vlsm, picker: &Picker<'_>) -> Vec<Candidate> {
        let (version, base) = (picker.facts.version, picker.targets.base_level);
        let files = version.files(base);
        let overlaps = Overlaps::of(version, base);
        let full = policy.tree.table_bytes(version, base + 1);
        let (run_bytes, cap) =
            (policy.run_bytes(version, &picker.targets), policy.overlap_cap(version, base));
        let from = |start: usize| {
            let (mut stands_for, mut own) = (0u64, 0u64);
            let mut best: Option<Candidate> = None;
            for (i, file) in files.iter().enumerate().skip(start).take_while(|(_, f)| picker.facts.is_free(f))
            {
                stands_for = stands_for.saturating_add(policy.tree.size_of(file));
                own = own.saturating_add(file.len);
                let tables = start..i + 1;
                let met = overlaps.bytes(&tables);
                if i > start && (stands_for > run_bytes || met > cap) {
                    break;
                }
                let ratio = stands_for as f64 / own.saturating_add(met).max(1) as f64;
                let is_good = met <= policy.good_overlap(own, full);
                if best.as_ref().is_none_or(|b| (is_good, ratio) > (b.is_good, b.ratio)) {
                    best = Some(Candidate { tables, is_good, ratio });
                }
            }
            best
        };
        (0..files.len()).filter_map(from).collect()
    }
}

/// Overlaps of the tables of level 1 with level 2.
struct Overlaps {
    /// Overlapped tables of level 2, for each table of level 1.
    met: Vec<Range<usize>>,
    /// Physical bytes of level 2 before each of its tables, and the total.
    before: Vec<u64>,
}

impl Overlaps {
    fn of(version: &Version, level: usize) -> Self {
        let below = version.files(level + 1);
        let mut before = Vec::with_capacity(below.len() + 1);
        before.push(0u64);
        before.extend(below.iter().scan(0u64, |sum, f| {
            *sum = sum.saturating_add(f.len);
            Some(*sum)
        }));
        let mut from = 0;
        let met = |f: &Arc<FileMeta>| {
            from += below[from..].iter().take_while(|b| b.ends_before(f.smallest_user_key())).count();
            // The next table may begin in the table in which this one ends.
            from..from + below[from..].iter().take_while(|b| !b.starts_after(f.largest_user_key())).count()
        };
        Overlaps { met: version.files(level).iter().map(met).collect(), before }
    }

    fn bytes(&self, tables: &Range<usize>) -> u64 {
        let (first, last) = (&self.met[tables.start], &self.met[tables.end - 1]);
        self.before[last.end.max(first.start)] - self.before[first.start]
    }
}

impl Vlsm {
    /// Returns the maximum physical bytes that a compaction of level 1 reads.
    pub(super) fn spill_width(&self, version: &Version, targets: &LevelTargets) -> u64 {
        let base = targets.base_level;
        // Level 2 changes under tables that were already cut: at either end one more table may
        // reach into the range.
        let ends = self.tree.table_bytes(version, base + 1).saturating_mul(2);
        let met = self.overlap_cap(version, base).saturating_add(ends).min(version.level_bytes(base + 1));
        met.saturating_add(self.run_bytes(version, targets).min(version.level_bytes(base)))
    }

    /// Compacts the best candidate of level 1 that can go into level 2 now.
    pub(super) fn spill(&self, picker: &Picker<'_>) -> Option<Compaction> {
        let base = picker.targets.base_level;
        let files = picker.facts.version.files(base);
        let mut candidates = Candidate::all(self, picker);
        candidates.sort_by(|a, b| b.is_good.cmp(&a.is_good).then(b.ratio.total_cmp(&a.ratio)));
        candidates.into_iter().find_map(|of| {
            let reason = if of.is_good { Reason::Spill } else { Reason::PoorSpill };
            picker.merge_into((base, files[of.tables].to_vec()), base + 1, reason)
        })
    }
}
