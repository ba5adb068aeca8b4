//! A point read in flight, of one key or of many. Who drives it knows neither: it goes on, wants bytes, takes them, and in the end it is
//! told.
//!
//! A step never waits for the device. What a step could only do by waiting (a file is to be opened, a large value to be read), and what would
//! take long, it leaves undone where it may not block; one that wants nothing, lacks nothing and is not over is such a one, and needs a thread
//! that may.

use super::request::Request;
use crate::context::Context;
use crate::context::times::Times;
use crate::read::pending::{Found, PendingGet, PendingMultiGet, Progress};
use crate::read::read_path::Value;
use crate::tree::family::Family;
use base::completion::Completer;
use base::{Error, ErrorKind, Result};
use cache::Block;
use io::timing::{Begun, Timing};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use table::{FetchCost, Want};

/// How far a step came.
pub(crate) enum Stepped {
    /// These are to be read.
    Wants(Vec<Want>),
    /// The answer is there, and can be told.
    Over,
}

/// A read, whatever it reads.
pub(crate) trait InFlight: Send {
    /// Goes on as far as it comes without a read; where it may not block, without anything else that waits.
    fn step(&mut self, may_block: bool) -> Stepped;
    /// Hands over the bytes of a want, or why they could not be read.
    fn put(&mut self, want: &Want, read: Result<Block>, cost: FetchCost);
    /// Lets go of files that were opened for a step.
    fn close_files(&mut self);
    /// Forgets what was wanted and handed over: the next step wants it again.
    fn let_go(&mut self);
    /// True if the next step is to wait until all that was wanted is handed over.
    fn needs_all(&self) -> bool;
    /// Changes when it lets go of what was handed over.
    fn phase(&self) -> usize;
    /// How many bytes it holds of what was handed over, if it may be anything but all of it.
    fn held_bytes(&mut self) -> Option<u64> {
        None
    }
    /// Tells the answer, and lets go of everything before.
    fn tell(self: Box<Self>);
}

/// What is read: a key, or several.
pub(crate) trait PointRead: Send {
    /// What the last step ends with.
    type Found: Send;
    /// What is told.
    type Answer: Send + 'static;
    /// See [`InFlight::needs_all`].
    const NEEDS_ALL: bool;

    /// Of its kind.
    fn timing(times: &Times) -> &Timing;
    /// See [`InFlight::step`].
    fn step(&mut self, may_block: bool) -> Progress<Self::Found>;
    /// See [`InFlight::put`].
    fn put(&mut self, want: &Want, read: Result<Block>, cost: FetchCost);
    /// See [`InFlight::close_files`].
    fn close_files(&mut self);
    /// See [`InFlight::let_go`].
    fn let_go(&mut self);
    /// See [`InFlight::phase`].
    fn phase(&self) -> usize;
    /// True if a value is still to be read, which blocks.
    fn is_large(found: &Self::Found) -> bool;
    /// The answer. Blocks if it is large.
    fn answer(found: Self::Found) -> Result<Self::Answer>;
}

/// See the module.
pub(crate) struct Reading<P: PointRead> {
    read: P,
    found: Option<P::Found>,
    answer: Option<Result<P::Answer>>,
    family: Arc<Family>,
    context: Arc<Context>,
    begun: Begun,
    /// Who is told, once it is in flight.
    done: Option<Completer<P::Answer>>,
}

impl<P: PointRead> Reading<P> {
    pub fn new(context: &Arc<Context>, family: &Arc<Family>, begun: Begun, read: P) -> Reading<P> {
        let (context, family) = (context.clone(), family.clone());
        Reading { read, found: None, answer: None, family, context, begun, done: None }
    }

    /// It is in flight from here on.
    pub fn told_to(self, done: Completer<P::Answer>) -> Reading<P> {
        Reading { done: Some(done), ..self }
    }

