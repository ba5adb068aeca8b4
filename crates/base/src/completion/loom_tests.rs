//! Every interleaving of a waiter and a resolver: the task never sleeps while there is an answer.

use super::*;
use crate::sync::model::atomic::{AtomicBool, Ordering};
use crate::sync::model::check;
use crate::sync::model::loom::{future, thread};
use std::task::Wake;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A task that is polled and sleeps until it is woken: loom finds a lost wake-up as a task that
/// sleeps forever.
#[test]
fn loom_a_task_is_woken() {
    check(3, || {
        let (completer, completion) = pending::<u8>();
        let other = thread::spawn(move || completer.resolve(Ok(7)));
        assert!(matches!(future::block_on(completion), Ok(7)));
        other.join().unwrap();
    });
}

/// A task that changes its waker: the poll with the new waker either finds the answer, or that
/// waker is woken.
#[test]
fn loom_the_latest_waker_of_a_task_is_woken() {
    check(3, || {
        let (completer, mut completion) = pending::<u8>();
        let other = thread::spawn(move || completer.resolve(Ok(7)));
        let mut found = false;
        let flags = [0, 1].map(|_| Arc::new(Flag(AtomicBool::new(false))));
        for flag in &flags {
            let waker = Waker::from(flag.clone());
            let polled = Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
            found |= polled.is_ready();
        }
        other.join().unwrap();
        assert!(found || flags[1].0.load(Ordering::Acquire), "nobody tells the task");
        assert_ne!(found, completion.take().is_some(), "one answer");
    });
}

/// A future that is dropped while it is resolved, and a completer that is dropped.
#[test]
fn loom_either_side_of_a_completion_may_be_dropped() {
    check(3, || {
        let (completer, completion) = pending::<u8>();
        let other = thread::spawn(move || completer.resolve(Ok(7)));
        drop(completion);
        other.join().unwrap();
    });
    check(3, || {
        let (completer, completion) = pending::<u8>();
        let other = thread::spawn(move || drop(completer));
        assert!(future::block_on(completion).is_err());
        other.join().unwrap();
    });
}
