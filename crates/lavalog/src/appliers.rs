//! The set of logs with an applier ([`crate::applying`]).

use crate::entry::LogId;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct Appliers {
    /// Guards the set.
    applied: Mutex<BTreeSet<LogId>, rank::RecordAppliers>,
}

impl Appliers {
    /// Claims a log. Returns false if the log has an applier.
    pub fn enter(&self, log: LogId) -> bool {
        lock(&self.applied).insert(log)
    }

    /// Releases a log.
    pub fn leave(&self, log: LogId) {
        lock(&self.applied).remove(&log);
    }
}
