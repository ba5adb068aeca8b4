//! Leveled compaction, in RocksDB's shape (Dong et al., "Optimizing Space Amplification in
//! RocksDB", CIDR 2017). Level 0 collects flushed files, and the deepest level holds most of the
//! data. The targets of the levels between follow from the size of the deepest one, so the levels
//! above it hold about a ninth of its bytes at any store size. Level 0 is compacted into the *base
//! level*, the first one that has a target.
//!
//! Levels with a score of at least 1 are tried, the highest score first.
//!
//! * [`parameters`]: the parameters of the policy.
//! * [`targets`]: level targets, and scores as the distance from them.
//! * `picker`: chooses the files.

pub mod parameters;
pub(super) mod picker;
pub mod targets;

use super::compaction::Compaction;
use super::contract::{CompactionPolicy, L0Load};
use super::cutter::Cutter;
use super::facts::{PickInputs, SingleFileCompactions};
use super::set_aside::SetAside;
use super::sink;
use crate::OutputCutter;
use parameters::Leveled;
use picker::Picker;
use version::Version;

impl CompactionPolicy for Leveled {
    fn l0(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        if let Some(compaction) = sink::sink(facts, self.last_level()) {
            return Some(compaction);
        }
        let picker = Picker::new(self, *facts);
        let scores = self.scores_for(facts, &picker.targets);
        let wanted = scores.iter().any(|(level, score)| *level == 0 && *score >= 1.0);
        if wanted { picker.level_0() } else { picker.held_within_l0() }
    }

    fn levels(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        if let Some(compaction) = sink::sink(facts, self.last_level()) {
            return Some(compaction);
        }
        let picker = Picker::new(self, *facts);
        let mut l0_waits = false;
        for (level, score) in self.scores_for(facts, &picker.targets) {
            if score < 1.0 {
                break;
            }
            // While level 0 waits for the base level, no other compaction that occupies the base
            // level may start; otherwise level 0 starves.
            if level == 0 {
                match picker.level_0() {
                    Some(compaction) => return Some(compaction),
                    None => l0_waits = true,
                }
            } else if !(l0_waits && level == picker.targets.base_level)
                && let Some(compaction) = picker.level(level)
            {
                return Some(compaction);
            }
        }
        picker.held_within_l0()
    }

    fn moves<'a>(&'a self, facts: &PickInputs<'a>) -> Box<dyn SingleFileCompactions + 'a> {
        Box::new(Picker::new(self, *facts))
    }

    fn cutter(&self, compaction: &Compaction, version: &Version) -> Box<dyn OutputCutter + Send> {
        Box::new(Cutter::new(compaction, version))
    }

    fn width_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let base = self.level_targets(version, set_aside).base_level;
        let level_0 = version.level_bytes(0).saturating_add(version.level_bytes(base));
        let deeper = (1..=self.last_level()).filter(|&level| !version.files(level).is_empty());
        let below = deeper.map(|level| self.width_of(version, level).min(version.level_bytes(level)));
        let all = version.levels.iter().fold(0, |sum: u64, level| sum.saturating_add(level.bytes()));
        below.max().unwrap_or(0).max(level_0).min(all)
    }

    fn l0_load(&self, version: &Version, set_aside: &SetAside) -> L0Load {
        let (files, bytes) = self.l0_load_of(version, set_aside);
        L0Load { files, bytes }
    }

    fn chain_len(&self, facts: &PickInputs<'_>, level: usize) -> usize {
        let targets = self.level_targets(facts.version, facts.set_aside);
        self.due_in_a_row(&targets, &self.scores_for(facts, &targets), level)
    }

    fn l0_wants_compaction(&self, version: &Version, set_aside: &SetAside) -> bool {
        self.l0_wants(version, set_aside, &self.level_targets(version, set_aside))
    }

    fn excess_below_l0_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        self.excess_over(version, &self.level_targets(version, set_aside))
    }
}
