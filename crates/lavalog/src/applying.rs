//! Exclusive right to apply a log to a state machine.
//!
//! An applied state stores the position up to which it reflects the log. Two concurrent appliers
//! would read the same position and each write the following state. Then a record could be applied
//! twice, or the position could fall behind the applied state. So an applier claims the log, and a
//! second one is refused until the first is dropped.

use crate::core::Core;
use crate::entry::LogId;
use crate::log_store::LogHandle;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The exclusive right to apply a log, released on drop.
#[derive(Debug)]
#[must_use = "the log is let go when it is dropped"]
pub struct Applying {
    core: Arc<Core>,
    log: LogId,
}

impl LogHandle {
    /// Claims the exclusive right to apply the log.
    ///
    /// # Errors
    /// `Locked` if the log has an applier; `NotFound` if the log was deleted.
    pub fn applying(&self) -> Result<Applying> {
        let (core, log, name) = (self.store().core(), self.id(), self.name()?);
        if !core.appliers.enter(log) {
            let why =
                format!("log {name} already has an applier, and takes one at a time: drop that one first");
            return Err(Error::new(ErrorKind::Locked, why));
        }
        Ok(Applying { core: core.clone(), log })
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        self.core.appliers.leave(self.log);
    }
}
