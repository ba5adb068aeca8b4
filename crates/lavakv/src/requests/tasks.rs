//! What the threads of the reactor have to do, now or later, and how they sleep meanwhile.
//!
//! A thread that finds nothing sleeps: for ever if nothing is due some day, else until it is. Whoever brings something wakes one who sleeps,
//! also for what is due later, since that may be sooner than what he sleeps for. Who leaves with something while there is more wakes the next:
//! so whatever there is, either a thread is on its way to it, or all are busy, and each looks before it sleeps.
//!
//! Closed, it takes nothing and gives nothing, and all who sleep are woken.

use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

struct State<T> {
    now: VecDeque<T>,
    /// By when it is due, in clock nanoseconds, and in the order in which it came.
    later: BTreeMap<(u64, u64), T>,
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

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        let state =
            State { now: VecDeque::new(), later: BTreeMap::new(), count: 0, sleepers: 0, closed: false };
        Tasks { state: Mutex::new(state), wake: Condvar::new() }
    }
}

impl<T> State<T> {
    /// Something that is due.
    fn take(&mut self, now_ns: impl Fn() -> u64) -> Option<T> {
        let is_due = self.later.first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns());
        if is_due { self.later.pop_first().map(|(_, task)| task) } else { self.now.pop_front() }
    }

    fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }
}

impl<T> Tasks<T> {
    /// Something to do at once (0) or from this moment on, in clock nanoseconds. It comes back if this is closed.
    pub fn push(&self, at_ns: u64, task: T) -> Result<(), T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Err(task);
        }
        if at_ns == 0 {
            state.now.push_back(task);
        } else {
            state.count += 1;
            let key = (at_ns, state.count);
            state.later.insert(key, task);
        }
        let wakes = state.sleepers > 0 && !base::canary::is("request-pushed-without-a-wake-up");
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// What is to be done next, which is waited for. `None`: it is closed.
    pub fn wait(&self, now_ns: impl Fn() -> u64) -> Option<T> {
        let mut state = model::lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(task) = state.take(&now_ns) {
                let more = state.sleepers > 0 && !state.is_empty();
                drop(state);
                if more {
                    self.wake.notify_one();
                }
                return Some(task);
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
        let due = state.later.range(..=(now_ns, u64::MAX)).count();
        let all = (state.now.len() + due) as u64;
        let nth = number.checked_rem(all)? as usize;
        match nth.checked_sub(state.now.len()) {
            None => state.now.remove(nth),
            Some(nth) => {
                let key = *state.later.keys().nth(nth)?;
                state.later.remove(&key)
            }
        }
    }

    /// True if something is due.
    pub fn is_ready(&self, now_ns: u64) -> bool {
        let state = model::lock(&self.state);
        !state.now.is_empty() || state.later.first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns)
    }

    /// Ends it. What was still to be done.
    pub fn close(&self) -> Vec<T> {
        let left = {
            let mut state = model::lock(&self.state);
            state.closed = true;
            let now: Vec<T> = state.now.drain(..).collect();
            now.into_iter().chain(std::mem::take(&mut state.later).into_values()).collect()
        };
        self.wake.notify_all();
        left
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
