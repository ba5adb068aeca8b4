//! Which families have changes that are in no table: kept as sets, so that nothing looks at all families for them.
//!
//! A family is in `active` from before the first insert into its active memtable until after that memtable is frozen, both under the
//! writer's lock. It is in `frozen` as long as its read state has frozen memtables: that set is changed under the lock under which readers get
//! to see the change. A rotation puts it into `frozen` before it leaves `active`, and both are read under one lock. So a family with a
//! change that is visible and in no table is in one of them whenever they are read.

use base::sync::model::{Mutex, lock};
use base::sync::rank;
use std::collections::BTreeSet;
use version::FamilyId;

#[derive(Debug, Default)]
struct Sets {
    active: BTreeSet<FamilyId>,
    frozen: BTreeSet<FamilyId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FamilyWork(Mutex<Sets, rank::FamilyWork>);

impl FamilyWork {
    /// The active memtable of a family is about to get changes.
    pub fn changes(&self, id: FamilyId) {
        lock(&self.0).active.insert(id);
    }

    /// The active memtable of a family has none: it was frozen.
    pub fn is_unchanged(&self, id: FamilyId) {
        lock(&self.0).active.remove(&id);
    }

    /// A family has frozen memtables, or has none any more.
    pub fn set_frozen(&self, id: FamilyId, is_frozen: bool) {
        let mut sets = lock(&self.0);
        if is_frozen {
            sets.frozen.insert(id);
        } else {
            sets.frozen.remove(&id);
        }
    }

    /// A family is there no more.
    pub fn leave(&self, id: FamilyId) {
        let mut sets = lock(&self.0);
        sets.active.remove(&id);
        sets.frozen.remove(&id);
    }

    /// The families with frozen memtables, by id.
    pub fn frozen(&self) -> Vec<FamilyId> {
        lock(&self.0).frozen.iter().copied().collect()
    }

    /// True if a family has frozen memtables.
    pub fn has_frozen(&self) -> bool {
        !lock(&self.0).frozen.is_empty()
    }

    /// The families with changes in memtables, by id. Some may have none any more.
    pub fn unflushed(&self) -> Vec<FamilyId> {
        let sets = lock(&self.0);
        sets.active.union(&sets.frozen).copied().collect()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
