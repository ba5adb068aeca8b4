//! Work queue between one thread and its worker threads, in both directions.
//!
//! No thread sleeps while there is work for it. A worker without work sleeps until a task is
//! pushed. The owner sleeps until a result is returned or it is woken. Both check again before they
//! sleep, under the lock under which the other side makes its change. A wake-up without a sleeper
//! is kept for the next one.

use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use std::collections::VecDeque;

struct WorkQueueState<T, U> {
    todo: VecDeque<T>,
    done: Vec<U>,
    /// Workers that sleep for lack of work.
    idle: usize,
    woken: bool,
    closed: bool,
}

/// Tasks and results; see the module.
pub(super) struct WorkQueue<T, U> {
    /// Tasks to do, and results.
    state: Mutex<WorkQueueState<T, U>, rank::ReadQueue>,
    /// There is a task.
    work: Condvar,
    /// There is a result, or the owner is woken.
    ready: Condvar,
}

impl<T, U> Default for WorkQueue<T, U> {
    fn default() -> Self {
        let state =
            WorkQueueState { todo: VecDeque::new(), done: Vec::new(), idle: 0, woken: false, closed: false };
        WorkQueue { state: Mutex::new(state), work: Condvar::new(), ready: Condvar::new() }
    }
}

impl<T, U> WorkQueue<T, U> {
    /// Returns true if one more task would find no idle worker.
    pub fn is_short_of_threads(&self) -> bool {
        let state = model::lock(&self.state);
        state.idle <= state.todo.len()
    }

    /// Adds a task.
    pub fn push(&self, task: T) {
        model::lock(&self.state).todo.push_back(task);
        self.work.notify_one();
    }

    /// Returns the next task for a worker, after a wait. `None`: the queue is closed.
    pub fn next(&self) -> Option<T> {
        let mut state = model::lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(task) = state.todo.pop_front() {
                return Some(task);
            }
            state.idle += 1;
            state = model::wait(&self.work, state);
            state.idle -= 1;
        }
    }

    /// Returns a result.
    pub fn give_back(&self, done: U) {
        model::lock(&self.state).done.push(done);
        self.ready.notify_one();
    }

    /// Wakes the owner, now or at its next sleep.
    pub fn wake(&self) {
        model::lock(&self.state).woken = true;
        self.ready.notify_one();
    }

    /// Takes the results. With `wait`: sleeps while there are none. Returns true if it was woken.
    pub fn take(&self, wait: bool, into: &mut Vec<U>) -> bool {
        let mut state = model::lock(&self.state);
        while wait && state.done.is_empty() && !state.woken {
            state = model::wait(&self.ready, state);
        }
        into.append(&mut state.done);
        std::mem::take(&mut state.woken)
    }

    /// Closes the queue: tasks that have not begun are dropped, and workers end.
    pub fn close(&self) {
        model::lock(&self.state).closed = true;
        self.work.notify_all();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::loom;
    use std::sync::Arc;

    /// Every task comes back, and no thread sleeps instead.
    #[test]
    fn loom_every_task_is_returned() {
        model::check(2, || {
            let shared: Arc<WorkQueue<u32, u32>> = Arc::default();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        while let Some(task) = shared.next() {
                            shared.give_back(task + 10);
                        }
                    })
                })
                .collect();
            shared.push(1);
            shared.push(2);
            let mut done = Vec::new();
            while done.len() < 2 {
                shared.take(true, &mut done);
            }
            done.sort_unstable();
            assert_eq!(done, [11, 12]);
            shared.close();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// A wake-up is never lost, at any time.
    #[test]
    fn loom_no_wake_up_is_lost() {
        model::check(3, || {
            let shared: Arc<WorkQueue<u32, u32>> = Arc::default();
            let waker = shared.clone();
            let thread = loom::thread::spawn(move || waker.wake());
            assert!(shared.take(true, &mut Vec::new()));
            thread.join().unwrap();
        });
    }
}
