//! What will be known later: one part resolves it, the other is a future, or is asked now and then.
//!
//! There is no runtime: whoever resolves it wakes the task that polled it last, on his own thread, after he has let go of the lock. So
//! a waker must do no more than wakers do, and above all not call whoever resolves it.
//!
//! Invariants: it is resolved once; a [`Completer`] that goes without having done so resolves it with `Closed`, so nobody waits for
//! ever. Who drops the future loses nothing but the answer. The waker that is kept is the one of the last poll, and a poll that finds
//! nothing has left it before the lock is let go of: so an answer that comes later finds it.
//!
//! Who has to do something with the answer before anybody sees it is no future but a function ([`Completer::calling`]), which is called
//! once, by whoever resolves it.

use crate::process::Process;
use crate::sync::model::{Mutex, lock};
use crate::sync::rank;
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What is known so far.
enum State<T> {
    /// Nothing; whom to wake.
    Pending(Option<Waker>),
    /// The answer.
    Known(Result<T>),
    /// The answer was handed out.
    Taken,
}

/// What the two parts share.
struct Slot<T> {
    /// Where it is resolved: a child waits for nobody.
    process: Process,
    /// Guards what is known so far.
    state: Mutex<State<T>, rank::Completion>,
}

/// The part that waits: a future. Dropped, nobody waits any more.
#[must_use = "what became of it is told here and nowhere else"]
pub struct Completion<T>(Known<T>);

/// Where the answer is.
enum Known<T> {
    /// Here, from the beginning, until it is handed out.
    Here(Option<Result<T>>),
    /// Where whoever resolves it will put it.
    There(Arc<Slot<T>>),
}

/// The part that resolves it.
#[must_use = "dropped, it says that nobody knows what became of it"]
pub struct Completer<T>(Option<Whom<T>>);

/// Who is told.
enum Whom<T> {
    Future(Arc<Slot<T>>),
    Function(Box<dyn FnOnce(Result<T>) + Send>),
}

/// The two parts of something that is not known yet.
pub fn pending<T>() -> (Completer<T>, Completion<T>) {
    let slot = Arc::new(Slot { process: Process::here(), state: Mutex::new(State::Pending(None)) });
    (Completer(Some(Whom::Future(slot.clone()))), Completion(Known::There(slot)))
}

impl<T> Completion<T> {
    /// Something that is known already.
    pub fn known(answer: Result<T>) -> Completion<T> {
        Completion(Known::Here(Some(answer)))
    }

    /// The answer, once; `None` before and after.
    pub fn take(&mut self) -> Option<Result<T>> {
        self.look(None)
    }

    /// The answer; if there is none yet, `waker` is who will be woken.
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

/// It is moved as a whole, and nothing points into it.
impl<T> Unpin for Completion<T> {}

/// Asked again after the answer it stays pending.
impl<T> Future for Completion<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.look(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Completer<T> {
    /// One without a future: `then` is called with what became of it, once, on the thread of whoever resolves it. It is held to what wakers
    /// are held to.
    pub fn calling(then: impl FnOnce(Result<T>) + Send + 'static) -> Completer<T> {
        Completer(Some(Whom::Function(Box::new(then))))
    }

    /// Says what became of it.
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
            let why = "the store was closed before it was known what became of this";
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
