//! A completion queue for loops without futures: requests are submitted with a token, and completed
//! in the order in which they end.
//!
//! The queue is the task of all its requests. It polls each once, with a waker that puts the number
//! of the request into a shared list. So a queued request needs no state of its own, and the loop
//! polls only completed requests.

use super::request::{Entry, Request, WriteRequest};
use crate::context::Context as StoreContext;
use crate::read::read_path::Value;
use base::sync::model::{self, Condvar, Mutex};
use base::sync::rank;
use base::{HashMap, Result};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Carries the answer of a request in a [`RequestQueue`], by the kind of the request. An error
/// comes in its place as `Err`.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The write reached its durability; the flush ended.
    Done,
    /// The value of a key; `None` if the key is absent.
    Value(Option<Value>),
    /// The values of several keys, in their order; `None` for absent ones.
    Values(Vec<Option<Value>>),
    /// A page of a scan, in key order; empty behind the end of the range.
    Entries(Vec<Entry>),
}

/// Holds a request of any kind for [`RequestQueue::submit`], which converts by itself; name it only
/// to store mixed requests. A write completes when it reaches its durability.
pub struct AnyRequest(Kind);

enum Kind {
    Done(Request<()>),
    Value(Request<Option<Value>>),
    Values(Request<Vec<Option<Value>>>),
    Entries(Request<Vec<Entry>>),
}

impl From<WriteRequest> for AnyRequest {
    fn from(request: WriteRequest) -> Self {
        AnyRequest(Kind::Done(request.split().1))
    }
}

impl From<Request<()>> for AnyRequest {
    fn from(request: Request<()>) -> Self {
        AnyRequest(Kind::Done(request))
    }
}

impl From<Request<Option<Value>>> for AnyRequest {
    fn from(request: Request<Option<Value>>) -> Self {
        AnyRequest(Kind::Value(request))
    }
}

impl From<Request<Vec<Option<Value>>>> for AnyRequest {
    fn from(request: Request<Vec<Option<Value>>>) -> Self {
        AnyRequest(Kind::Values(request))
    }
}

impl From<Request<Vec<Entry>>> for AnyRequest {
    fn from(request: Request<Vec<Entry>>) -> Self {
        AnyRequest(Kind::Entries(request))
    }
}

impl AnyRequest {
    fn take(&mut self) -> Option<Result<Outcome>> {
        match &mut self.0 {
            Kind::Done(request) => request.take().map(|done| done.map(|()| Outcome::Done)),
            Kind::Value(request) => request.take().map(|value| value.map(Outcome::Value)),
            Kind::Values(request) => request.take().map(|values| values.map(Outcome::Values)),
            Kind::Entries(request) => request.take().map(|entries| entries.map(Outcome::Entries)),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome>> {
        match &mut self.0 {
            Kind::Done(request) => Pin::new(request).poll(context).map_ok(|()| Outcome::Done),
            Kind::Value(request) => Pin::new(request).poll(context).map_ok(Outcome::Value),
            Kind::Values(request) => Pin::new(request).poll(context).map_ok(Outcome::Values),
            Kind::Entries(request) => Pin::new(request).poll(context).map_ok(Outcome::Entries),
        }
    }
}

impl std::fmt::Debug for AnyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnyRequest")
    }
}

/// The numbers of completed requests, and the loop that may wait for one.
#[derive(Default)]
struct Over {
    /// The numbers, in the order of completion.
    numbers: Mutex<VecDeque<u64>, rank::RequestsOver>,
    told: Condvar,
}

impl Over {
    fn tell(&self, number: u64) {
        model::lock(&self.numbers).push_back(number);
        self.told.notify_one();
    }

    fn take(&self) -> Option<u64> {
        model::lock(&self.numbers).pop_front()
    }

    fn is_any(&self) -> bool {
        !model::lock(&self.numbers).is_empty()
    }

    /// Waits for a completion, up to `longest`.
    fn wait(&self, longest: Option<Duration>) {
        let numbers = model::lock(&self.numbers);
        if numbers.is_empty() {
            match longest {
                None => drop(model::wait(&self.told, numbers)),
                Some(longest) => drop(model::wait_timeout(&self.told, numbers, longest)),
            }
        }
    }
}

