//! Futures of requests.

use crate::context::Context as StoreContext;
use crate::write::fate::of_unknown_fate;
use base::completion::Completion;
use base::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A key and its value, in this order, as a page of an asynchronous scan contains them.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Delivers the answer of a submitted request: await it in any runtime, poll it with
/// [`Request::take`], or hand it to a [`crate::RequestQueue`].
///
/// A thread of the store wakes the task. Dropping the future does not cancel the request; its
/// answer is lost. The future does not keep the store open: a close resolves it, with `Closed` if
/// the request was not performed. Errors have the kinds of the blocking call. Polled again after
/// its answer, the future stays pending.
#[must_use = "what became of it is told here and nowhere else"]
pub struct Request<T>(Completion<T>);

impl<T> Request<T> {
    pub(crate) fn new(completion: Completion<T>) -> Request<T> {
        Request(completion)
    }

    pub(crate) fn known(answer: Result<T>) -> Request<T> {
        Request(Completion::known(answer))
    }

    /// Returns the answer without waiting, for loops that poll: once when it is known, and `None`
    /// before and afterwards. It registers no waker: await the request where a task should sleep
    /// until the answer.
    pub fn take(&mut self) -> Option<Result<T>> {
        self.0.take()
    }
}

impl<T> Future for Request<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> std::fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

/// Delivers the outcome of a submitted write: await it to know that the write has its durability.
///
/// [`WriteRequest::visible`] and [`WriteRequest::durable`] are separate futures for the two stages.
/// Dropping the future does not cancel the write. After `Io`, and after `Closed` of a visible
/// write, the next open decides whether the write exists; after another error it was not performed.
#[must_use = "before it has resolved, what was written may be lost"]
#[derive(Debug)]
pub struct WriteRequest {
    visible: Request<()>,
    done: Request<()>,
    is_durable: bool,
    /// The error from [`WriteRequest::durable`] for a write that was not submitted as durable.
    refusal: Option<Request<()>>,
}

impl WriteRequest {
    pub(crate) fn new((visible, done): (Completion<()>, Completion<()>), is_durable: bool) -> WriteRequest {
        WriteRequest { visible: Request(visible), done: Request(done), is_durable, refusal: None }
    }

    /// Completes when the write is visible to readers, to read one's own write before it is
    /// durable: until then a durable write may be lost in a crash. [`WriteRequest::durable`] is the
    /// other stage. The answer comes once; the request can still be awaited. After an error other
    /// than `Io` the write was not performed.
    pub fn visible(&mut self) -> &mut Request<()> {
        &mut self.visible
    }

    /// Completes when the write is durable, in a program that acknowledges after
    /// [`WriteRequest::visible`] or here. It implies [`WriteRequest::visible`]. The same as
    /// awaiting the request itself, but it fails with `InvalidArgument` if the write was not
    /// submitted as durable; that error says nothing about the write.
    pub fn durable(&mut self) -> &mut Request<()> {
        if self.is_durable {
            return &mut self.done;
        }
        let why = "the write was not submitted as durable: only durable writes report their \
                   durability; the write itself is not affected";
        self.refusal.insert(Request::known(Err(Error::invalid(why))))
    }

    /// Returns the two stages as two futures, to await them in different tasks: one completes when
    /// the write is visible, the other when it reaches its durability. Of a buffered or volatile
    /// write both complete without the device. Dropping one does not cancel the write.
    pub fn split(self) -> (Request<()>, Request<()>) {
        (self.visible, self.done)
    }
}

impl Future for WriteRequest {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.done).poll(context)
    }
}

/// Handles the log's result for an asynchronous durable write, as for a blocking one. After an
/// error the fate of the write is unknown. The store is poisoned, except for `NoSpace`: then the
/// log continues, or reports its own failure.
pub(crate) fn of_durable(context: &StoreContext, outcome: Result<()>) -> Result<()> {
    outcome.map_err(|e| {
        if !matches!(e.kind(), ErrorKind::Closed | ErrorKind::NoSpace) {
            context.health.poison(&e);
        }
        of_unknown_fate(e)
    })
}
