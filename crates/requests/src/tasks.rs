//! Operations that wait for a thread of the reactor, now or later, and the sleep of idle threads.
//!
//! [`ClassQueues`] chooses among the due operations. A returning thread reports the duration of its
//! last operation.
//!
//! A thread without a due operation sleeps: until the next due time, or without limit. A push wakes
//! one sleeping thread, also for a later operation, which may be due before the time that the
//! thread sleeps for. A thread that leaves with an operation wakes another thread if more are
//! queued. So for each queued operation either a thread is on its way, or all threads are busy, and
//! a thread checks again before it sleeps. A long operation beyond the bound on its class is taken
//! by a thread that ends one.
//!
//! Closed, it refuses and returns operations, and wakes all threads.

use crate::queues::{ClassQueues, OperationClass};
use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use std::collections::BTreeMap;
use std::time::Duration;

struct TaskState<T> {
    now: ClassQueues<T>,
    /// By due time, in clock nanoseconds, then by order of arrival.
    later: BTreeMap<(u64, u64), (OperationClass, T)>,
    count: u64,
    sleepers: usize,
    closed: bool,
}

/// Operations that wait for a thread, and idle threads; see the module.
pub(crate) struct Tasks<T> {
    /// The operations, and the number of sleeping threads.
    state: Mutex<TaskState<T>, rank::Reactor>,
    wake: Condvar,
}

impl<T> TaskState<T> {
    /// Moves due tasks to the queues.
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

    /// Returns true if a sleeping thread has a task to wake up for, now or later.
    fn is_for_another(&self) -> bool {
        self.now.has_next() || !self.later.is_empty()
    }
}

/// A served task: its class, and its duration in nanoseconds.
pub(crate) type Served = (OperationClass, u64);

impl<T> Tasks<T> {
    /// Returns empty queues for this many threads.
    pub fn of_threads(threads: usize) -> Tasks<T> {
        let now = ClassQueues::of_threads(threads);
        let state = TaskState { now, later: BTreeMap::new(), count: 0, sleepers: 0, closed: false };
        Tasks { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Queues a task, due at once (0) or at this time in clock nanoseconds. Returns it if the tasks
    /// are closed.
    pub fn push(&self, class: OperationClass, at_ns: u64, task: T) -> Result<(), T> {
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

    /// Waits for the next task, for a thread whose last one was `before`. Returns `None` once the
    /// tasks are closed.
    pub fn wait(&self, now_ns: impl Fn() -> u64, before: Option<Served>) -> Option<(OperationClass, T)> {
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

    /// Takes the due task that a random number chooses, without a wait.
    pub fn pick(&self, now_ns: u64, number: u64) -> Option<T> {
        let mut state = model::lock(&self.state);
        state.move_due(|| now_ns);
        let nth = number.checked_rem(state.now.len() as u64)? as usize;
        state.now.remove(nth)
    }

    /// Returns true if a task is due.
    pub fn is_ready(&self, now_ns: u64) -> bool {
        let state = model::lock(&self.state);
        state.now.len() > 0 || state.later.first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns)
    }

    /// Closes the tasks. Returns those that are left.
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
