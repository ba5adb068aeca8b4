//! Which groups of a node are in use. A group has one log storage and one state machine at a time: two would each take the other's
//! entries for their own.

use base::sync::{Mutex, lock, rank};
use lavastore::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The groups of a node that are in use, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Guards the names.
    names: Arc<Mutex<BTreeSet<String>, rank::Outside>>,
}

/// That a group is in use: as long as this lives.
#[derive(Debug)]
pub(crate) struct InUse {
    groups: Groups,
    name: String,
}

impl Groups {
    /// Enters a group. Refused if it is in use: its log storage, its state machine or a snapshot in the making is still there.
    pub fn enter(&self, name: &str) -> Result<Arc<InUse>> {
        if !lock(&self.names).insert(name.to_owned()) {
            let why = format!(
                "the Raft group {name:?} is in use: its log storage or its state machine is there still"
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
