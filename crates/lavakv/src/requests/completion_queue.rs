//! Requests for a loop without futures: each goes in with a token, and comes out with its answer,
//! in the order in which they are over.
//!
//! The queue is the task of all its requests: it polls each once, with a waker that leaves the
//! number of the request where the loop looks. So a request needs nothing of its own to be in a
//! queue, and the loop asks only those that have something to say.

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

/// What a request came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A write is what was promised; a flush is over.
    Done,
    /// The value of a key.
    Value(Option<Value>),
    /// The values of several keys, in their order.
    Values(Vec<Option<Value>>),
    /// A page of a scan.
    Entries(Vec<Entry>),
}

/// A request as a queue takes it: any kind. Of a write it is what resolves when it is what its
/// durability promises.
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

/// The numbers of requests that are over, and the loop that may wait for one.
#[derive(Default)]
struct Over {
    /// The numbers, in the order in which they were told.
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

    /// Waits for one, at most so long.
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

/// Leaves the number of a request where the loop looks.
struct Tell {
    over: Arc<Over>,
    number: u64,
}

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.over.tell(self.number);
    }
}

/// See the module.
pub struct RequestQueue {
    context: Arc<StoreContext>,
    over: Arc<Over>,
    /// Those in flight, by number, with their tokens.
    in_flight: HashMap<u64, (u64, AnyRequest)>,
    /// Those that were over when they were submitted.
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

    /// Takes a request, which comes out with this token when it is over.
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

    /// A request that is over, if there is one: its token, and what it came to.
    pub fn poll(&mut self) -> Option<(u64, Result<Outcome>)> {
        if let Some(known) = self.known.pop_front() {
            return Some(known);
        }
        if let Err(e) = self.context.check_process() {
            // No thread of a child resolves any.
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

    /// As [`RequestQueue::poll`], but waits for one, at most so long (`None`: as long as it takes).
    /// `None`: the time is over, or there is none in the queue. On a simulated machine it drives
    /// the store.
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

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.in_flight.len() + self.known.len()
    }

    /// True if none is in it.
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
