//! Level targets, and scores as the distance from them.
//!
//! **Targets.** The deepest level has none. Each level above it, up to level 2, has the target of
//! the next one divided by `level_multiplier`. Level 1 holds f tables of size M, and at most a
//! sixth of the deepest level. The larger level 1 is, the less level 2 is written for it. In a
//! store of more than 6 f tables it is small: all data above the deepest level is about a ninth of
//! it plus f tables (but no level is below M). If level 2 would exceed F times the maximum of level
//! 1, a level is added above. A store that fits into level 1 has one level. A level in use stays in
//! use, when a store shrinks, or comes from `leveled` with more levels than it would have here.
//! Newer data must not overtake a level that is being drained, so level 0 would have to wait for
//! the drain.
//!
//! With separated values level 1 may be as large as in
//! [`leveled`](crate::policy::leveled::targets). But its tables, which are short, must not exceed f
//! times M on disk. Also, level 1 must not exceed level 2 divided by `level_multiplier`: otherwise
//! it would hide too much garbage.
//!
//! **A run** is the data that level 1 sends down at once: M, or an f-th of level 1 if that is
//! larger, so that a merge writes at most f bytes for each of its own. The second case occurs with
//! separated values. Then a run is also large enough for a table that is worth a file, but at most
//! a fifth of the store, for which writers would be throttled. In that case level 0 also sends down
//! one run at once, as soon as it has half of one, or q tables, as elsewhere. (A memtable of M
//! makes a table that is a little shorter.)
//!
//! **Scores** are bytes divided by the target, as in `leveled`; `queue` computes the score of level
//! 0.

use super::parameters::Vlsm;
use super::queue::Queue;
use crate::policy::facts::PickInputs;
use crate::policy::leveled::picker::Picker;
use crate::policy::leveled::targets::{LevelTargets, SEPARATED_BASE_FACTOR, SEPARATED_L0_PART};
use crate::policy::set_aside::SetAside;
use std::ops::RangeInclusive;
use version::Version;

/// Level 1 is at most one part in `LEVEL_1_PART` of the deepest level.
const LEVEL_1_PART: u64 = 6;

impl Vlsm {
    /// Returns the targets of the levels of `version`.
    pub fn level_targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        let last = self.tree.last_level();
        let multiplier = self.tree.level_multiplier.max(2);
        let (largest, separated) = self.tree.deepest(version);
        let level_1_max = self.level_1_max(version, separated);
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

        let part = if separated { at(base) } else { at(base).max(largest / LEVEL_1_PART) };
        let level_1 = part.clamp(self.tree.file_bytes.min(level_1_max), level_1_max);
        let target = |level: usize| match level {
            _ if level < base => 0,
            _ if level == last => u64::MAX,
            _ if level == base => level_1,
            _ => at(level).max(level_1),
        };
        LevelTargets { base_level: base, bytes: (0..=last).map(target).collect() }
    }

    /// Returns the maximum size of level 1.
    fn level_1_max(&self, version: &Version, separated: bool) -> u64 {
        let tables = self.tree.file_bytes.saturating_mul(self.factor());
        if !separated {
            return tables;
        }
        let most = self.tree.level_base_bytes.saturating_mul(SEPARATED_BASE_FACTOR);
        self.stands_for(version, 1..=self.tree.last_level(), tables).min(most).max(tables)
    }

    /// Converts physical bytes of tables to compensated bytes, by the ratio of these levels.
    fn stands_for(&self, version: &Version, levels: RangeInclusive<usize>, bytes: u64) -> u64 {
        let sum = |of: &dyn Fn(usize) -> u64| levels.clone().map(|level| u128::from(of(level))).sum::<u128>();
        let tables = sum(&|level| version.level_bytes(level)).max(1);
        let all = sum(&|level| self.tree.level_size(version, level));
        u64::try_from(u128::from(bytes) * all / tables).unwrap_or(u64::MAX)
    }

    /// Returns the size of a run, in compensated bytes.
    pub(super) fn run_bytes(&self, version: &Version, targets: &LevelTargets) -> u64 {
        let base = targets.base_level;
        let level_1 = self.tree.level_size(version, base).min(targets.bytes[base]);
        let fifth = self.tree.deepest(version).0 / SEPARATED_L0_PART;
        let worth_a_file = self.stands_for(version, 0..=0, self.least_bytes());
        self.tree.file_bytes.max(level_1 / self.factor()).max(worth_a_file.min(fifth))
    }

    /// Returns the scores of the levels that can be compacted, highest first. A level with a score
    /// of at least 1 is due.
    pub fn scores(&self, facts: &PickInputs<'_>) -> Vec<(usize, f64)> {
        self.scores_for(&self.picker(facts))
    }

    pub(super) fn scores_for(&self, picker: &Picker<'_>) -> Vec<(usize, f64)> {
        let mut scores = vec![(0, Queue::of(self, picker).score())];
        for level in picker.targets.base_level..self.tree.last_level() {
            let bytes = self.free_bytes(picker, level);
            scores.push((level, bytes as f64 / picker.targets.bytes[level] as f64));
        }
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores
    }

    /// Returns the size of the tables that are not on their way down.
    fn free_bytes(&self, picker: &Picker<'_>, level: usize) -> u64 {
        let files = picker.facts.version.files(level).iter();
        let free = files.filter(|f| !picker.facts.busy.has_file(f.number));
        free.fold(0, |sum: u64, f| sum.saturating_add(self.tree.size_of(f)))
    }
}
