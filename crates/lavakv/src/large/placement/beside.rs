//! A file whose syncs run beside its writes.
//!
//! A sync takes as long as the device does, and who appends does so under the writer's lock. So a sync holds the lock of its
//! file only while it begins and when it ends; in between the file may be appended to. One sync runs at a time: the kernel
//! tells a failure to one of two that run at once, and the other would take for durable what is lost. Who comes while
//! one runs waits for its end. If that did not cover its bytes, it begins the next, for all that are there by then.
//!
//! Invariant: what [`Syncs::is_durable`] says of a file changes when a sync ends, and only while the lock is held. Whoever changes
//! the state of a file otherwise (finishes it, gives it up) does so when no sync runs: [`Beside::settled`].

use base::Result;
use base::sync::model::{Condvar, Mutex, MutexGuard, lock, wait};
use base::sync::rank;
use std::ops::{Deref, DerefMut};

/// What a sync needs of a file.
pub(crate) trait Syncs {
    /// What is left to do of a sync that has begun.
    type Run;
    /// Bytes that were written.
    fn written_bytes(&self) -> u64;
    /// True if so many are durable, or need not be. An error: they never will.
    fn is_durable(&self, bytes: u64) -> Result<bool>;
    /// Begins to make all bytes durable.
    fn begin(&mut self) -> Result<Self::Run>;
    /// Takes what came of it.
    fn end(&mut self, ran: Result<()>) -> Result<()>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Beside<T> {
    /// The file, and whether a sync of it runs.
    state: Mutex<State<T>, rank::ArrivalFile>,
    /// No sync runs any more.
    ended: Condvar,
}

#[derive(Debug)]
struct State<T> {
    runs: bool,
    file: T,
}

/// The file, locked.
pub(crate) struct Held<'a, T>(MutexGuard<'a, State<T>>);

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.file
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.file
    }
}

impl<T> Beside<T> {
    pub fn new(file: T) -> Beside<T> {
        Beside { state: Mutex::new(State { runs: false, file }), ended: Condvar::new() }
    }

    /// The file, to look at it or to append to it. A sync may be running.
    pub fn lock(&self) -> Held<'_, T> {
        Held(lock(&self.state))
    }

    /// The file while no sync runs.
    pub fn settled(&self) -> Held<'_, T> {
        let mut state = lock(&self.state);
        while state.runs {
            state = wait(&self.ended, state);
        }
        Held(state)
    }
}

impl<T: Syncs> Beside<T> {
    /// Makes all bytes durable that were written when it was called. `run` does what is left to do, without the lock.
    pub fn sync(&self, run: impl FnOnce(T::Run) -> Result<()>) -> Result<()> {
        let _turn = rank::turn::<rank::ArrivalTurn>();
        let mut state = lock(&self.state);
        let wanted = state.file.written_bytes();
        loop {
            if state.file.is_durable(wanted)? {
                return Ok(());
            }
            if !state.runs {
                break;
            }
            state = wait(&self.ended, state);
        }
        let begun = state.file.begin();
        state.runs = true;
        drop(state);
        let ran = begun.and_then(run);
        let mut state = lock(&self.state);
        state.runs = false;
        let ended = state.file.end(ran);
        drop(state);
        self.ended.notify_all();
        ended
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
