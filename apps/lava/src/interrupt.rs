//! Ctrl-C: a resumable command ends at the next record, and the process then dies of the signal.
//!
//! Only commands that poll [`requested`] or hold the token ([`cancel`]) install the handler; others
//! die at once. A second signal also kills at once.

use crate::{Error, Result};
use lavastore::{Cancel, ErrorKind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Result of an interrupted verification.
pub const NOT_CHECKED: &str = "the check is incomplete; the same command starts over";
/// Result of an interrupted checkpoint.
pub const NO_COPY: &str = "the copy is removed; the same command starts over";
/// Result of an interrupted repair.
pub const NOTHING_REPAIRED: &str =
    "the new store is removed, and the damaged one is unchanged; the same command starts over";

/// Received signal; 0: none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Cancels the running long call.
static CANCEL: OnceLock<Cancel> = OnceLock::new();

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    // Two atomic operations, which are async-signal-safe.
    if let Some(cancel) = CANCEL.get() {
        cancel.cancel();
    }
}

/// Installs the handler. Returns the token for a long call, which a signal cancels.
pub fn cancel() -> Cancel {
    let cancel = CANCEL.get_or_init(Cancel::new).clone();
    watch();
    cancel
}

/// Replaces the error of a call cancelled by a signal; `kept` describes the remaining state and the
/// way to resume.
pub fn or_kept<T>(result: Result<T, lavastore::Error>, kept: &str) -> Result<T> {
    result.map_err(|e| match e.kind() {
        ErrorKind::Cancelled if requested() => Error::from(format!("interrupted: {kept}")),
        _ => e.into(),
    })
}

/// Installs the handler.
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `sigaction` is plain data, for which zeros are valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // The first signal removes the handler. A read that waits for input is interrupted and not
        // restarted.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is initialized. The handler only loads and stores atomics, which is
        // async-signal-safe.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Returns true after a signal.
pub fn requested() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}

/// Dies of the received signal, so that a shell sees it; returns if there was none.
pub fn die() {
    let signal = SIGNAL.load(Ordering::Relaxed);
    if signal != 0 {
        // SAFETY: neither call touches our memory; the default action of both signals ends the
        // process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}
