//! Pending removals: logs whose trimmed, truncated or deleted records are still in the index or the
//! ledger.
//!
//! A removal takes effect when it is applied. Its records leave the index and the ledger in steps,
//! one log at a time ([`super::live`]). So no step holds the lock of all logs for long.

use super::{Log, Registry};
use crate::entry::{LogId, Lsn};
use crate::ledger::Ledger;
use std::collections::BTreeSet;

/// Pending removals.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts {
    /// Trimmed or truncated logs; some may have been deleted since.
    logs: BTreeSet<LogId>,
    /// Deleted logs, which the registry no longer has.
    deleted: Vec<Log>,
}

impl Cuts {
    pub fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.logs.is_empty()
    }

    /// Adds a trimmed or truncated log with dead records left in the index.
    pub fn add(&mut self, id: LogId) {
        self.logs.insert(id);
    }

    /// Adds a deleted log. A deletion acts as a trim of all records.
    pub fn delete(&mut self, mut log: Box<Log>, ledger: &mut Ledger) {
        if log.trim(Lsn::MAX, ledger) {
            self.deleted.push(*log);
        }
    }

    /// Performs one step of the removal.
    pub fn cut_some(&mut self, registry: &mut Registry, ledger: &mut Ledger) {
        if let Some(log) = self.deleted.last_mut() {
            if !log.live_mut().cut_some(ledger) {
                self.deleted.pop();
            }
        } else if let Some(id) = self.logs.first().copied() {
            let log = registry.get_mut(id);
            if !log.is_some_and(|log| log.live_mut().cut_some(ledger)) {
                self.logs.remove(&id);
            }
        }
    }
}
