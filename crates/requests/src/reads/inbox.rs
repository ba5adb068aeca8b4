//! Items for one thread that may be waiting for something else.
//!
//! The thread takes all items that are there. Without one it sleeps here, or, if it has something
//! else to wait for, elsewhere: it notes so, and the next push wakes it there. It notes so under
//! the lock that guards the items. So either it sees an item, or the push finds it on its way to
//! sleep; and a wake-up that comes before the sleep is kept (`io::ReadWaker`).
//!
//! Closed, the inbox refuses and returns items, and wakes the thread wherever it sleeps.

use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;

/// Place of the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// Awake: it checks the inbox before it sleeps.
    Awake,
    /// Asleep here.
    Here,
    /// Asleep elsewhere, or about to be.
    Elsewhere,
}

struct InboxState<T> {
    items: Vec<T>,
    thread: Thread,
    closed: bool,
}

/// Items for one thread; see the module.
pub(crate) struct Inbox<T> {
    /// The items, and the place of the thread that takes them.
    state: Mutex<InboxState<T>, rank::Reactor>,
    wake: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let state = InboxState { items: Vec::new(), thread: Thread::Awake, closed: false };
        Inbox { state: Mutex::new(state), wake: Condvar::new() }
    }
}

impl<T> Inbox<T> {
    /// Adds an item; `wake` wakes the thread if it sleeps elsewhere. Returns the item if the inbox
    /// is closed.
    pub fn push(&self, item: T, wake: impl FnOnce()) -> Result<(), T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Err(item);
        }
        state.items.push(item);
        let thread = std::mem::replace(&mut state.thread, Thread::Awake);
        drop(state);
        match thread {
            Thread::Awake => {}
            Thread::Here => self.wake.notify_one(),
            Thread::Elsewhere => wake(),
        }
        Ok(())
    }

    /// Takes all items. Without one it waits here, unless the thread has something else to wait
    /// for, which it does next: then it returns none. Returns `None` once the inbox is closed.
    pub fn take(&self, has_else: bool) -> Option<Vec<T>> {
        let mut state = model::lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if !state.items.is_empty() {
                state.thread = Thread::Awake;
                return Some(std::mem::take(&mut state.items));
            }
            if has_else {
                state.thread = Thread::Elsewhere;
                return Some(Vec::new());
            }
            state.thread = Thread::Here;
            state = model::wait(&self.wake, state);
        }
    }

    /// Takes all items without a wait. Returns `None` once the inbox is closed.
    pub fn take_now(&self) -> Option<Vec<T>> {
        let mut state = model::lock(&self.state);
        (!state.closed).then(|| std::mem::take(&mut state.items))
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        model::lock(&self.state).items.len()
    }

    /// Closes the inbox and wakes the thread. Returns the items that are left.
    pub fn close(&self, wake: impl FnOnce()) -> Vec<T> {
        let left = {
            let mut state = model::lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.items)
        };
        self.wake.notify_all();
        wake();
        left
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