    /// What it came to, where nobody had to wait for it.
    pub fn known(self) -> Request<P::Answer> {
        Request::known(self.end().0)
    }

    /// What it came to, and who is told; everything else goes.
    fn end(self) -> (Result<P::Answer>, Option<Completer<P::Answer>>) {
        let Reading { answer, family, context, begun, done, .. } = self;
        P::timing(&context.times).end(begun);
        let answer = answer.unwrap_or_else(|| unreachable!("it is over"));
        (answer.and_then(|answer| family.check_there().map(|()| answer)), done)
    }
}

impl<P: PointRead> InFlight for Reading<P> {
    fn step(&mut self, may_block: bool) -> Stepped {
        if self.found.is_none() {
            match self.read.step(may_block) {
                Progress::Wants(wants) => return Stepped::Wants(wants),
                Progress::Done(found) => self.found = Some(found),
            }
        }
        match self.found.take_if(|found| may_block || !P::is_large(found)) {
            None => Stepped::Wants(Vec::new()),
            Some(found) => {
                self.answer = Some(P::answer(found));
                Stepped::Over
            }
        }
    }

    fn put(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        self.read.put(want, read, cost);
    }

    fn close_files(&mut self) {
        self.read.close_files();
    }

    fn let_go(&mut self) {
        self.read.let_go();
    }

    fn needs_all(&self) -> bool {
        P::NEEDS_ALL
    }

    fn phase(&self) -> usize {
        self.read.phase()
    }

    fn tell(self: Box<Self>) {
        // What it pinned goes before anybody hears of it: who hears may close the store.
        let (answer, done) = self.end();
        if let Some(done) = done {
            done.resolve(answer);
        }
    }
}

impl PointRead for PendingGet {
    type Found = Result<Option<Found>>;
    type Answer = Option<Value>;
    const NEEDS_ALL: bool = true;

    fn timing(times: &Times) -> &Timing {
        &times.get
    }

    fn step(&mut self, may_block: bool) -> Progress<Self::Found> {
        self.set_may_block(may_block);
        PendingGet::step(self)
    }

    fn put(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        self.deliver(want, read, cost);
    }

    fn close_files(&mut self) {
        PendingGet::close_files(self);
    }

    fn let_go(&mut self) {
        PendingGet::let_go(self);
    }

    fn phase(&self) -> usize {
        0
    }

    fn is_large(found: &Self::Found) -> bool {
        matches!(found, Ok(Some(Found::Large(_))))
    }

    fn answer(found: Self::Found) -> Result<Self::Answer> {
        found?.map(Found::into_value).transpose()
    }
}

impl PointRead for PendingMultiGet {
    type Found = Vec<Result<Option<Found>>>;
    type Answer = Vec<Option<Value>>;
    const NEEDS_ALL: bool = false;

    fn timing(times: &Times) -> &Timing {
        &times.multi_get
    }

    fn step(&mut self, may_block: bool) -> Progress<Self::Found> {
        self.set_may_block(may_block);
        PendingMultiGet::step(self)
    }

    fn put(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        self.deliver(want, read, cost);
    }

    fn close_files(&mut self) {
        PendingMultiGet::close_files(self);
    }

    fn let_go(&mut self) {
        PendingMultiGet::let_go(self);
    }

    fn phase(&self) -> usize {
        self.keys_left()
    }

    fn is_large(found: &Self::Found) -> bool {
        found.iter().any(PendingGet::is_large)
    }

    fn answer(found: Self::Found) -> Result<Self::Answer> {
        found.into_iter().map(PendingGet::answer).collect()
    }
}

/// Does something for a request. A panic, which is a bug, must not take the thread away, for others wait for it: it poisons the store. `None`: it
/// panicked.
pub(crate) fn guarded<T>(context: &Context, act: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(act));
    if done.is_err() {
        let why = "a request in the background panicked; reopen the store";
        context.health.poison(&Error::new(ErrorKind::Poisoned, why));
    }
    done.ok()
}
