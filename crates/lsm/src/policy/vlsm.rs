//! vLSM: short compaction chains (Xanthakis et al., "vLSM: Low tail latency and I/O amplification
//! in LSM-based KV stores"). Before the next memtable finds space, a chain of jobs must run: level
//! 0 into level 1, level 1 into level 2, and so on. Leveled compaction makes the first job wide,
//! because it merges all of level 0 at once. vLSM differs in these points:
//!
//! * **Level 0 is a queue in columns** (`queue`, [`columns`]). Flushes are cut at keys, and the
//!   tables between two cuts go down by themselves, with the part of level 1 that they overlap.
//! * **Level 1 is small**, with small tables. Level 2 may be `growth_max` times as large, so that
//!   the tree needs no more levels than a leveled one ([`targets`]).
//! * **Overlap decides where tables of level 1 end** ([`cutter`]), so that some of them are cheap
//!   to merge although the next level is so much larger.
//! * **Spills from level 1** take the tables that free the most for their overlap (`spill`).
//!
//! "Level 1" and "level 2" are the first two levels in use below level 0, wherever they lie. As in
//! `leveled`, the deepest level is always the last, and a level is added above. Below level 2 both
//! policies are the same, and they share the compactions that only move or rewrite single files.
//! The picker of `leveled` builds all of them, with other targets.
//!
//! **Turns** (`chain`). Level 0 into level 1 takes nearly all tables of level 1, and level 1 into
//! level 2 takes some of them. Each claims tables that the other needs, so the one that is always
//! tried first would starve the other. Therefore a level over its bound has its turn before the
//! levels above it, and then each of those adds at most one run. During the turn of a level no
//! compaction above it begins, and running ones end.
//!
//! **Bounds**, shown by `simulation`: level 1 holds its target plus q tables for each thread. A job
//! between level 1 and level 2 reads one run and the maximum overlap of a table ([`cutter`]).

mod chain;
pub mod columns;
pub mod cutter;
pub mod parameters;
mod queue;
mod spill;
pub mod targets;

use super::compaction::{Compaction, Reason};
use super::contract::{CompactionPolicy, L0Load};
use super::cutter::Cutter;
use super::facts::{PickInputs, SingleFileCompactions};
use super::in_progress::InProgress;
use super::leveled::picker::Picker;
use super::set_aside::SetAside;
use super::sink;
use crate::OutputCutter;
use base::HashSet;
use columns::ColumnCutter;
use cutter::OverlapCutter;
use parameters::Vlsm;
use queue::Queue;
use version::{FileMeta, Version};

impl Vlsm {
    fn picker<'a>(&'a self, facts: &PickInputs<'a>) -> Picker<'a> {
        let targets = self.level_targets(facts.version, facts.set_aside);
        Picker::with_targets(&self.tree, *facts, targets)
    }

    /// Returns true if the outputs go to level 1, and a level 2 exists.
    fn ends_by_overlap(compaction: &Compaction, version: &Version) -> bool {
        let output = compaction.output_level;
        let is_first = output > 0 && (1..output).all(|level| version.files(level).is_empty());
        is_first && !version.files(output + 1).is_empty()
    }

    /// Returns the files that must stay in level 0.
    fn held(&self, version: &Version, set_aside: &SetAside) -> HashSet<u64> {
        match set_aside.is_empty() {
            true => HashSet::default(),
            false => set_aside.held(version, self.level_targets(version, set_aside).base_level),
        }
    }

    /// Returns the physical bytes of each column that is due.
    fn due(&self, version: &Version, set_aside: &SetAside) -> impl Iterator<Item = u64> {
        let targets = self.level_targets(version, set_aside);
        let held = set_aside.held(version, targets.base_level);
        let queue = Queue::new(self, version, &targets, &held, &InProgress::default());
        queue.due_bytes().collect::<Vec<u64>>().into_iter()
    }
}

