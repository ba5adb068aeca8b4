//! What resolves when a request is over.

use crate::context::Context as StoreContext;
use crate::write::fate::of_unknown_fate;
use base::completion::Completion;
use base::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Resolves when a request is over: a future, for any runtime. Dropped, what was asked for is done
/// all the same, and nobody is told.
///
/// It wakes its task from a thread of the store, and does not keep the store open: one that is
/// closed resolves it, with `Closed` if what was asked for was not done.
#[must_use = "what became of it is told here and nowhere else"]
pub struct Request<T>(Completion<T>);

impl<T> Request<T> {
    pub(crate) fn new(completion: Completion<T>) -> Request<T> {
        Request(completion)
    }

    pub(crate) fn known(answer: Result<T>) -> Request<T> {
        Request(Completion::known(answer))
    }

    /// The answer, once, if it is known: for a loop that asks now and then.
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

/// Resolves when a write is what its durability promises: at once when it is visible, or when it is
/// durable. Of the two, [`WriteRequest::visible`] and [`WriteRequest::durable`] tell apart.
/// Dropped, it is written all the same.
#[must_use = "before it has resolved, what was written may be lost"]
#[derive(Debug)]
pub struct WriteRequest {
    visible: Request<()>,
    done: Request<()>,
    is_durable: bool,
    /// What was told who asked when it is durable, where nothing tells.
    refusal: Option<Request<()>>,
}

impl WriteRequest {
    pub(crate) fn new((visible, done): (Completion<()>, Completion<()>), is_durable: bool) -> WriteRequest {
        WriteRequest { visible: Request(visible), done: Request(done), is_durable, refusal: None }
    }

    /// Resolves when readers see it, which is before it is durable: until then a durable write is
    /// promised nothing. With an error nothing was written, unless it is `Io`.
    pub fn visible(&mut self) -> &mut Request<()> {
        &mut self.visible
    }

    /// Resolves when it is durable; with `InvalidArgument` if that was not asked for, which says
    /// nothing of the write.
    pub fn durable(&mut self) -> &mut Request<()> {
        if self.is_durable {
            return &mut self.done;
        }
        let why = "the write was not submitted as a durable one: nothing tells when it is";
        self.refusal.insert(Request::known(Err(Error::invalid(why))))
    }

    /// The two apart: what resolves when it is visible, and what resolves when it is what its
    /// durability promises.
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

/// The log's answer to a write that waited without a thread, as a blocking one gets it: after an
/// error its fate is unknown. The store is poisoned, unless there was no room: then the log goes
/// on, and says so itself if it does not.
pub(crate) fn of_durable(context: &StoreContext, outcome: Result<()>) -> Result<()> {
    outcome.map_err(|e| {
        if !matches!(e.kind(), ErrorKind::Closed | ErrorKind::NoSpace) {
            context.health.poison(&e);
        }
        of_unknown_fate(e)
    })
}
