//! What the engine asks of a compaction policy.
//!
//! A policy decides what is compacted, and with what outputs; when, how many at once and whether there is room for it is the
//! engine's. Each answer is a pure function of the policy's parameters and of what it is given: the same question has the
//! same answer, so that a plan can be asked for again, and simulations replay. A policy keeps nothing of its own between
//! questions. It is asked under the lock that guards what running jobs hold: what it needs to know of a version again and
//! again the version should carry.
//!
//! What every policy must keep, whatever the shape it gives to a tree, is the order of the tree: below level 0 the tables
//! of a level are disjoint, a newer entry of a key never lies below an older one, and a compaction takes every table of its
//! output level that lies in its range. [`InProgress::allows`](super::InProgress::allows) refuses what would break that
//! while others run, and the manifest refuses an edit that breaks it.

use super::compaction::Compaction;
use super::facts::{Facts, Moves};
use super::for_space::Need;
use super::manual::{ManualRange, ManualStep};
use super::met::Met;
use super::relocation::{Relocation, RelocationStep};
use super::rest::RestRequest;
use super::set_aside::SetAside;
use super::{exposing, for_space, quiet, rest};
use crate::OutputCutter;
use std::fmt::Debug;
use version::{FileMeta, Version};

/// What level 0 has to send down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L0Load {
    /// Files.
    pub files: usize,
    /// Physical bytes.
    pub bytes: u64,
}

/// How the tables of a family are compacted. See the module.
pub trait CompactionPolicy: Debug + Send + Sync {
    /// The next compaction that somebody should not have to wait for: of level 0, which holds up the flushes. It gets a
    /// thread when nothing else does.
    fn l0(&self, facts: &Facts<'_>) -> Option<Compaction>;

    /// The next compaction of any level, level 0 included, if any level wants one that may run beside those that do.
    fn levels(&self, facts: &Facts<'_>) -> Option<Compaction>;

    /// The single compactions it can make. By these the walks below choose, for every policy that does not say otherwise.
    fn moves<'a>(&'a self, facts: &Facts<'a>) -> Box<dyn Moves + 'a>;

    /// Decides where the outputs of a compaction end; `version` is the one it was picked from. (If the policy of the family
    /// was replaced between pick and start, the new one is asked.)
    fn cutter(&self, compaction: &Compaction, version: &Version) -> Box<dyn OutputCutter + Send>;

    /// Decides where the tables of a flush end; `version` is the one that it began with. `None`: it is one table.
    fn flush_cutter(
        &self,
        _version: &Version,
        _set_aside: &SetAside,
    ) -> Option<Box<dyn OutputCutter + Send>> {
        None
    }

    /// What the widest compaction reads that must be possible so that everything gets down in the end, physical bytes: so
    /// much room is kept for one.
    fn width_bytes(&self, version: &Version, set_aside: &SetAside) -> u64;

    /// What level 0 has to send down: writers are slowed down and stopped by that. What a table that cannot be read keeps
    /// there does not count.
    fn l0_load(&self, version: &Version, set_aside: &SetAside) -> L0Load;

    /// True if level 0 has so much that it is to go down. As long as it has not, nobody may wait for it to become smaller.
    fn l0_wants_compaction(&self, version: &Version, set_aside: &SetAside) -> bool;

    /// Physical bytes that lie higher in the tree than they should: all of level 0 once it is to go down, and what other
    /// levels have above their targets. Compactions that the policy wants change it, and nothing does if it is 0: writers
    /// are slowed down by it ([`L0Load`] says how deep level 0 is, this how far all levels are behind).
    fn excess_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let level_0 = match self.l0_wants_compaction(version, set_aside) {
            true => self.l0_load(version, set_aside).bytes,
            false => 0,
        };
        level_0.saturating_add(self.excess_below_l0_bytes(version, set_aside))
    }

    /// What of that lies below level 0; 0 for a policy that has no targets there.
    fn excess_below_l0_bytes(&self, _version: &Version, _set_aside: &SetAside) -> u64 {
        0
    }

    /// How many compactions in a row are due, from one of `level` on: that one, the one of the level below if that has too much
    /// as well, and so on. It is told of, and nothing follows from it.
    fn chain_len(&self, _facts: &Facts<'_>, _level: usize) -> usize {
        1
    }

    /// How many of these outputs of a compaction meet no more of the level below than the policy wants tables to meet; nothing where
    /// it wants nothing of that kind. It is told of, and nothing follows from it.
    fn good_tables(
        &self,
        _compaction: &Compaction,
        _version: &Version,
        _outputs: &[FileMeta],
    ) -> Option<usize> {
        None
    }

    /// The compaction that is likely to free most for what it writes, where room is short. If there is none, a table of
    /// the deepest level that is `released`: it may hold what was kept for a snapshot that is gone.
    fn for_space(&self, facts: &Facts<'_>, need: Need, released: &dyn Fn(u64) -> bool) -> Option<Compaction> {
        let moves = self.moves(facts);
        for_space::pick(facts, &*moves, need).or_else(|| for_space::pick_rewrite(facts, &*moves, released))
    }

    /// The compaction that brings most hidden garbage of separated values to light for what it writes, if that is more than `worth` times as
    /// much. `met`: what its tables meet.
    fn exposing(&self, facts: &Facts<'_>, met: &Met, worth: f64) -> Option<Compaction> {
        exposing::pick(facts, met, &*self.moves(facts), worth)
    }

    /// The next compaction that pays when nobody writes.
    fn quiet(&self, facts: &Facts<'_>) -> Option<Compaction> {
        quiet::pick(facts, &*self.moves(facts))
    }

    /// The next compaction that frees deleted data, also where it writes more than it frees.
    fn rest(&self, facts: &Facts<'_>, request: &RestRequest<'_>) -> Option<Compaction> {
        rest::pick(facts, &*self.moves(facts), request)
    }

    /// The next step of a `compact_range`. `has_released`: true for the number of a table with versions that were kept for snapshots,
    /// and that no snapshot reads any more.
    fn manual(
        &self,
        facts: &Facts<'_>,
        walk: &mut ManualRange,
        has_released: &dyn Fn(u64) -> bool,
    ) -> ManualStep {
        walk.step(facts, &*self.moves(facts), has_released)
    }

    /// The next step of a walk that puts values back into the order of their keys.
    fn relocation(&self, facts: &Facts<'_>, walk: &mut Relocation) -> RelocationStep {
        walk.step(facts, &*self.moves(facts))
    }
}
