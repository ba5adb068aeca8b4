//! What the threads of the reactor have to do, now or later, and how they sleep meanwhile.
//!
//! Which of the things that are due comes next is for [`Queues`] to say, by their classes. A thread that comes back says how long the last one
//! took.
//!
//! A thread that finds nothing sleeps: for ever if nothing is due some day, else until it is. Whoever brings something wakes one who sleeps,
//! also for what is due later, since that may be sooner than what he sleeps for. Who leaves with something while there is more wakes the next:
//! so whatever there is, either a thread is on its way to it, or all are busy, and each looks before it sleeps. What may not begin, since what
//! takes long has as many threads as it may, is taken by one of those when it comes back.
//!
//! Closed, it takes nothing and gives nothing, and all who sleep are woken.

use crate::queues::{Class, Queues};
use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use std::collections::BTreeMap;
use std::time::Duration;

struct State<T> {
    now: Queues<T>,
    /// By when it is due, in clock nanoseconds, and in the order in which it came.
    later: BTreeMap<(u64, u64), (Class, T)>,
    count: u64,
    sleepers: usize,
    closed: bool,
}

/// See the module.
pub(crate) struct Tasks<T> {
    /// What is to be done, and how many sleep.
    state: Mutex<State<T>, rank::Reactor>,
    wake: Condvar,
}

impl<T> State<T> {
    /// What is due may be done now.
    fn move_due(&mut self, now_ns: impl Fn() -> u64) {
        if self.later.is_empty() {
            return;
        }
        let now_ns = now_ns();
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now_ns) {
            let (class, task) = first.remove();
            self.now.push(class, task);
        }
    }

    /// True if a thread that sleeps would find something, now or some day.
    fn is_for_another(&self) -> bool {
        self.now.has_next() || !self.later.is_empty()
    }
}

/// What a thread has done: its class, and how long that took, nanoseconds.
pub(crate) type Served = (Class, u64);

impl<T> Tasks<T> {
    /// For so many threads.
    pub fn of_threads(threads: usize) -> Tasks<T> {
        let now = Queues::of_threads(threads);
        let state = State { now, later: BTreeMap::new(), count: 0, sleepers: 0, closed: false };
        Tasks { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Something to do at once (0) or from this moment on, in clock nanoseconds. It comes back if this is closed.
    pub fn push(&self, class: Class, at_ns: u64, task: T) -> Result<(), T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Err(task);
        }
        if at_ns == 0 {
            state.now.push(class, task);
        } else {
            state.count += 1;
            let key = (at_ns, state.count);
            state.later.insert(key, (class, task));
        }
        let wakes = state.sleepers > 0;
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// What is to be done next, which is waited for, by one who has done this before. `None`: it is closed.
    pub fn wait(&self, now_ns: impl Fn() -> u64, before: Option<Served>) -> Option<(Class, T)> {
        let mut state = model::lock(&self.state);
        if let Some((class, ns)) = before {
            state.now.served(class, ns);
        }
        loop {
            if state.closed {
                return None;
            }
            state.move_due(&now_ns);
            if let Some(next) = state.now.serve() {
                let more = state.sleepers > 0 && state.is_for_another();
                drop(state);
                if more {
                    self.wake.notify_one();
                }
                return Some(next);
            }
            let due = state.later.first_key_value().map(|((at_ns, _), _)| *at_ns);
            state.sleepers += 1;
            state = match due {
                None => model::wait(&self.wake, state),
                Some(at_ns) => {
                    let longest = Duration::from_nanos(at_ns.saturating_sub(now_ns()).max(1));
                    model::wait_timeout(&self.wake, state, longest)
                }
            };
            state.sleepers -= 1;
        }
    }

    /// Something that is due, chosen by a number: for one who does not wait.
    pub fn pick(&self, now_ns: u64, number: u64) -> Option<T> {
        let mut state = model::lock(&self.state);
        state.move_due(|| now_ns);
        let nth = number.checked_rem(state.now.len() as u64)? as usize;
        state.now.remove(nth)
    }

    /// True if something is due.
    pub fn is_ready(&self, now_ns: u64) -> bool {
        let state = model::lock(&self.state);
        state.now.len() > 0 || state.later.first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns)
    }

    /// Ends it. What was still to be done.
    pub fn close(&self) -> Vec<T> {
        let left = {
            let mut state = model::lock(&self.state);
            state.closed = true;
            let later = std::mem::take(&mut state.later).into_values().map(|(_, task)| task);
            state.now.drain().into_iter().chain(later).collect()
        };
        self.wake.notify_all();
        left
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
