//! What threads synchronize by: locks that ignore poisoning, conditions, cells, and the atomics they act on.
//!
//! A panic in one thread must not turn into panics in all others. Where a panic could leave state behind that is not
//! consistent, the owner of that state poisons the engine explicitly (see `ErrorKind::Poisoned`).
//!
//! The crates above take these types from here and nowhere else (a test refuses `std::sync`'s), so that there is one
//! place where a schedule can be imposed on them. Four kinds:
//!
//! * the types of this module and of [`atomic`]: whatever makes one thread wait for another, or on whose value one thread
//!   acts because another wrote it;
//! * [`model`]: the same, for modules small enough that loom goes through all their schedules;
//! * [`statistic`]: counters and estimates. Any value a moment old will do, so the order in which threads touch
//!   them means nothing, and no schedule looks at them;
//! * [`leaf`]: locks inside which nothing is waited for, neither a lock nor a file nor a condition. Whatever order threads take
//!   them in, there is none to explore that the calls around them do not have.

use std::sync::PoisonError;
use std::time::Duration;

pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub mod leaf;
pub mod model;

/// Atomics on whose values threads act.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
}

/// Atomics that only count or estimate. To be used with `Ordering::Relaxed` and nothing stronger.
pub mod statistic {
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

/// Locks a mutex.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex if nobody holds it.
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Waits until it is woken (or without a reason, as condition variables do).
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], but not longer than this.
pub fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    longest: Duration,
) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0
}

/// Locks for reading.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
