//! Locks under a schedule: those of the standard library, in a layer that calls [`super::schedule`]
//! first.

use super::schedule::{Act, Resource, current, point};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<u8>() as usize
}

/// Takes a lock by `attempt`, waiting under the schedule; without a schedule takes it by `block`.
#[track_caller]
fn take<G>(on: Resource, attempt: impl Fn() -> Option<G>, block: impl FnOnce() -> G) -> G {
    let Some(schedule) = current() else { return block() };
    let at = Location::caller();
    schedule.point(on.0, at);
    loop {
        match attempt() {
            Some(guard) => return guard,
            None => schedule.wait(on, None, at),
        }
    }
}

fn wake(on: Resource) {
    if let Some(schedule) = current() {
        schedule.wake(on, true);
    }
}

fn tried<G>(attempt: Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutual exclusion lock.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// Guard of a [`Mutex`].
pub struct MutexGuard<'a, T: ?Sized> {
    of: &'a Mutex<T>,
    /// `None` once the lock was released.
    held: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Returns a free mutex.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }
    /// Returns the protected value.
    pub fn into_inner(self) -> Result<T, PoisonError<T>> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Returns the protected value: the exclusive borrow shows that the mutex is free.
    pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
        self.0.get_mut()
    }
    fn resource(&self) -> Resource {
        (Act::Lock, address(self))
    }
    fn guard<'a>(&'a self, held: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { of: self, held: Some(held) }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.held.take().is_some() {
            wake(self.of.resource());
        }
    }
}

const GIVEN_UP: &str = "a guard that gave up its lock is consumed";

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect(GIVEN_UP)
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(GIVEN_UP)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Locks a mutex.
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let block = || mutex.0.lock().unwrap_or_else(PoisonError::into_inner);
    mutex.guard(take(mutex.resource(), || tried(mutex.0.try_lock()), block))
}

/// Locks a mutex if it is free.
#[track_caller]
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    point(Act::Lock);
    tried(mutex.0.try_lock()).map(|held| mutex.guard(held))
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Returns a condition without waiters.
    pub const fn new() -> Self {
        Condvar(std::sync::Condvar::new())
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(false);
        self.0.notify_one();
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(true);
        self.0.notify_all();
    }

    #[track_caller]
    fn notify(&self, all: bool) {
        if let Some(schedule) = current() {
            schedule.point(Act::Notify, Location::caller());
            schedule.wake((Act::Wait, address(self)), all);
        }
    }

    #[track_caller]
    fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>, longest: Option<Duration>) -> MutexGuard<'a, T> {
        let mutex = guard.of;
        if let Some(schedule) = current() {
            // A thread that signals without the lock can do so now, between the check and the
            // sleep.
            schedule.point(Act::Wait, Location::caller());
            drop(guard);
            schedule.wait((Act::Wait, address(self)), longest, Location::caller());
            return lock(mutex);
        }
        let held = guard.held.take().expect(GIVEN_UP);
        mutex.guard(match longest {
            None => self.0.wait(held).unwrap_or_else(PoisonError::into_inner),
            Some(longest) => self.0.wait_timeout(held, longest).unwrap_or_else(PoisonError::into_inner).0,
        })
    }
}

/// Waits for a wake-up (spurious ones are possible).
#[track_caller]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard, None)
}

/// As [`wait`], with a timeout.
#[track_caller]
pub fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    longest: Duration,
) -> MutexGuard<'a, T> {
    condition.wait(guard, Some(longest))
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

/// Guard of a [`RwLock`], as `G`.
pub struct SharedGuard<G> {
    held: Option<G>,
    on: Resource,
}

/// Guard of a [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = SharedGuard<std::sync::RwLockReadGuard<'a, T>>;
/// Guard of a [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = SharedGuard<std::sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// Returns a free lock.
    pub const fn new(value: T) -> Self {
        RwLock(std::sync::RwLock::new(value))
    }
    /// Returns the protected value.
    pub fn into_inner(self) -> Result<T, PoisonError<T>> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Returns the protected value: the exclusive borrow shows that the lock is free.
    pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
        self.0.get_mut()
    }
    fn resource(&self) -> Resource {
        (Act::Lock, address(self))
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<G> Drop for SharedGuard<G> {
    fn drop(&mut self) {
        if self.held.take().is_some() {
            wake(self.on);
        }
    }
}

impl<G: Deref> Deref for SharedGuard<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        self.held.as_ref().expect(GIVEN_UP)
    }
}

impl<G: DerefMut> DerefMut for SharedGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.held.as_mut().expect(GIVEN_UP)
    }
}

/// Locks for reading.
#[track_caller]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    let block = || lock.0.read().unwrap_or_else(PoisonError::into_inner);
    let held = take(lock.resource(), || tried(lock.0.try_read()), block);
    SharedGuard { held: Some(held), on: lock.resource() }
}

/// Locks for writing.
#[track_caller]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    let block = || lock.0.write().unwrap_or_else(PoisonError::into_inner);
    let held = take(lock.resource(), || tried(lock.0.try_write()), block);
    SharedGuard { held: Some(held), on: lock.resource() }
}

/// Locks for writing if the lock is free.
#[track_caller]
pub fn try_write<T: ?Sized>(lock: &RwLock<T>) -> Option<RwLockWriteGuard<'_, T>> {
    point(Act::Lock);
    let held = tried(lock.0.try_write())?;
    Some(SharedGuard { held: Some(held), on: lock.resource() })
}

/// A cell that is filled once.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Under a schedule: a thread is about to fill the cell. Others must wait under the schedule,
    /// not in the standard library.
    filling: AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// Returns an empty cell.
    pub const fn new() -> Self {
        OnceLock { value: std::sync::OnceLock::new(), filling: AtomicBool::new(false) }
    }

    /// Returns the value. (Once the cell is filled, the result no longer depends on the schedule.)
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        if self.value.get().is_none() {
            point(Act::Once);
        }
        self.value.get()
    }

    /// Fills the cell.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("filled once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, which is made now if necessary.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let on = (Act::Once, address(self));
        let attempt = || match self.value.get() {
            Some(_) => Some(false),
            None => (!self.filling.swap(true, Ordering::Relaxed)).then_some(true),
        };
        let mine = take(on, attempt, || false);
        let value = self.value.get_or_init(make);
        if mine {
            wake(on);
        }
        value
    }
}
