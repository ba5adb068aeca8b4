//! Panics of steps.

use base::{Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use store::context::Health;

/// Runs a step of a request. A panic, which is a bug, must not end the thread, since other requests
/// wait for it: it poisons the store instead. Returns `None` after a panic.
pub(crate) fn guarded<T>(health: &Health, step: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(step));
    if done.is_err() {
        let why = "an asynchronous request panicked in a background thread, a fault of the engine: report it";
        health.poison(&Error::new(ErrorKind::Poisoned, why));
    }
    done.ok()
}
