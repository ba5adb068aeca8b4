//! The standard library's locks, used without the feature `sched`.

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex if it is free.
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().map_or_else(guard_despite_panic, Some)
}

/// Returns the guard of a lock under which a thread has panicked; `None`: another thread holds the
/// lock.
fn guard_despite_panic<T>(e: TryLockError<T>) -> Option<T> {
    match e {
        TryLockError::Poisoned(e) => Some(e.into_inner()),
        TryLockError::WouldBlock => None,
    }
}

/// Waits for a wake-up (spurious ones are possible).
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], with a timeout.
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

/// Locks for writing if the lock is free.
pub fn try_write<T: ?Sized>(lock: &RwLock<T>) -> Option<RwLockWriteGuard<'_, T>> {
    match lock.try_write() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks for writing.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
