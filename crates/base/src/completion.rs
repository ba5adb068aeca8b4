//! Completion of an asynchronous operation: one part resolves it, the other is a future, or can be
//! polled without a task.
//!
//! There is no runtime. The resolving thread wakes the task that polled last, after it has released
//! the lock. So a waker must do only what wakers do, and above all not call the resolving
//! component.
//!
//! Invariants: a completion is resolved once. A [`Completer`] that is dropped unresolved resolves
//! it with `Closed`, so no waiter waits forever. Dropping the future loses only the answer. The
//! waker of the last poll is kept. A poll without an answer stores its waker before it releases the
//! lock, so a later answer finds the waker.
//!
//! Work that must be done with the answer before any thread sees it is a function instead of a
//! future ([`Completer::calling`]). The resolving thread calls this function once.

use crate::process::Process;
use crate::sync::model::{Mutex, lock};
use crate::sync::rank;
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Progress of a completion.
enum State<T> {
    /// No answer yet; the waker, if any.
    Pending(Option<Waker>),
    /// The answer.
    Known(Result<T>),
    /// The answer was taken.
    Taken,
}

/// State shared by the two parts.
struct Slot<T> {
    /// The process that resolves it: a child never waits.
    process: Process,
    /// Guards the progress.
    state: Mutex<State<T>, rank::Completion>,
}

/// The waiting part: a future. Dropping it discards the answer.
#[must_use = "what became of it is told here and nowhere else"]
pub struct Completion<T>(Known<T>);

/// Place of the answer.
enum Known<T> {
    /// In this value from the beginning, until it is taken.
    Here(Option<Result<T>>),
    /// In a slot, where the completer puts it.
    There(Arc<Slot<T>>),
}

/// The resolving part.
#[must_use = "dropped, it says that nobody knows what became of it"]
pub struct Completer<T>(Option<Whom<T>>);

/// Receiver of the answer.
enum Whom<T> {
    Future(Arc<Slot<T>>),
    Function(Box<dyn FnOnce(Result<T>) + Send>),
}

/// Returns the two parts of an unresolved completion.
pub fn pending<T>() -> (Completer<T>, Completion<T>) {
    let slot = Arc::new(Slot { process: Process::here(), state: Mutex::new(State::Pending(None)) });
    (Completer(Some(Whom::Future(slot.clone()))), Completion(Known::There(slot)))
}

impl<T> Completion<T> {
    /// Returns a resolved completion.
    pub fn known(answer: Result<T>) -> Completion<T> {
        Completion(Known::Here(Some(answer)))
    }

    /// Takes the answer, once; `None` before and after.
    pub fn take(&mut self) -> Option<Result<T>> {
        self.look(None)
    }

    /// Takes the answer; if there is none yet, keeps `waker` to be woken.
    fn look(&mut self, waker: Option<&Waker>) -> Option<Result<T>> {
        let slot = match &mut self.0 {
            Known::Here(answer) => return answer.take(),
            Known::There(slot) => slot,
        };
        if let Err(e) = slot.process.check() {
            self.0 = Known::Here(None);
            return Some(Err(e));
        }
        let mut state = lock(&slot.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Known(answer) => Some(answer),
            State::Taken => None,
            State::Pending(before) => {
                let before = match (before, waker) {
                    (Some(before), Some(now)) if before.will_wake(now) => Some(before),
                    (_, Some(now)) => Some(now.clone()),
                    (before, None) => before,
                };
                *state = State::Pending(before);
                None
            }
        }
    }
}

/// The completion is moved as a whole, and nothing points into it.
impl<T> Unpin for Completion<T> {}

/// Polled again after the answer it stays pending.
impl<T> Future for Completion<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.look(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Completer<T> {
    /// Returns a completer without a future: `then` is called with the answer, once, on the
    /// resolving thread. The function is subject to the limits of wakers.
    pub fn calling(then: impl FnOnce(Result<T>) + Send + 'static) -> Completer<T> {
        Completer(Some(Whom::Function(Box::new(then))))
    }

    /// Resolves the completion.
    pub fn resolve(mut self, answer: Result<T>) {
        if let Some(whom) = self.0.take() {
            settle(whom, answer);
        }
    }
}

fn settle<T>(whom: Whom<T>, answer: Result<T>) {
    let slot = match whom {
        Whom::Future(slot) => slot,
        Whom::Function(then) => return then(answer),
    };
    let before = std::mem::replace(&mut *lock(&slot.state), State::Known(answer));
    if let State::Pending(Some(waker)) = before {
        waker.wake();
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(whom) = self.0.take() {
            let why = "the store was closed before the request completed, so its outcome is \
                       unknown: reopen the store and read the data";
            settle(whom, Err(Error::new(ErrorKind::Closed, why)));
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
