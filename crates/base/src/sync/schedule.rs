//! Interface of a schedule that is imposed on threads (feature `sched`).
//!
//! A thread enters a schedule with [`enter`]. From then on all types of [`crate::sync`] call that
//! schedule. Before each operation there is a [`Schedule::point`], where another thread may run
//! first. A thread that would have to wait calls [`Schedule::wait`] instead of the operating
//! system. The contract that makes this sound:
//!
//! * exactly one thread of a schedule runs at a time, so an operation is atomic together with the
//!   actions of the thread up to its next point;
//! * a lock is taken only when it is free ([`Schedule::wait`] may return spuriously; its callers
//!   check again);
//! * releasing a lock and waiting for a condition are one atomic step, so *this layer* loses no
//!   wake-up.
//!
//! The memory order is that of one processor: effects of weaker orders are for models (loom).
//! Threads without a schedule use the standard library alone, at the cost of one load and a branch.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An operation of a thread, or the object of its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Takes a mutex, or one of the two sides of a reader-writer lock.
    Lock,
    /// Waits for a condition.
    Wait,
    /// Wakes waiters of a condition.
    Notify,
    /// Reads an atomic.
    Load,
    /// Changes an atomic.
    Store,
    /// Fills a cell that is filled once, or checks whether it is filled.
    Once,
    /// Calls the file system.
    Io,
    /// Starts a thread.
    Spawn,
    /// Waits for the end of a thread.
    Join,
    /// Sleeps.
    Sleep,
}

/// Object of a wait: its kind, and an address that is unique as long as a thread waits.
pub type Resource = (Act, usize);

/// A schedule for the threads that enter it.
pub trait Schedule {
    /// Announces an operation of the thread: other threads may run first.
    fn point(&self, act: Act, at: &'static Location<'static>);
    /// Blocks the thread until the resource is woken, or `longest` is over.
    fn wait(&self, on: Resource, longest: Option<Duration>, at: &'static Location<'static>);
    /// Makes the waiters for a resource, or one of them, ready.
    fn wake(&self, on: Resource, all: bool);
}

/// Number of threads under a schedule: if it is 0, nothing else is checked.
static SCHEDULED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Schedule>>> = const { RefCell::new(None) };
}

/// Membership of the thread in a schedule, until it is dropped.
#[derive(Debug)]
pub struct Entered(());

/// Puts the calling thread under a schedule.
pub fn enter(schedule: Rc<dyn Schedule>) -> Entered {
    let before = CURRENT.with(|current| current.borrow_mut().replace(schedule));
    assert!(before.is_none(), "a thread runs under one schedule");
    SCHEDULED.fetch_add(1, Ordering::Relaxed);
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        SCHEDULED.fetch_sub(1, Ordering::Relaxed);
        CURRENT.with(|current| current.borrow_mut().take());
    }
}

/// Returns the schedule of the calling thread.
#[inline]
pub fn current() -> Option<Rc<dyn Schedule>> {
    match SCHEDULED.load(Ordering::Relaxed) {
        0 => None,
        // A thread whose local values are being dropped has no schedule.
        _ => CURRENT.try_with(|current| current.borrow().clone()).ok().flatten(),
    }
}

/// Lets another thread run first, if there is a schedule.
#[inline]
#[track_caller]
pub fn point(act: Act) {
    if let Some(schedule) = current() {
        schedule.point(act, Location::caller());
    }
}
