//! The Raft groups in use on a node. A group has at most one log storage and one state machine at a
//! time, since each of two would overwrite the other's entries.

use base::sync::{Mutex, lock, rank};
use lavastore::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The groups in use, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Guards the names.
    names: Arc<Mutex<BTreeSet<String>, rank::Outside>>,
}

/// Registration of a group in use, removed on drop.
#[derive(Debug)]
pub(crate) struct InUse {
    groups: Groups,
    name: String,
}

impl Groups {
    /// Registers a group. Fails if its log storage, its state machine or an unfinished snapshot
    /// still exists.
    pub fn enter(&self, name: &str) -> Result<Arc<InUse>> {
        if !lock(&self.names).insert(name.to_owned()) {
            let why = format!(
                "the Raft group {name:?} is in use: drop its log storage and its state machine first"
            );
            return Err(Error::new(ErrorKind::Locked, why));
        }
        Ok(Arc::new(InUse { groups: self.clone(), name: name.to_owned() }))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        lock(&self.groups.names).remove(&self.name);
    }
}