impl CompactionPolicy for Vlsm {
    /// Includes the compactions of deeper levels for which level 0 waits.
    fn l0(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        if let Some(compaction) = sink::sink(facts, self.tree.last_level()) {
            return Some(compaction);
        }
        let picker = self.picker(facts);
        let wanted = Queue::of(self, &picker).score() >= 1.0;
        let next = if wanted { self.chain(&picker) } else { None };
        next.or_else(|| picker.held_within_l0())
    }

    fn levels(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        if let Some(compaction) = sink::sink(facts, self.tree.last_level()) {
            return Some(compaction);
        }
        let picker = self.picker(facts);
        let deeper = || {
            let wanted = self.scores_for(&picker).into_iter().take_while(|(_, score)| *score >= 1.0);
            let below = wanted.filter(|(level, _)| *level > picker.targets.base_level);
            below.into_iter().find_map(|(level, _)| picker.level(level))
        };
        self.chain(&picker).or_else(deeper).or_else(|| picker.held_within_l0())
    }

    fn moves<'a>(&'a self, facts: &PickInputs<'a>) -> Box<dyn SingleFileCompactions + 'a> {
        Box::new(self.picker(facts))
    }

    fn cutter(&self, compaction: &Compaction, version: &Version) -> Box<dyn OutputCutter + Send> {
        match compaction.reason != Reason::Cut && Vlsm::ends_by_overlap(compaction, version) {
            true => Box::new(OverlapCutter::new(self, compaction, version)),
            false => Box::new(Cutter::new(compaction, version)),
        }
    }

    /// If there are unreadable tables, level 0 merges the files that they hold there: whole flushes
    /// are cheaper to merge.
    fn flush_cutter(&self, version: &Version, set_aside: &SetAside) -> Option<Box<dyn OutputCutter + Send>> {
        let cutter = ColumnCutter::new(self, version).filter(|_| set_aside.is_empty());
        cutter.map(|cutter| Box::new(cutter) as _)
    }

    fn width_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let targets = self.level_targets(version, set_aside);
        let base = targets.base_level;
        // One run is enough to proceed, but shared picks and picks for space take all of level 0.
        let level_0 = version.level_bytes(0).saturating_add(version.level_bytes(base));
        let level_1 = self.spill_width(version, &targets);
        let deeper = (base + 2..=self.tree.last_level()).filter(|&level| !version.files(level).is_empty());
        let below = deeper.map(|level| self.tree.width_of(version, level).min(version.level_bytes(level)));
        let all = version.levels.iter().fold(0, |sum: u64, level| sum.saturating_add(level.bytes()));
        below.max().unwrap_or(0).max(level_0).max(level_1).min(all)
    }

    fn l0_load(&self, version: &Version, set_aside: &SetAside) -> L0Load {
        let held = self.held(version, set_aside);
        let bytes = version.files(0).iter().filter(|f| !held.contains(&f.number)).map(|f| f.len);
        L0Load { files: columns::depth(version, &held), bytes: bytes.fold(0, u64::saturating_add) }
    }

    fn l0_wants_compaction(&self, version: &Version, set_aside: &SetAside) -> bool {
        self.due(version, set_aside).next().is_some()
    }

    /// Of level 0, counts the columns that are due.
    fn excess_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let below = self.excess_below_l0_bytes(version, set_aside);
        self.due(version, set_aside).fold(below, |sum, bytes| sum.saturating_add(bytes))
    }

    fn chain_len(&self, facts: &PickInputs<'_>, level: usize) -> usize {
        let picker = self.picker(facts);
        self.tree.due_in_a_row(&picker.targets, &self.scores_for(&picker), level)
    }

    fn good_tables(&self, compaction: &Compaction, version: &Version, outputs: &[FileMeta]) -> Option<usize> {
        let good = |file: &&FileMeta| self.is_good(version, compaction.output_level, file);
        Vlsm::ends_by_overlap(compaction, version).then(|| outputs.iter().filter(good).count())
    }

    fn excess_below_l0_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        self.tree.excess_over(version, &self.level_targets(version, set_aside))
    }
}
