//! The write path: admission, commit, memtables.
//!
//! * [`commit`]: the order of sequence, log append, insert, publication and durability. Start here.
//! * [`admission`]: the rate of writes, the room that they need, and their waits.
//! * [`memtables`]: inserts in flight, visibility, and rotation.
//! * `conditions`: those of a write of a transaction. `validation`: keys that it has read are
//!   unchanged. `row_locks`: it has locked rows.
//! * `operands`: the checks of merge operands.
//! * `large_value`: values in files of their own, written before the log. `pending_write`: writes
//!   that no thread waits for. `fate`: the errors of writes of unknown fate.

pub(crate) mod admission;
pub(crate) mod commit;
pub(crate) mod conditions;
pub(crate) mod fate;
pub(crate) mod large_value;
pub(crate) mod memtables;
pub(crate) mod operands;
pub(crate) mod pending_write;
pub(crate) mod row_locks;
pub(crate) mod validation;

use crate::context::Context;
use crate::context::drain::DrainRates;
use crate::files::KvFiles;
use crate::files::log::Log;
use crate::large::Large;
use crate::tree::Tree;
use admission::Admission;
use base::{Error, Result};
use memtables::Memtables;
use row_locks::RowLocks;
use std::sync::Arc;
use store::format::Feature;
use store::space::SpaceBudget;

/// The components of the write path.
pub(crate) struct WritePath {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<KvFiles>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub large: Arc<Large>,
    pub memtables: Arc<Memtables>,
    pub admission: Admission,
    pub row_locks: Arc<RowLocks>,
}

impl WritePath {
    pub fn new(tree: &Arc<Tree>, log: &Arc<Log>, large: &Arc<Large>, drain: &Arc<DrainRates>) -> WritePath {
        let memtables = Arc::new(Memtables::new(tree, log, large));
        let row_locks = Arc::new(RowLocks::new(&tree.context));
        WritePath {
            context: tree.context.clone(),
            space: tree.space.clone(),
            files: tree.files.clone(),
            tree: tree.clone(),
            log: log.clone(),
            large: large.clone(),
            admission: Admission::new(tree, log, drain, &memtables, &row_locks),
            row_locks,
            memtables,
        }
    }

    /// Refuses an empty key where the format of the store has none: an earlier release could not
    /// open the store.
    pub fn check_empty_key(&self) -> Result<()> {
        let format = self.files.format();
        if format.allows(Feature::EmptyKeys) {
            return Ok(());
        }
        let needed = Feature::EmptyKeys.since();
        Err(Error::invalid(format!(
            "empty key: the store has format {format}, and empty keys need format {needed}: raise it with 'lava upgrade' or \
             Db::upgrade"
        )))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
