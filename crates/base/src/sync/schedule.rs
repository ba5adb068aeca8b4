//! The seam at which a schedule is imposed on threads (feature `sched`).
//!
//! A thread that runs under a schedule has entered one with [`enter`]. From then on everything in [`crate::sync`] asks
//! that schedule: before each operation there is a [`Schedule::point`], where another thread may go on first; and a thread
//! that would have to wait tells [`Schedule::wait`] what for, instead of the operating system. The contract that makes this
//! sound:
//!
//! * of all the threads of a schedule exactly one runs at a time, so an operation together with whatever the thread does up
//!   to its next point happens at once;
//! * a lock is taken only when it is free ([`Schedule::wait`] may return without a reason; its callers look again);
//! * giving up a lock and waiting for a condition happen at once, so that no wake-up is lost *by this layer*.
//!
//! The memory order is that of one processor: what weaker orders allow beyond it is for models (loom). Threads that
//! entered no schedule are served by the standard library alone, and pay one load and a branch.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a thread is about to do, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Takes a mutex, or one of the two sides of a lock for readers and a writer.
    Lock,
    /// Waits for a condition.
    Wait,
    /// Wakes who waits for a condition.
    Notify,
    /// Reads an atomic.
    Load,
    /// Changes an atomic.
    Store,
    /// Fills a cell that is filled once, or looks whether it is.
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

/// What can be waited for: what it is, and an address that tells it from others as long as somebody waits.
pub type Resource = (Act, usize);

/// What imposes a schedule on the thread that entered it.
pub trait Schedule {
    /// The thread is about to do this: others may go on first.
    fn point(&self, act: Act, at: &'static Location<'static>);
    /// The thread cannot go on before somebody wakes the resource, or before `longest` is over.
    fn wait(&self, on: Resource, longest: Option<Duration>, at: &'static Location<'static>);
    /// Those who wait for the resource, or one of them, can go on.
    fn wake(&self, on: Resource, all: bool);
}

/// How many threads run under a schedule: where there are none, nobody looks further.
static SCHEDULED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Schedule>>> = const { RefCell::new(None) };
}

/// As long as it lives, the thread runs under the schedule.
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

/// The schedule of the calling thread.
#[inline]
pub fn current() -> Option<Rc<dyn Schedule>> {
    match SCHEDULED.load(Ordering::Relaxed) {
        0 => None,
        // Nobody has a schedule whose thread-local values are being dropped.
        _ => CURRENT.try_with(|current| current.borrow().clone()).ok().flatten(),
    }
}

/// Another thread may go on first, if there is a schedule.
#[inline]
#[track_caller]
pub fn point(act: Act) {
    if let Some(schedule) = current() {
        schedule.point(act, Location::caller());
    }
}
