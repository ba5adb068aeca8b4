//! What is handed to a thread that may be waiting for something else.
//!
//! The thread takes what is there. If that is nothing, it sleeps here, or where it has something else to wait for, there: it says so, and whoever
//! brings something then wakes it there. It says so under the lock under which things are brought, so either it sees them, or they
//! find it on its way to sleep; and a wake-up that comes before it sleeps is kept for it (`io::ReadWaker`).
//!
//! Closed, it takes nothing and gives nothing, and the thread is woken wherever it sleeps.

use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;

/// Where the thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// On its way here.
    Awake,
    /// Asleep here.
    Here,
    /// Asleep elsewhere, or about to be.
    Elsewhere,
}

struct State<T> {
    brought: Vec<T>,
    thread: Thread,
    closed: bool,
}

/// See the module.
pub(crate) struct Inbox<T> {
    /// What was brought, and where the thread is that takes it.
    state: Mutex<State<T>, rank::Reactor>,
    wake: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let state = State { brought: Vec::new(), thread: Thread::Awake, closed: false };
        Inbox { state: Mutex::new(state), wake: Condvar::new() }
    }
}

impl<T> Inbox<T> {
    /// Brings something; `wake` wakes the thread where it sleeps if not here. It comes back if this is closed.
    pub fn push(&self, one: T, wake: impl FnOnce()) -> Result<(), T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Err(one);
        }
        state.brought.push(one);
        let thread = std::mem::replace(&mut state.thread, Thread::Awake);
        drop(state);
        match thread {
            Thread::Awake => {}
            Thread::Here => self.wake.notify_one(),
            Thread::Elsewhere => wake(),
        }
        Ok(())
    }

    /// What was brought. If that is nothing, waits for it, unless the thread has something else to wait for, and does that then.
    /// `None`: it is closed.
    pub fn take(&self, has_else: bool) -> Option<Vec<T>> {
        let mut state = model::lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !state.brought.is_empty() {
                state.thread = Thread::Awake;
                return Some(std::mem::take(&mut state.brought));
            }
            if has_else {
                state.thread = Thread::Elsewhere;
                return Some(Vec::new());
            }
            state.thread = Thread::Here;
            state = model::wait(&self.wake, state);
        }
    }

    /// What was brought, for one who does not wait. `None`: it is closed.
    pub fn take_now(&self) -> Option<Vec<T>> {
        let mut state = model::lock(&self.state);
        (!state.closed).then(|| std::mem::take(&mut state.brought))
    }

    /// How much was brought and not taken.
    pub fn len(&self) -> usize {
        model::lock(&self.state).brought.len()
    }

    /// Ends it. What was brought and not taken; the thread is woken where it sleeps.
    pub fn close(&self, wake: impl FnOnce()) -> Vec<T> {
        let left = {
            let mut state = model::lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.brought)
        };
        self.wake.notify_all();
        wake();
        left
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
