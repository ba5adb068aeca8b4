//! What the levels should hold, and how far they are from it.
//!
//! **Targets.** The deepest level has none. Those above it are a `level_multiplier`th of the next one each, up to level 2;
//! level 1 holds f tables of M, and a `level_multiplier`th of level 2 at most: so all that lies above the deepest level
//! is about a ninth of it, whatever the size of the store (but no level is below M). Where level 2 would be more
//! than F times what level 1 may hold, a level is added above. A store that is no larger than level 1 may be has one level.
//! A level in use stays in use: when a store shrinks, or comes from `leveled` with more levels than it would have here.
//!
//! Where values are separated level 1 may be as large as in [`leveled`](crate::policy::leveled::targets): its tables are short.
//!
//! **Scores** are bytes over target, as in `leveled`; of level 0: the larger of files over `l0_compaction_files`, and bytes
//! over half of a run. (Half, for a memtable of M makes a table that is a little shorter.)

use super::parameters::Vlsm;
use crate::policy::facts::Facts;
use crate::policy::leveled::picker::Picker;
use crate::policy::leveled::targets::{LevelTargets, SEPARATED_BASE_FACTOR};
use crate::policy::set_aside::SetAside;
use std::sync::Arc;
use version::{FileMeta, Version};

impl Vlsm {
    /// The targets of the levels of `version`.
    pub fn level_targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        let last = self.tree.last_level();
        let multiplier = self.tree.level_multiplier.max(2);
        let (largest, separated) = self.tree.deepest(version);
        let level_1_max = self.level_1_max(separated);
        let at = |level: usize| (level..last).fold(largest, |bytes, _| bytes / multiplier);
        let mut base = (1..=last).find(|&level| !version.files(level).is_empty()).unwrap_or(last);
        let grown = |base: usize| match base == last {
            true => largest > level_1_max,
            false => at(base + 1) > level_1_max.saturating_mul(self.growth_max()),
        };
        while base > 1 && grown(base) {
            base -= 1;
        }
        base = set_aside.base_below(version, base);

        let level_1 = at(base).clamp(self.tree.file_bytes.min(level_1_max), level_1_max);
        let target = |level: usize| match level {
            _ if level < base => 0,
            _ if level == last => u64::MAX,
            _ if level == base => level_1,
            _ => at(level).max(level_1),
        };
        LevelTargets { base_level: base, bytes: (0..=last).map(target).collect() }
    }

    /// What level 1 holds at most.
    fn level_1_max(&self, separated: bool) -> u64 {
        let tables = self.tree.file_bytes.saturating_mul(self.factor());
        match separated {
            true => self.tree.level_base_bytes.saturating_mul(SEPARATED_BASE_FACTOR).max(tables),
            false => tables,
        }
    }

    /// How much level 0 wants to go down: from 1 on it does.
    pub(super) fn queue_score(&self, version: &Version, files: usize, bytes: u64) -> f64 {
        let by_files = files as f64 / self.tree.l0_compaction_files.max(1) as f64;
        by_files.max(2.0 * bytes as f64 / self.run_bytes(version) as f64)
    }

    /// The scores of the levels that can be compacted, highest first: at 1 and above a level wants to be.
    pub fn scores(&self, facts: &Facts<'_>) -> Vec<(usize, f64)> {
        self.scores_for(&self.picker(facts))
    }

    pub(super) fn scores_for(&self, picker: &Picker<'_>) -> Vec<(usize, f64)> {
        let mut scores = vec![(0, self.level_0_score(picker))];
        for level in picker.targets.base_level..self.tree.last_level() {
            let (_, bytes) = self.free(picker, level);
            scores.push((level, bytes as f64 / picker.targets.bytes[level] as f64));
        }
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores
    }

    pub(super) fn level_0_score(&self, picker: &Picker<'_>) -> f64 {
        let (files, bytes) = self.free(picker, 0);
        self.queue_score(picker.facts.version, files, bytes)
    }

    /// Files that are not on their way down, nor have to stay in level 0, and what they stand for.
    fn free(&self, picker: &Picker<'_>, level: usize) -> (usize, u64) {
        let is_free =
            |f: &&Arc<FileMeta>| !picker.facts.busy.has_file(f.number) && !picker.held.contains(&f.number);
        let free = picker.facts.version.files(level).iter().filter(is_free);
        free.fold((0, 0u64), |(files, sum), f| (files + 1, sum.saturating_add(self.tree.size_of(f))))
    }
}
