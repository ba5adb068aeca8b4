//! The families with work: with unflushed changes, or with a tree that may need a job. They are kept
//! as sets, so that no decision walks over all families.
//!
//! A family is in `active` from before the first insert into its active memtable until that
//! memtable is frozen, both under the writer's lock. It is in `frozen` while its read state has
//! frozen memtables; that set is changed under the lock that publishes the read state. A rotation
//! adds the family to `frozen` before it removes it from `active`, and both sets are read under one
//! lock. So a family with a visible and unflushed change is always in one of them.
//!
//! A family is *settled* while no compaction, collection or survey of its tree can be due in a store
//! that is busy and has space ([`ReadState::settled`](super::family::ReadState::settled)). The others
//! are in `unsettled`, which is changed under the lock that publishes the read state. A settled family
//! whose iterators pass many tombstones is in `passed` as well. Of the settled families only the sum of
//! their tree sizes takes part in decisions.

use base::sync::model::{Mutex, lock};
use base::sync::rank;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, SubAssign};
use version::FamilyId;

/// Tree sizes of a settled family: the inputs of equation 4 of Scavenger+, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledTree {
    /// Bytes of the last level.
    pub last_bytes: u64,
    /// Bytes over the ideal size.
    pub excess_bytes: u64,
}

impl AddAssign for SettledTree {
    fn add_assign(&mut self, tree: SettledTree) {
        self.last_bytes += tree.last_bytes;
        self.excess_bytes += tree.excess_bytes;
    }
}

impl SubAssign for SettledTree {
    fn sub_assign(&mut self, tree: SettledTree) {
        self.last_bytes -= tree.last_bytes;
        self.excess_bytes -= tree.excess_bytes;
    }
}

#[derive(Debug, Default)]
struct Sets {
    active: BTreeSet<FamilyId>,
    frozen: BTreeSet<FamilyId>,
    unsettled: BTreeSet<FamilyId>,
    passed: BTreeSet<FamilyId>,
    settled: BTreeMap<FamilyId, SettledTree>,
    /// Sum over `settled`.
    sum: SettledTree,
}

impl Sets {
    /// Returns whether the family was there.
    fn forget_tree(&mut self, id: FamilyId) -> bool {
        if let Some(tree) = self.settled.remove(&id) {
            self.sum -= tree;
            return true;
        }
        self.unsettled.remove(&id)
    }

    fn add_tree(&mut self, id: FamilyId, settled: Option<SettledTree>) {
        let Some(tree) = settled else {
            self.unsettled.insert(id);
            return;
        };
        self.sum += tree;
        self.settled.insert(id, tree);
    }
}

/// The families with work: see the module.
#[derive(Debug, Default)]
pub(crate) struct FamilyWork(Mutex<Sets, rank::FamilyWork>);

impl FamilyWork {
    /// Announces changes in the active memtable of a family.
    pub fn changes(&self, id: FamilyId) {
        lock(&self.0).active.insert(id);
    }

    /// Records that the active memtable of a family is empty, since the previous one was frozen.
    pub fn is_unchanged(&self, id: FamilyId) {
        lock(&self.0).active.remove(&id);
    }

    /// Records whether a family has frozen memtables.
    pub fn set_frozen(&self, id: FamilyId, is_frozen: bool) {
        let mut sets = lock(&self.0);
        if is_frozen {
            sets.frozen.insert(id);
        } else {
            sets.frozen.remove(&id);
        }
    }

    /// Removes a family.
    pub fn leave(&self, id: FamilyId) {
        let mut sets = lock(&self.0);
        sets.active.remove(&id);
        sets.frozen.remove(&id);
        sets.passed.remove(&id);
        sets.forget_tree(id);
    }

    /// Adds the tree of a family. `None`: it is not settled.
    pub fn join_tree(&self, id: FamilyId, settled: Option<SettledTree>) {
        let mut sets = lock(&self.0);
        sets.forget_tree(id);
        sets.add_tree(id, settled);
    }

    /// Replaces the tree of a family, unless the family has left.
    pub fn change_tree(&self, id: FamilyId, settled: Option<SettledTree>) {
        let mut sets = lock(&self.0);
        if sets.forget_tree(id) {
            sets.add_tree(id, settled);
        }
    }

    /// Records whether iterators have passed enough tombstones of a family for a compaction.
    pub fn set_passed(&self, id: FamilyId, is_passed: bool) {
        let mut sets = lock(&self.0);
        if is_passed {
            sets.passed.insert(id);
        } else {
            sets.passed.remove(&id);
        }
    }

    /// Returns the families with frozen memtables or a tree that may need a job, by id, and the sum of
    /// the trees of all other families.
    pub fn with_work(&self) -> (Vec<FamilyId>, SettledTree) {
        let sets = lock(&self.0);
        let mut ids: Vec<FamilyId> =
            sets.unsettled.iter().chain(&sets.frozen).chain(&sets.passed).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut others = sets.sum;
        ids.iter().filter_map(|id| sets.settled.get(id)).for_each(|tree| others -= *tree);
        (ids, others)
    }

    /// Returns the families with frozen memtables, by id.
    pub fn frozen(&self) -> Vec<FamilyId> {
        lock(&self.0).frozen.iter().copied().collect()
    }

    /// True if a family has frozen memtables.
    pub fn has_frozen(&self) -> bool {
        !lock(&self.0).frozen.is_empty()
    }

    /// Returns the families with changes in memtables, by id. Some of them may have been flushed
    /// meanwhile.
    pub fn unflushed(&self) -> Vec<FamilyId> {
        let sets = lock(&self.0);
        sets.active.union(&sets.frozen).copied().collect()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
