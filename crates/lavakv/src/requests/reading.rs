//! Asynchronous point reads, of one key or of several, as the reactor drives them
//! ([`ResumableRead`]).

use super::request::Request;
use crate::context::Context;
use crate::context::times::Times;
use crate::read::pending::{FoundValue, PendingGet, PendingMultiGet, Progress};
use crate::read::read_path::Value;
use crate::tree::family::Family;
use base::Result;
use base::completion::Completer;
use cache::Block;
use io::timing::{Begun, Timing};
use requests::{ReadStep, ResumableRead};
use std::sync::Arc;
use table::{BlockRequest, FetchCost};

/// A read of one key or of several.
pub(crate) trait PointRead: Send {
    /// Result of the last step.
    type Found: Send;
    /// Answer to the caller.
    type Answer: Send + 'static;
    /// See [`ResumableRead::needs_all`].
    const NEEDS_ALL: bool;

    /// Returns the timing of this kind of read.
    fn timing(times: &Times) -> &Timing;
    /// See [`ResumableRead::step`].
    fn step(&mut self, may_block: bool) -> Progress<Self::Found>;
    /// See [`ResumableRead::deliver`].
    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost);
    /// See [`ResumableRead::close_files`].
    fn close_files(&mut self);
    /// See [`ResumableRead::forget`].
    fn forget(&mut self);
    /// See [`ResumableRead::phase`].
    fn phase(&self) -> usize;
    /// True if a large value has yet to be read, which blocks.
    fn is_large(found: &Self::Found) -> bool;
    /// Returns the answer. Blocks for a large value.
    fn answer(found: Self::Found) -> Result<Self::Answer>;
}

/// A point read in flight: see the module.
pub(crate) struct Reading<P: PointRead> {
    read: P,
    found: Option<P::Found>,
    answer: Option<Result<P::Answer>>,
    family: Arc<Family>,
    context: Arc<Context>,
    begun: Begun,
    /// The completer, once the read is in flight.
    done: Option<Completer<P::Answer>>,
}

impl<P: PointRead> Reading<P> {
    pub fn new(context: &Arc<Context>, family: &Arc<Family>, begun: Begun, read: P) -> Reading<P> {
        let (context, family) = (context.clone(), family.clone());
        Reading { read, found: None, answer: None, family, context, begun, done: None }
    }

    /// Sets the completer of a read in flight.
    pub fn completed_by(self, done: Completer<P::Answer>) -> Reading<P> {
        Reading { done: Some(done), ..self }
    }

    /// Completes a read that needed no wait.
    pub fn known(self) -> Request<P::Answer> {
        Request::known(self.end().0)
    }

    /// Returns the answer and the completer, and releases everything that the read has pinned.
    fn end(self) -> (Result<P::Answer>, Option<Completer<P::Answer>>) {
        let Reading { answer, family, context, begun, done, .. } = self;
        P::timing(&context.times).end(begun);
        let answer = answer.unwrap_or_else(|| unreachable!("it is over"));
        (answer.and_then(|answer| family.check_there().map(|()| answer)), done)
    }
}

impl<P: PointRead> ResumableRead for Reading<P> {
    fn step(&mut self, may_block: bool) -> ReadStep {
        if self.found.is_none() {
            match self.read.step(may_block) {
                Progress::Wants(wants) => return ReadStep::Wants(wants),
                Progress::Done(found) => self.found = Some(found),
            }
        }
        match self.found.take_if(|found| may_block || !P::is_large(found)) {
            None => ReadStep::Wants(Vec::new()),
            Some(found) => {
                self.answer = Some(P::answer(found));
                ReadStep::Done
            }
        }
    }

    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        self.read.deliver(want, read, cost);
    }

    fn close_files(&mut self) {
        self.read.close_files();
    }

    fn forget(&mut self) {
        self.read.forget();
    }

    fn needs_all(&self) -> bool {
        P::NEEDS_ALL
    }

    fn phase(&self) -> usize {
        self.read.phase()
    }

    fn resolve(self: Box<Self>) {
        // All that the read has pinned is released first: the completion may lead to a close of the
        // store.
        let (answer, done) = self.end();
        if let Some(done) = done {
            done.resolve(answer);
        }
    }
}

impl PointRead for PendingGet {
    type Found = Result<Option<FoundValue>>;
    type Answer = Option<Value>;
    const NEEDS_ALL: bool = true;

    fn timing(times: &Times) -> &Timing {
        &times.get
    }

    fn step(&mut self, may_block: bool) -> Progress<Self::Found> {
        self.set_may_block(may_block);
        PendingGet::step(self)
    }

    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        PendingGet::deliver(self, want, read, cost);
    }

    fn close_files(&mut self) {
        PendingGet::close_files(self);
    }

    fn forget(&mut self) {
        PendingGet::let_go(self);
    }

    fn phase(&self) -> usize {
        0
    }

    fn is_large(found: &Self::Found) -> bool {
        matches!(found, Ok(Some(FoundValue::Large(_))))
    }

    fn answer(found: Self::Found) -> Result<Self::Answer> {
        found?.map(FoundValue::into_value).transpose()
    }
}

impl PointRead for PendingMultiGet {
    type Found = Vec<Result<Option<FoundValue>>>;
    type Answer = Vec<Option<Value>>;
    const NEEDS_ALL: bool = false;

    fn timing(times: &Times) -> &Timing {
        &times.multi_get
    }

    fn step(&mut self, may_block: bool) -> Progress<Self::Found> {
        self.set_may_block(may_block);
        PendingMultiGet::step(self)
    }

    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        PendingMultiGet::deliver(self, want, read, cost);
    }

    fn close_files(&mut self) {
        PendingMultiGet::close_files(self);
    }

    fn forget(&mut self) {
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
