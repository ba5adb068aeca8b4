//! The bound on requests in flight.

use crate::context::Context;
use base::completion::Completer;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The bound, and the number in flight.
pub(crate) struct RequestAdmission {
    context: Arc<Context>,
    depth: usize,
    in_flight: AtomicUsize,
}

impl RequestAdmission {
    pub fn new(context: &Arc<Context>, depth: usize) -> Arc<RequestAdmission> {
        Arc::new(RequestAdmission { context: context.clone(), depth, in_flight: AtomicUsize::new(0) })
    }

    /// Admits a request.
    ///
    /// # Errors
    /// `Busy`: the bound is reached.
    pub fn admit(self: &Arc<Self>) -> Result<Permit> {
        let more = |n: usize| (n < self.depth).then_some(n + 1);
        if self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            self.context.stats.requests_busy.add(1);
            let why = format!(
                "the maximum number of requests in flight, {}, is reached: wait for a completion",
                self.depth
            );
            return Err(Error::new(ErrorKind::Busy, why));
        }
        self.context.stats.requests.add(1);
        Ok(Permit(self.clone()))
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }
}

/// A request in flight. Its drop ends it.
pub(crate) struct Permit(Arc<RequestAdmission>);

impl Permit {
    /// Keeps the request in flight until `completer` is resolved. It is counted out before its
    /// caller is notified.
    pub fn told<T: Send + 'static>(self, completer: Completer<T>) -> Completer<T> {
        Completer::calling(move |answer| {
            drop(self);
            completer.resolve(answer);
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.context.stats.requests_completed.add(1);
    }
}