/// A waker that adds the number of its request to the completed ones.
struct Tell {
    over: Arc<Over>,
    number: u64,
}

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.over.tell(self.number);
    }
}

/// Collects the outcomes of many requests in an event loop without futures: it returns each
/// request's token and outcome.
///
/// Outcomes come in the order in which requests end, not in the order of submission. The queue has
/// no bound of its own: [`crate::RequestOptions::depth`] limits the requests in flight. One thread
/// uses a queue; other threads make their own. Dropping the queue cancels no request.
pub struct RequestQueue {
    context: Arc<StoreContext>,
    over: Arc<Over>,
    /// Requests in flight with their tokens, by number.
    in_flight: HashMap<u64, (u64, AnyRequest)>,
    /// Requests that completed at their submission.
    known: VecDeque<(u64, Result<Outcome>)>,
    next: u64,
}

impl RequestQueue {
    pub(crate) fn new(context: &Arc<StoreContext>) -> RequestQueue {
        RequestQueue {
            context: context.clone(),
            over: Arc::default(),
            in_flight: HashMap::default(),
            known: VecDeque::new(),
            next: 0,
        }
    }

    /// Adds a request under a token, by which the caller finds the state of the request. The queue
    /// does not check that tokens are unique. The request runs since its own call; one that has
    /// ended already comes out at the next call. The call does not block.
    pub fn submit(&mut self, request: impl Into<AnyRequest>, token: u64) {
        let mut request = request.into();
        if let Some(answer) = request.take() {
            self.known.push_back((token, answer));
            return;
        }
        self.next += 1;
        let waker = Waker::from(Arc::new(Tell { over: self.over.clone(), number: self.next }));
        match request.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => self.known.push_back((token, answer)),
            Poll::Pending => drop(self.in_flight.insert(self.next, (token, request))),
        }
    }

    /// Returns a completed request, if any: its token and its outcome, once each, in the order in
    /// which requests end. `None`: all of them are in flight, or the queue is empty. It never
    /// blocks; use [`RequestQueue::wait`] where the loop has nothing else to do.
    pub fn poll(&mut self) -> Option<(u64, Result<Outcome>)> {
        if let Some(known) = self.known.pop_front() {
            return Some(known);
        }
        if let Err(e) = self.context.check_process() {
            // No thread of a child process completes requests.
            let number = *self.in_flight.keys().next()?;
            return self.in_flight.remove(&number).map(|(token, _)| (token, Err(e)));
        }
        loop {
            let number = self.over.take()?;
            let answer = self.in_flight.get_mut(&number).and_then(|(_, request)| request.take());
            if let Some((token, _)) = answer.as_ref().and_then(|_| self.in_flight.remove(&number)) {
                return answer.map(|answer| (token, answer));
            }
        }
    }

    /// Waits for a completed request, up to `longest` (`None`: without limit), where the loop has
    /// nothing else to do. It blocks the thread until then; [`RequestQueue::poll`] never does.
    /// Returns `None` after that time, or at once if the queue is empty. A close of the store ends
    /// the wait with the outcomes of all requests. On a simulated machine it drives the store.
    pub fn wait(&mut self, longest: Option<Duration>) -> Option<(u64, Result<Outcome>)> {
        let longest_ns = longest.map(|longest| u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        let now_ns = || self.context.now_ns();
        let until_ns = longest_ns.map_or(u64::MAX, |ns| now_ns().saturating_add(ns));
        loop {
            if let Some(over) = self.poll() {
                return Some(over);
            }
            if self.in_flight.is_empty() {
                return None;
            }
            let left_ns = match until_ns {
                u64::MAX => None,
                until_ns => Some(until_ns.saturating_sub(self.context.now_ns())),
            };
            if left_ns == Some(0) {
                return None;
            }
            if self.context.env.is_simulated() {
                self.context.wait_before(until_ns, || self.over.is_any());
            } else {
                self.over.wait(left_ns.map(Duration::from_nanos));
            }
        }
    }

    /// Returns the number of requests whose outcome the loop has not taken yet, in flight or
    /// completed. `Requests::in_flight` counts those of all clones, without completed ones.
    pub fn len(&self) -> usize {
        self.in_flight.len() + self.known.len()
    }

    /// Returns true if no outcome is left to take, so that a loop may end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for RequestQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestQueue({} requests)", self.len())
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
