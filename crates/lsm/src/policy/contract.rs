//! The interface between the engine and a compaction policy.
//!
//! A policy decides which files to compact, and into which outputs. The engine decides when to run
//! a compaction, how many to run at once, and whether there is space. Each answer is a pure
//! function of the policy's parameters and the arguments, so that a plan can be computed again, and
//! simulations replay. A policy has no mutable state. It is called under the lock that guards the
//! in-progress set, so the version should carry any statistics that the policy needs repeatedly.
//!
//! Every policy must preserve the order of the tree, whatever its shape. Below level 0 the tables
//! of a level are disjoint. A newer entry of a key never lies below an older one. A compaction
//! takes every table of its output level within its range.
//! [`InProgress::allows`](super::InProgress::allows) rejects a compaction that would break this
//! while others run, and the manifest rejects an edit that breaks it.

use super::compaction::Compaction;
use super::facts::{PickInputs, SingleFileCompactions};
use super::for_space::RequiredBenefit;
use super::manual::{ManualRange, ManualStep};
use super::overlap_stats::OverlapStats;
use super::relocation::{Relocation, RelocationStep};
use super::rest::RestRequest;
use super::set_aside::SetAside;
use super::{exposing, for_space, quiet, rest};
use crate::OutputCutter;
use std::fmt::Debug;
use version::{FileMeta, Version};

/// Load of level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L0Load {
    /// Number of files.
    pub files: usize,
    /// Physical bytes.
    pub bytes: u64,
}

/// A compaction policy: decides how the tables of a family are compacted. See the module.
pub trait CompactionPolicy: Debug + Send + Sync {
    /// Returns the next urgent compaction: of level 0, because level 0 holds up flushes. It gets a
    /// thread even if no other compaction does.
    fn l0(&self, facts: &PickInputs<'_>) -> Option<Compaction>;

    /// Returns the next compaction of any level, level 0 included, that may run beside the running
    /// ones.
    fn levels(&self, facts: &PickInputs<'_>) -> Option<Compaction>;

    /// Returns the single compactions that the policy can make. The default methods below choose
    /// among them.
    fn moves<'a>(&'a self, facts: &PickInputs<'a>) -> Box<dyn SingleFileCompactions + 'a>;

    /// Returns the cutter for the outputs of a compaction; `version` is the one from which it was
    /// picked. If the policy of the family changed between pick and start, the new policy is
    /// called.
    fn cutter(&self, compaction: &Compaction, version: &Version) -> Box<dyn OutputCutter + Send>;

    /// Returns the cutter for the tables of a flush; `version` is the one at its start. `None`: the
    /// flush writes one table.
    fn flush_cutter(
        &self,
        _version: &Version,
        _set_aside: &SetAside,
    ) -> Option<Box<dyn OutputCutter + Send>> {
        None
    }

    /// Returns the physical bytes read by the widest compaction that must be possible so that all
    /// data eventually reaches its level. The engine reserves that much space for one compaction.
    fn width_bytes(&self, version: &Version, set_aside: &SetAside) -> u64;

    /// Returns the load of level 0, by which writers are throttled and stopped. Files held in level
    /// 0 by an unreadable table do not count.
    fn l0_load(&self, version: &Version, set_aside: &SetAside) -> L0Load;

    /// Returns true if level 0 is due for compaction. While it is not, no caller may wait for level
    /// 0 to shrink.
    fn l0_wants_compaction(&self, version: &Version, set_aside: &SetAside) -> bool;

    /// Returns the bytes over target, in physical bytes: all of level 0 once it is due, and the
    /// excess of the other levels. Every compaction that the policy picks changes this number, and
    /// none does if it is 0. Writers are throttled by it: [`L0Load`] measures level 0, and this
    /// number measures the debt of all levels.
    fn excess_bytes(&self, version: &Version, set_aside: &SetAside) -> u64 {
        let level_0 = match self.l0_wants_compaction(version, set_aside) {
            true => self.l0_load(version, set_aside).bytes,
            false => 0,
        };
        level_0.saturating_add(self.excess_below_l0_bytes(version, set_aside))
    }

    /// Returns the bytes over target below level 0; 0 for a policy without targets there.
    fn excess_below_l0_bytes(&self, _version: &Version, _set_aside: &SetAside) -> u64 {
        0
    }

    /// Returns the number of compactions due in a row, starting with one of `level`: that one, one
    /// of the level below if that is over its target as well, and so on. Used only for reporting.
    fn chain_len(&self, _facts: &PickInputs<'_>, _level: usize) -> usize {
        1
    }

    /// Returns how many of these outputs overlap no more of the next level than the policy wants.
    /// Returns `None` if the policy has no such bound. Used only for reporting.
    fn good_tables(
        &self,
        _compaction: &Compaction,
        _version: &Version,
        _outputs: &[FileMeta],
    ) -> Option<usize> {
        None
    }

    /// Returns the compaction that is likely to free the most bytes for each byte written, when
    /// space is short. If there is none, returns a rewrite of a table in the deepest level for
    /// which `released` is true: it may hold versions kept for a dropped snapshot.
    fn for_space(
        &self,
        facts: &PickInputs<'_>,
        need: RequiredBenefit,
        released: &dyn Fn(u64) -> bool,
    ) -> Option<Compaction> {
        let moves = self.moves(facts);
        for_space::pick(facts, &*moves, need).or_else(|| for_space::pick_rewrite(facts, &*moves, released))
    }

    /// Returns the compaction that exposes the most garbage of separated values for each
    /// byte written, if that ratio exceeds `worth`. `met` has the overlap statistics.
    fn exposing(&self, facts: &PickInputs<'_>, met: &OverlapStats, worth: f64) -> Option<Compaction> {
        exposing::pick(facts, met, &*self.moves(facts), worth)
    }

    /// Returns the next compaction that pays off while the store is idle.
    fn quiet(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        quiet::pick(facts, &*self.moves(facts))
    }

    /// Returns the next compaction that frees deleted data, even if it writes more than it frees.
    fn rest(&self, facts: &PickInputs<'_>, request: &RestRequest<'_>) -> Option<Compaction> {
        rest::pick(facts, &*self.moves(facts), request)
    }

    /// Returns the next step of a `compact_range`. `has_released` is true for the number of a table
    /// with versions that were kept for snapshots and that no snapshot reads any more.
    fn manual(
        &self,
        facts: &PickInputs<'_>,
        walk: &mut ManualRange,
        has_released: &dyn Fn(u64) -> bool,
    ) -> ManualStep {
        walk.step(facts, &*self.moves(facts), has_released)
    }

    /// Returns the next step of a relocation, which restores the key order of values.
    fn relocation(&self, facts: &PickInputs<'_>, walk: &mut Relocation) -> RelocationStep {
        walk.step(facts, &*self.moves(facts))
    }
}
