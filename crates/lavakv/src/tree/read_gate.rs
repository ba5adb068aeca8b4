//! Admission of reads.
//!
//! Successive states of a read-only store share one context, so each state has a gate of its own.

use base::Result;
use base::process::Process;
use base::sync::atomic::{AtomicBool, Ordering};
use store::context::closed;

/// Refuses reads after a close and in child processes: see the module.
#[derive(Debug)]
pub(crate) struct ReadGate {
    process: Process,
    closed: AtomicBool,
}

impl ReadGate {
    /// Creates the gate of a store that `process` opened.
    pub fn new(process: Process) -> ReadGate {
        ReadGate { process, closed: AtomicBool::new(false) }
    }

    /// Refuses reads from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Fails in a closed store, and in a child of the process that opened the store.
    ///
    /// # Errors
    /// `Forked`; `Closed`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.process.check()?;
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }
}
