//! Ctrl-C: a command that can say where to go on ends at the next record, and the process then dies of the signal.
//!
//! Only commands that look at [`requested`] or have the token ([`cancel`]) install the handler; the others die at once. A second
//! signal kills at once, too.

use crate::{Error, Result};
use lavastore::{Cancel, ErrorKind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// What an interrupted verification has.
pub const NOT_CHECKED: &str = "not everything was checked; the same command begins again";
/// What an interrupted checkpoint leaves.
pub const NO_COPY: &str = "nothing is left of the copy; the same command begins again";
/// What an interrupted repair leaves.
pub const NOTHING_REPAIRED: &str =
    "nothing is left of the new store, and the damaged one is as it was; the same command begins again";

/// The signal that came; 0: none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Ends the long call that runs.
static CANCEL: OnceLock<Cancel> = OnceLock::new();

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    // Two atomic operations, which a signal handler may do.
    if let Some(cancel) = CANCEL.get() {
        cancel.cancel();
    }
}

/// Installs the handler. The token for a long call, which a signal cancels.
pub fn cancel() -> Cancel {
    let cancel = CANCEL.get_or_init(Cancel::new).clone();
    watch();
    cancel
}

/// The result of a long call. If a signal has ended it the error says what is kept, and how to go on.
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
        // The handler goes with the first signal. A read that waits for input is cut short, and is not made again.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is initialized, and the handler only loads and stores atomics, which a signal handler may do.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// True once a signal has come.
pub fn requested() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}

/// Dies of the signal that came, so that a shell sees it; returns if none did.
pub fn die() {
    let signal = SIGNAL.load(Ordering::Relaxed);
    if signal != 0 {
        // SAFETY: neither call touches memory of ours; the default action of both signals ends the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}
