//! The families with unflushed changes, kept as sets, so that no caller walks over all families.
//!
//! A family is in `active` from before the first insert into its active memtable until that
//! memtable is frozen, both under the writer's lock. It is in `frozen` while its read state has
//! frozen memtables; that set is changed under the lock that publishes the read state. A rotation
//! adds the family to `frozen` before it removes it from `active`, and both sets are read under one
//! lock. So a family with a visible and unflushed change is always in one of them.

use base::sync::model::{Mutex, lock};
use base::sync::rank;
use std::collections::BTreeSet;
use version::FamilyId;

#[derive(Debug, Default)]
struct Sets {
    active: BTreeSet<FamilyId>,
    frozen: BTreeSet<FamilyId>,
}

/// The families with unflushed changes: see the module.
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
