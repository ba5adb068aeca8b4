//! Futures of requests.

use crate::context::Context as StoreContext;
use crate::write::fate::of_unknown_fate;
use base::completion::Completion;
use base::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A key and its value, as a page of a scan contains them.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The future of a submitted request, for any runtime; dropping it does not cancel the request.
///
/// A thread of the store wakes the task. The future does not keep the store open: a close resolves
/// it, with `Closed` if the request was not performed. An error has the kind of the blocking call.
#[must_use = "what became of it is told here and nowhere else"]
pub struct Request<T>(Completion<T>);

impl<T> Request<T> {
    pub(crate) fn new(completion: Completion<T>) -> Request<T> {
        Request(completion)
    }

    pub(crate) fn known(answer: Result<T>) -> Request<T> {
        Request(Completion::known(answer))
    }

    /// Returns the answer once it is known, and `None` before and afterwards, for loops that poll.
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

/// The future of a submitted write, which resolves when the write has its durability.
///
/// [`WriteRequest::visible`] and [`WriteRequest::durable`] are separate futures for the two stages.
/// Dropping the future does not cancel the write. After an error other than `Io` the write was not
/// performed.
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

    /// Completes when the write is visible to readers, which precedes its durability: until then a
    /// durable write may be lost. After an error other than `Io` the write was not performed.
    pub fn visible(&mut self) -> &mut Request<()> {
        &mut self.visible
    }

    /// Completes when the write is durable. Fails with `InvalidArgument` if the write was not
    /// submitted as durable; that error says nothing about the write.
    pub fn durable(&mut self) -> &mut Request<()> {
        if self.is_durable {
            return &mut self.done;
        }
        let why = "the write was not submitted as durable: only durable writes report their \
                   durability";
        self.refusal.insert(Request::known(Err(Error::invalid(why))))
    }

    /// Returns two futures: one completes when the write is visible, the other when it reaches its
    /// durability.
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
