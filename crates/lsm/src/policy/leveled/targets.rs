//! Level targets, and scores as the distance from them.
//!
//! **Targets** (dynamic level sizes). The deepest level has none. Going up from its size, each
//! level's target is the one below divided by `level_multiplier`, until it is at most
//! `level_base_bytes`: that level is the base. Levels above the base stay empty. No target is below
//! `level_base_bytes`, so that the tree does not become an hourglass under a burst.
//!
//! If nearly all bytes of a level are values in vSSTs, merging it moves little, and the data above
//! it hides garbage. Then the base level may be `SEPARATED_BASE_FACTOR` times as large: most trees
//! then have level 0 and one more level. Also, level 0 then goes down once its compensated size
//! reaches a fifth of the deepest level plus two files, however few its files are. With memtables
//! that are large compared to the store, writers are throttled for the garbage hidden by level 0
//! (from 22 % on) before its files are many. No other compaction exposes that garbage.
//!
//! **Scores** are bytes divided by the target, without the files that are already on their way
//! down. For level 0 the score is the larger of files divided by `l0_compaction_files` and bytes
//! divided by the byte limit.

use super::parameters::Leveled;
use crate::policy::facts::PickInputs;
use crate::policy::set_aside::SetAside;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Factor by which the base level may be larger if values are separated. A merge of level 0 into it
/// reads about that many references for each new one. That is a few microseconds of work for a
/// value of several kilobytes, against a tenth of the store as unexposed garbage.
pub(in crate::policy) const SEPARATED_BASE_FACTOR: u64 = 48;

/// Values count as separated if the tables of a level have at most one part in `SEPARATED_PART` of
/// its compensated bytes.
const SEPARATED_PART: u64 = 16;

/// With separated values, level 0 goes down at one part in `SEPARATED_L0_PART` of the deepest
/// level.
pub(in crate::policy) const SEPARATED_L0_PART: u64 = 5;

/// Targets of the levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level into which level 0 is compacted.
    pub base_level: usize,
    /// Target of each level, in compensated bytes. 0 for level 0 and for the levels above the base;
    /// `u64::MAX` for the deepest.
    pub bytes: Vec<u64>,
}

/// Load of level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Load {
    pub files: usize,
    pub bytes: u64,
    /// Size for the shape of the tree.
    pub size: u64,
}

impl Leveled {
    /// Returns the targets of the levels of `version`.
    pub fn level_targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        let last = self.last_level();
        let multiplier = self.level_multiplier.max(2);
        let level_base_bytes = self.level_base_bytes.max(1);
        let first_used = (1..=last).find(|&level| !version.files(level).is_empty()).unwrap_or(last);
        let (largest, separated) = self.deepest(version);
        let base_max = level_base_bytes.saturating_mul(if separated { SEPARATED_BASE_FACTOR } else { 1 });

        // Target of the highest level in use if the deepest one held the largest size.
        let mut base_level = first_used;
        let mut base_bytes = (first_used..last).fold(largest, |bytes, _| bytes / multiplier);
        while base_level > 1 && base_bytes > base_max {
            base_level -= 1;
            base_bytes /= multiplier;
        }
        while base_level > set_aside.base_below(version, base_level) {
            base_level -= 1;
            base_bytes /= multiplier;
        }
        base_bytes = base_bytes.clamp(level_base_bytes / multiplier + 1, base_max);

