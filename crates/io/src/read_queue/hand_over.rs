//! What one thread gives to others to be done, and takes back.
//!
//! Nothing sleeps while there is something for it. A thread that finds nothing to do sleeps until something is pushed; who takes back
//! sleeps until something is given back or he is woken. Either looks again before it sleeps, under the lock under which the other changes
//! what it looks at. A wake-up that comes while nobody sleeps is kept for the next who would.

use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use std::collections::VecDeque;

struct State<T, U> {
    todo: VecDeque<T>,
    done: Vec<U>,
    /// Threads that sleep because there is nothing to do.
    idle: usize,
    woken: bool,
    closed: bool,
}

/// See the module.
pub(super) struct HandOver<T, U> {
    /// What is to be done, and what is done.
    state: Mutex<State<T, U>, rank::ReadQueue>,
    /// Something is to be done.
    work: Condvar,
    /// Something is done, or who waits for that is woken.
    ready: Condvar,
}

impl<T, U> Default for HandOver<T, U> {
    fn default() -> Self {
        let state = State { todo: VecDeque::new(), done: Vec::new(), idle: 0, woken: false, closed: false };
        HandOver { state: Mutex::new(state), work: Condvar::new(), ready: Condvar::new() }
    }
}

impl<T, U> HandOver<T, U> {
    /// True if one more to be done would find nobody who has nothing to do.
    pub fn is_short_of_threads(&self) -> bool {
        let state = model::lock(&self.state);
        state.idle <= state.todo.len()
    }

    /// Something to be done.
    pub fn push(&self, task: T) {
        model::lock(&self.state).todo.push_back(task);
        self.work.notify_one();
    }

    /// For a thread: the next to be done, which is waited for. `None`: there will be nothing.
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

    /// It is done.
    pub fn give_back(&self, done: U) {
        model::lock(&self.state).done.push(done);
        self.ready.notify_one();
    }

    /// Who takes back, or would next, sleeps no more.
    pub fn wake(&self) {
        model::lock(&self.state).woken = true;
        self.ready.notify_one();
    }

    /// Takes what is done. With `wait`: sleeps while that is nothing. True if it was woken.
    pub fn take(&self, wait: bool, into: &mut Vec<U>) -> bool {
        let mut state = model::lock(&self.state);
        while wait && state.done.is_empty() && !state.woken {
            state = model::wait(&self.ready, state);
        }
        into.append(&mut state.done);
        std::mem::take(&mut state.woken)
    }

    /// What is not begun will not be, and threads end.
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

    /// Everything that is given comes back, and nobody sleeps over it.
    #[test]
    fn what_is_given_comes_back() {
        model::check(2, || {
            let shared: Arc<HandOver<u32, u32>> = Arc::default();
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

    /// A wake-up is never lost, whenever it comes.
    #[test]
    fn who_is_woken_wakes() {
        model::check(3, || {
            let shared: Arc<HandOver<u32, u32>> = Arc::default();
            let waker = shared.clone();
            let thread = loom::thread::spawn(move || waker.wake());
            assert!(shared.take(true, &mut Vec::new()));
            thread.join().unwrap();
        });
    }
}
