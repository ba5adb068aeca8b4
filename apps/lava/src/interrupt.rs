//! Ctrl-C: a command that can say where to go on ends at the next record, and the process then dies of the signal.
//!
//! Only commands that look at [`requested`] install the handler; the others die at once. A second signal kills at once, too.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that came; 0: none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// Installs the handler.
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `sigaction` is plain data, for which zeros are valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // The handler goes with the first signal. A read that waits for input is cut short, and is not made again.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: `action` is initialized, and the handler only stores to an atomic, which a signal handler may do.
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
