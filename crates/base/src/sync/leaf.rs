//! Locks inside which nothing is waited for: the standard library's, always.
//!
//! For what lies below any schedule (the simulated file system, which is the schedule's own world; pools of buffers) and
//! for maps whose code takes no other lock (the cache). A thread that waited inside one of them would stop all others in
//! a place that no schedule sees.

use std::sync::PoisonError;

pub use std::sync::{Mutex, MutexGuard};

/// Locks a mutex.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
