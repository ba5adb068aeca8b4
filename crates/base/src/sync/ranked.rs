//! Locks with ranks, around the locks of [`super::imp`]: see [`super::rank`] for the rule.
//!
//! In release builds ranks cost neither time nor space.

use super::imp;
use super::rank::{Held, Ranked};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub use imp::{Condvar, OnceLock};

/// Guard of a lock, as `G`, with its rank.
pub struct Guard<G> {
    pub(super) guard: G,
    pub(super) held: Held,
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<G: Deref<Target: fmt::Debug>> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<imp::MutexGuard<'a, T>>;
/// Guard of a [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = Guard<imp::RwLockReadGuard<'a, T>>;
/// Guard of a [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = Guard<imp::RwLockWriteGuard<'a, T>>;

/// The two kinds of locks differ only in how they are taken.
macro_rules! ranked {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        pub struct $name<T, R> {
            lock: imp::$name<T>,
            rank: PhantomData<R>,
        }

        impl<T, R: Ranked> $name<T, R> {
            /// Returns a free lock.
            pub const fn new(value: T) -> Self {
                $name { lock: imp::$name::new(value), rank: PhantomData }
            }
            /// Returns the protected value.
            pub fn into_inner(self) -> Result<T, PoisonError<T>> {
                self.lock.into_inner()
            }
            /// Returns the protected value: the exclusive borrow shows that the lock is free.
            pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
                self.lock.get_mut()
            }
        }

        impl<T: Default, R: Ranked> Default for $name<T, R> {
            fn default() -> Self {
                $name::new(T::default())
            }
        }

        impl<T: fmt::Debug, R> fmt::Debug for $name<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.lock.fmt(f)
            }
        }
    };
}

ranked!(Mutex, "A mutual exclusion lock around a `T`, of the rank `R`.");
ranked!(
    RwLock,
    "A lock for many readers or one writer around a `T`, of the rank `R`. To the order of ranks reading and writing are alike."
);

/// Locks a mutex.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
#[inline]
pub fn lock<T, R: Ranked>(mutex: &Mutex<T, R>) -> MutexGuard<'_, T> {
    let held = Held::take(R::RANK);
    Guard { guard: imp::lock(&mutex.lock), held }
}

/// Locks a mutex if it is free. Needs no order, since it does not wait; later locks must be above
/// the mutex.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
#[inline]
pub fn try_lock<T, R: Ranked>(mutex: &Mutex<T, R>) -> Option<MutexGuard<'_, T>> {
    imp::try_lock(&mutex.lock).map(|guard| Guard { guard, held: Held::tried(R::RANK) })
}

/// Waits for a wake-up (spurious ones are possible). The lock is released meanwhile, and taken
/// again in its order: nothing above it may be held.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let Guard { guard, held } = guard;
    // Checked before the wait, so that a wrong order is reported instead of hanging.
    let held = held.again();
    Guard { guard: imp::wait(condition, guard), held }
}

/// As [`wait`], with a timeout.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
pub fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    longest: Duration,
) -> MutexGuard<'a, T> {
    let Guard { guard, held } = guard;
    let held = held.again();
    Guard { guard: imp::wait_timeout(condition, guard, longest), held }
}

/// Locks for reading.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
#[inline]
pub fn read<T, R: Ranked>(lock: &RwLock<T, R>) -> RwLockReadGuard<'_, T> {
    let held = Held::take(R::RANK);
    Guard { guard: imp::read(&lock.lock), held }
}

/// Locks for writing.
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
#[inline]
pub fn write<T, R: Ranked>(lock: &RwLock<T, R>) -> RwLockWriteGuard<'_, T> {
    let held = Held::take(R::RANK);
    Guard { guard: imp::write(&lock.lock), held }
}

/// Locks for writing if the lock is free; as [`try_lock`].
#[cfg_attr(any(debug_assertions, feature = "sched"), track_caller)]
#[inline]
pub fn try_write<T, R: Ranked>(lock: &RwLock<T, R>) -> Option<RwLockWriteGuard<'_, T>> {
    imp::try_write(&lock.lock).map(|guard| Guard { guard, held: Held::tried(R::RANK) })
}

/// Ranks leave nothing behind in release builds.
#[cfg(not(debug_assertions))]
const _: () = {
    use super::rank::Outside;
    assert!(size_of::<Mutex<u64, Outside>>() == size_of::<imp::Mutex<u64>>());
    assert!(size_of::<RwLock<u64, Outside>>() == size_of::<imp::RwLock<u64>>());
    assert!(size_of::<MutexGuard<'_, u64>>() == size_of::<imp::MutexGuard<'_, u64>>());
};
