//! The logs that have an applier, which is one at a time ([`crate::applying`]).

use crate::entry::LogId;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Appliers {
    /// Guards which logs have an applier.
    applied: Mutex<BTreeSet<LogId>, rank::RecordAppliers>,
}

impl Appliers {
    /// Gives a log its applier. False if it has one.
    pub fn enter(&self, log: LogId) -> bool {
        lock(&self.applied).insert(log)
    }

    /// The applier of a log has gone.
    pub fn leave(&self, log: LogId) {
        lock(&self.applied).remove(&log);
    }
}
