//! Locks under which a thread waits for nothing: the standard library's, even with the feature
//! `sched`.
//!
//! For code below any schedule (the simulated file system, which implements the schedule; pools of
//! buffers) and for maps whose code takes no other lock (the cache). A thread that waited under
//! such a lock would stop all others in a place invisible to the schedule. Their ranks are the last
//! ([`Rank::is_leaf`](super::rank::Rank::is_leaf)), so under a leaf a thread takes only leaves of a
//! higher rank.

use super::plain;
use super::rank::{Held, Ranked};
use super::ranked::Guard;
use std::fmt;
use std::marker::PhantomData;

pub use plain::Condvar;

/// A mutual exclusion lock around a `T`, of the rank `R`.
pub struct Mutex<T, R> {
    lock: plain::Mutex<T>,
    rank: PhantomData<R>,
}

/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<plain::MutexGuard<'a, T>>;

impl<T, R: Ranked> Mutex<T, R> {
    /// Returns a free mutex.
    pub const fn new(value: T) -> Self {
        const { assert!(R::RANK.is_leaf(), "this is not the rank of a leaf") };
        Mutex { lock: plain::Mutex::new(value), rank: PhantomData }
    }
}

impl<T: Default, R: Ranked> Default for Mutex<T, R> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: fmt::Debug, R> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

/// Locks a mutex.
#[cfg_attr(debug_assertions, track_caller)]
#[inline]
pub fn lock<T, R: Ranked>(mutex: &Mutex<T, R>) -> MutexGuard<'_, T> {
    let held = Held::take(R::RANK);
    Guard { guard: plain::lock(&mutex.lock), held }
}

/// Waits for a wake-up: for the simulated machine, which implements the turns of threads by such
/// locks.
#[cfg_attr(debug_assertions, track_caller)]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let Guard { guard, held } = guard;
    let held = held.again();
    Guard { guard: plain::wait(condition, guard), held }
}
