//! Logs of which something that was trimmed, truncated or deleted is in the index or the ledger still.
//!
//! A removal holds from the moment that it is applied. Its records leave the index and the ledger in pieces, of one log at a time,
//! so that no hold of the lock of all logs is long ([`super::live`]).

use super::{Log, Registry};
use crate::entry::{LogId, Lsn};
use crate::ledger::Ledger;
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts {
    /// The logs that were trimmed or truncated; some may be gone.
    logs: BTreeSet<LogId>,
    /// The logs that were deleted: the registry does not have them.
    deleted: Vec<Log>,
}

impl Cuts {
    pub fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.logs.is_empty()
    }

    /// A log was trimmed or truncated, and more is left than was cut at once.
    pub fn add(&mut self, id: LogId) {
        self.logs.insert(id);
    }

    /// A log was deleted: the same as a trim of everything.
    pub fn delete(&mut self, mut log: Box<Log>, ledger: &mut Ledger) {
        if log.trim(Lsn::MAX, ledger) {
            self.deleted.push(*log);
        }
    }

    /// Takes a piece out.
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
