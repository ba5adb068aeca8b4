//! Types for the modules that loom explores.
//!
//! A model (`loom_tests.rs` beside a module) runs a few threads through every interleaving, up to a
//! bound on preemptions. It also tries every result of an atomic load that its order allows. The
//! module must be built from loom's types, which exist only inside a model. So a module with a
//! model takes its locks and atomics from here: they are loom's under `--cfg loom` and the usual
//! ones otherwise. Other modules are not part of a model. If a model calls one, its locks must not
//! be held across a call into a module of the model.

#[cfg(not(loom))]
pub use super::{
    Condvar, Mutex, MutexGuard, RwLock, atomic, lock, read, try_lock, wait, wait_timeout, write,
};

#[cfg(loom)]
pub use loom;
#[cfg(loom)]
pub use loom::sync::{Condvar, MutexGuard, atomic};

#[cfg(loom)]
mod locks {
    use loom::sync::{Condvar, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use std::marker::PhantomData;
    use std::sync::PoisonError;
    use std::time::Duration;

    /// A mutual exclusion lock. Its rank is ignored under loom, which finds wrong orders itself.
    #[derive(Debug)]
    pub struct Mutex<T, R>(loom::sync::Mutex<T>, PhantomData<R>);

    /// A lock for many readers or one writer.
    #[derive(Debug)]
    pub struct RwLock<T, R>(loom::sync::RwLock<T>, PhantomData<R>);

    impl<T, R> Mutex<T, R> {
        /// Returns a free mutex.
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value), PhantomData)
        }
    }

    impl<T, R> RwLock<T, R> {
        /// Returns a free lock.
        pub fn new(value: T) -> Self {
            RwLock(loom::sync::RwLock::new(value), PhantomData)
        }
    }

    impl<T: Default, R> Default for Mutex<T, R> {
        fn default() -> Self {
            Mutex::new(T::default())
        }
    }

    /// Locks a mutex.
    pub fn lock<T, R>(mutex: &Mutex<T, R>) -> MutexGuard<'_, T> {
        mutex.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a mutex if it is free.
    pub fn try_lock<T, R>(mutex: &Mutex<T, R>) -> Option<MutexGuard<'_, T>> {
        mutex.0.try_lock().ok()
    }

    /// Waits for a wake-up.
    pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a wake-up: no time passes in a model, so a missing wake-up is found.
    pub fn wait_timeout<'a, T>(
        condition: &Condvar,
        guard: MutexGuard<'a, T>,
        _longest: Duration,
    ) -> MutexGuard<'a, T> {
        wait(condition, guard)
    }

    /// Locks for reading.
    pub fn read<T, R>(lock: &RwLock<T, R>) -> RwLockReadGuard<'_, T> {
        lock.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing.
    pub fn write<T, R>(lock: &RwLock<T, R>) -> RwLockWriteGuard<'_, T> {
        lock.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
#[cfg(loom)]
pub use locks::{Mutex, RwLock, lock, read, try_lock, wait, wait_timeout, write};

/// Runs a model with at most `preemptions` preemptions per execution. Explores every execution; a
/// deadlock is a failure.
#[cfg(loom)]
pub fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}
