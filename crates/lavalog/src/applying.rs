//! Who makes a state from the records of a log: one at a time.
//!
//! A state says by a position up to where the log was applied. Two who apply it at once would each read that position, and each write what
//! follows: a record could be applied twice, or the position fall behind what was applied. So who applies a log takes it, and the next
//! one is refused until that is let go.

use crate::core::Core;
use crate::entry::LogId;
use crate::log_store::LogHandle;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The right to apply a log; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the log is let go when it is dropped"]
pub struct Applying {
    core: Arc<Core>,
    log: LogId,
}

impl LogHandle {
    /// Takes the right to apply the log, which only one has.
    ///
    /// # Errors
    /// `Locked` if somebody has it; `NotFound` if the log was deleted.
    pub fn applying(&self) -> Result<Applying> {
        let (core, log, name) = (self.store().core(), self.id(), self.name()?);
        if !core.appliers.enter(log) {
            let why = format!("log {name} has an applier: there is one at a time, drop it first");
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
