//! The types of the modules that loom explores.
//!
//! A model (`loom_tests.rs` beside a module) runs a few threads through every interleaving, up to a bound on preemptions,
//! and through every result of an atomic load that its order allows. For that the module must be built from loom's types,
//! which exist inside of a model only. So not everything can be: a module that has a model takes its locks and atomics from
//! here, and they are loom's under `--cfg loom` and the usual ones otherwise. All others are not part of a model; where one
//! is called from a model, its locks must not be held across a call into a module that is.

#[cfg(not(loom))]
pub use super::{Condvar, Mutex, MutexGuard, RwLock, atomic, lock, read, wait, write};

#[cfg(loom)]
pub use loom;
#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};

#[cfg(loom)]
mod locks {
    use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    use std::sync::PoisonError;

    /// Locks a mutex.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is woken.
    pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for reading.
    pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing.
    pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write().unwrap_or_else(PoisonError::into_inner)
    }
}
#[cfg(loom)]
pub use locks::{lock, read, wait, write};

/// Runs a model with at most so many preemptions in one execution. Every execution of it is explored, and one in which
/// all threads wait for one another is a failure.
#[cfg(loom)]
pub fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}