        let mut bytes = vec![0; last + 1];
        let mut target = base_bytes;
        for (level, slot) in bytes.iter_mut().enumerate().skip(base_level) {
            *slot = if level == last { u64::MAX } else { target.max(level_base_bytes) };
            target = target.saturating_mul(multiplier);
        }
        LevelTargets { base_level, bytes }
    }

    /// Returns the size of the largest level below level 0, and whether nearly all of it is in
    /// vSSTs.
    pub(in crate::policy) fn deepest(&self, version: &Version) -> (u64, bool) {
        let below = 1..=self.last_level();
        let largest = below.clone().map(|level| self.level_size(version, level)).max().unwrap_or(0);
        let tables = below.fold(0u64, |sum, level| sum.saturating_add(version.level_bytes(level)));
        (largest, largest > 0 && tables <= largest / SEPARATED_PART)
    }

    /// Returns the scores of the levels that can be compacted, highest first. A level with a score
    /// of at least 1 is due.
    pub fn scores(&self, facts: &PickInputs<'_>) -> Vec<(usize, f64)> {
        self.scores_for(facts, &self.level_targets(facts.version, facts.set_aside))
    }

    pub(super) fn scores_for(&self, facts: &PickInputs<'_>, targets: &LevelTargets) -> Vec<(usize, f64)> {
        let version = facts.version;
        let held = facts.set_aside.held(version, targets.base_level);
        let is_free = |f: &&Arc<FileMeta>| !facts.busy.has_file(f.number) && !held.contains(&f.number);
        let free = |level: usize| version.files(level).iter().filter(is_free);
        let bytes = |level: usize| free(level).fold(0, |sum: u64, f| sum.saturating_add(self.size_of(f)));
        let by_files = free(0).count() as f64 / self.l0_compaction_files.max(1) as f64;
        let by_bytes = bytes(0) as f64 / self.l0_bytes_max(version, targets) as f64;
        let mut scores = vec![(0, by_files.max(by_bytes))];
        for level in targets.base_level..self.last_level() {
            scores.push((level, bytes(level) as f64 / targets.bytes[level] as f64));
        }
        // The sort is stable: of two equal scores the upper level goes first, because it holds up
        // the flushes.
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores
    }

    pub(super) fn l0_wants(&self, version: &Version, set_aside: &SetAside, targets: &LevelTargets) -> bool {
        let load = self.load_of(version, set_aside, targets);
        load.files >= self.l0_compaction_files.max(1) || load.size >= self.l0_bytes_max(version, targets)
    }

    /// Returns the files and physical bytes of level 0, without those that an unreadable table
    /// holds there.
    pub(super) fn l0_load_of(&self, version: &Version, set_aside: &SetAside) -> (usize, u64) {
        let load = if set_aside.is_empty() {
            self.all_of_l0(version)
        } else {
            self.load_of(version, set_aside, &self.level_targets(version, set_aside))
        };
        (load.files, load.bytes)
    }

    pub(in crate::policy) fn all_of_l0(&self, version: &Version) -> Load {
        let (files, bytes) = (version.files(0).len(), version.level_bytes(0));
        Load { files, bytes, size: self.level_size(version, 0) }
    }

    pub(in crate::policy) fn load_of(
        &self,
        version: &Version,
        set_aside: &SetAside,
        targets: &LevelTargets,
    ) -> Load {
        let held = set_aside.held(version, targets.base_level);
        if held.is_empty() {
            return self.all_of_l0(version);
        }
        let free = version.files(0).iter().filter(|f| !held.contains(&f.number));
        free.fold(Load::default(), |sum, f| Load {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(f.len),
            size: sum.size.saturating_add(self.size_of(f)),
        })
    }

    /// Returns the byte limit of level 0. It grows with the base level; otherwise a burst would
    /// merge every single file into a base level many times as large. See the module for separated
    /// values.
    fn l0_bytes_max(&self, version: &Version, targets: &LevelTargets) -> u64 {
        let multiplier = self.level_multiplier.max(2);
        let base = targets.bytes.get(targets.base_level).copied().filter(|bytes| *bytes != u64::MAX);
        let few = match self.deepest(version) {
            (_, true) => self.l0_compaction_bytes.min(self.hidden_max(version)),
            (_, false) => self.l0_compaction_bytes,
        };
        few.max(base.unwrap_or(0) / multiplier).max(1)
    }

    /// Returns the maximum size of level 0 if values are separated, in compensated bytes.
    pub(in crate::policy) fn hidden_max(&self, version: &Version) -> u64 {
        (self.deepest(version).0 / SEPARATED_L0_PART).saturating_add(2 * self.file_bytes).max(1)
    }

    /// Returns the compensated bytes that compactions must rewrite until every level is within its
    /// target, if nothing else is written.
    pub fn debt_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let targets = self.level_targets(version, set_aside);
        let size = |level: usize| self.level_size(version, level) as f64;
        let mut debt = 0.0;
        // Bytes that the level receives from above.
        let mut arriving = 0.0;
        if self.l0_wants(version, set_aside, &targets) {
            arriving = size(0);
            debt += size(0) + size(targets.base_level);
        }
        for level in targets.base_level..self.last_level() {
            let bytes = size(level) + arriving;
            arriving = (bytes - targets.bytes[level] as f64).max(0.0);
            if arriving > 0.0 {
                debt += arriving * (1.0 + size(level + 1) / bytes);
            }
        }
        debt as u64
    }

    /// Returns the number of compactions due in a row, starting with one of `level`.
    pub(in crate::policy) fn due_in_a_row(
        &self,
        targets: &LevelTargets,
        scores: &[(usize, f64)],
        level: usize,
    ) -> usize {
        let is_due = |level: &usize| scores.iter().any(|(of, score)| of == level && *score >= 1.0);
        let below = if level == 0 { targets.base_level } else { level + 1 };
        1 + (below..self.last_level()).take_while(is_due).count()
    }

    /// Returns the physical bytes over target of the tables below level 0.
    pub(in crate::policy) fn excess_over(&self, version: &Version, targets: &LevelTargets) -> u64 {
        (targets.base_level..self.last_level()).fold(0, |sum: u64, level| {
            let (size, bytes) = (self.level_size(version, level), version.level_bytes(level));
            let over = size.saturating_sub(targets.bytes[level]);
            // Targets are compensated bytes; the same share of the physical bytes is over target.
            let part = u128::from(bytes) * u128::from(over) / u128::from(size.max(1));
            sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
        })
    }

    /// Returns the maximum physical bytes that a compaction of one file into `level` reads, if
    /// files have their target length: the overlap at which tables are cut, and two more tables for
    /// the file itself and for partial overlaps at its ends.
    pub(in crate::policy) fn width_of(&self, version: &Version, level: usize) -> u64 {
        let tables = self.overlap_ratio_max.saturating_add(2);
        self.table_bytes(version, level).saturating_mul(tables)
    }
}
