//! Writes in the order of submission.
//!
//! If the queue is empty, the submitter steps its write itself, under the lane's lock. A write
//! behind others, or one that has to wait, is queued. The reactor drives the queue by one operation
//! for each lane while it has writes. So at any time either the queue is empty, or exactly one
//! operation drives it. That operation takes the first write out, so that the write may wait for
//! the device without the lock.

use super::admission::Permit;
use super::path::RequestPath;
use crate::write::pending_write::{PendingWrite, WriteProgress};
use base::completion::{Completer, Completion, pending};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use requests::{Next, Operation, OperationClass};
use std::collections::VecDeque;
use std::sync::Arc;
use store::context::closed;

/// Writes in a row before the reactor turns to other operations.
const WRITES_AT_ONCE: usize = 64;

/// A queued write and its completers.
struct Queued {
    /// Its number, from 1, in the order of submission.
    number: u64,
    write: PendingWrite,
    visible: Completer<()>,
    done: Completer<()>,
}

impl Queued {
    fn fail(self, error: Error) {
        let error = self.write.given_up(error);
        // The write leaves its wait before its caller is notified.
        drop(self.write);
        self.visible.resolve(Err(error.clone()));
        self.done.resolve(Err(error));
    }
}

struct Line {
    waiting: VecDeque<Queued>,
    /// The earliest deadline in the queue, in clock nanoseconds. A queue may be long, so that it is
    /// searched only then.
    earliest_ns: u64,
    /// True if an operation drives the queue, or is about to.
    driven: bool,
    /// True if the store is closed.
    over: bool,
    /// Number of submitted writes.
    submitted: u64,
    /// Error of all writes after the first failure, until the lane is resumed.
    stopped: Option<Error>,
}

impl Default for Line {
    fn default() -> Self {
        Line {
            waiting: VecDeque::new(),
            earliest_ns: u64::MAX,
            driven: false,
            over: false,
            submitted: 0,
            stopped: None,
        }
    }
}

impl Line {
    fn put(&mut self, queued: Queued, first: bool) {
        self.earliest_ns = self.earliest_ns.min(queued.write.until_ns());
        if first {
            self.waiting.push_front(queued);
        } else {
            self.waiting.push_back(queued);
        }
    }

    /// Stops the lane at a failed write. Returns the writes behind it, and their error.
    fn stop(&mut self, number: u64, failure: &Error) -> (VecDeque<Queued>, Error) {
        let not_attempted = not_attempted(number, failure);
        self.stopped.get_or_insert_with(|| not_attempted.clone());
        let (behind, left) =
            std::mem::take(&mut self.waiting).into_iter().partition(|one| one.number > number);
        self.waiting = left;
        (behind, not_attempted)
    }

    /// Removes the writes whose deadline has passed.
    fn take_expired(&mut self, now_ns: u64) -> Vec<Queued> {
        if now_ns < self.earliest_ns {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (over, left): (Vec<_>, Vec<_>) = all.partition(|queued| queued.write.until_ns() <= now_ns);
        self.earliest_ns = left.iter().map(|queued| queued.write.until_ns()).min().unwrap_or(u64::MAX);
        self.waiting = left.into();
        over
    }
}

/// Writes of one submitter, in order: see the module.
pub(crate) struct Lane {
    path: Arc<RequestPath>,
    /// Whether the first failure stops the lane.
    stops: bool,
    /// The queue, and whether an operation drives it. Locked while a write with no other before it
    /// is logged.
    line: Mutex<Line, rank::RequestOrder>,
}

/// Completions of a write: it is visible; it has reached its durability.
pub(crate) type Told = (Completion<()>, Completion<()>);

impl Lane {
    pub fn new(path: &Arc<RequestPath>, stops: bool) -> Arc<Lane> {
        Arc::new(Lane { path: path.clone(), stops, line: Mutex::default() })
    }

    /// Attempts writes again after a failure.
    pub fn resume(&self) {
        lock(&self.line).stopped = None;
    }

    /// Fails the writes behind a failed one, if the lane stops at failures.
    fn failed(&self, number: u64, failure: &Error) {
        if !self.stops {
            return;
        }
        let (behind, why) = lock(&self.line).stop(number, failure);
        behind.into_iter().for_each(|queued| queued.fail(why.clone()));
    }

    /// Logs a write, now or at its turn.
    ///
    /// # Errors
    /// The write's own immediate error, nothing was written; `Closed`.
    pub fn submit(self: &Arc<Self>, mut write: PendingWrite, permit: Permit) -> Result<Told> {
        let mut line = lock(&self.line);
        if line.over {
            return Err(closed());
        }
        if let Some(why) = &line.stopped {
            return Err(why.clone());
        }
        line.submitted += 1;
        let number = line.submitted;
        let ahead = !line.driven;
        let stand = match ahead {
            true => match write.advance(false) {
                Err(e) => {
                    // No write is queued behind it.
                    line.stopped = self.stops.then(|| not_attempted(number, &e));
                    return Err(e);
                }
                Ok(stand) => Some(stand),
            },
            false => None,
        };
        let begin_ns = match stand {
            Some(WriteProgress::Done) => return Ok((Completion::known(Ok(())), Completion::known(Ok(())))),
            Some(WriteProgress::Logged(lane, position)) => {
                drop(line);
                let (completer, done) = pending();
                self.path.make_durable((lane, position), permit.told(completer));
                return Ok((Completion::known(Ok(())), done));
            }
            Some(WriteProgress::Waits(at_ns)) => at_ns,
            Some(WriteProgress::Device) | None => 0,
        };
        // A write that waits for the device is in the log, and has no deadline.
        if stand != Some(WriteProgress::Device)
            && let Some(refused) = write.expired(self.path.context().now_ns())
        {
            line.stopped = self.stops.then(|| not_attempted(number, &refused));
            return Err(refused);
        }
        let ((visible, seen), (completer, done)) = (pending(), pending());
        line.put(Queued { number, write, visible, done: permit.told(completer) }, false);
        let drives = std::mem::replace(&mut line.driven, true);
        drop(line);
        if !drives && self.path.reactor().push_at(begin_ns, Drive(self.clone())).is_err() {
            self.abandon();
        }
        Ok((seen, done))
    }

    /// Fails the queued writes, unwritten, since the store is closed.
    fn abandon(&self) {
        let waiting = {
            let mut line = lock(&self.line);
            line.over = true;
            std::mem::take(&mut line.waiting)
        };
        waiting.into_iter().for_each(|queued| queued.fail(closed()));
    }

    fn take_first(&self) -> Option<Queued> {
        let mut line = lock(&self.line);
        let first = line.waiting.pop_front();
        line.driven = first.is_some();
        first
    }

    /// Puts the first write back, since it has to wait longer, and fails the writes whose deadline
    /// has passed. Returns the next deadline.
    fn put_back(&self, first: Queued, now_ns: u64) -> u64 {
        let (expired, earliest_ns) = {
            let mut line = lock(&self.line);
            line.put(first, true);
            (line.take_expired(now_ns), line.earliest_ns)
        };
        for queued in expired {
            if let Some(why) = queued.write.expired(now_ns) {
                self.failed(queued.number, &why);
                queued.fail(why);
            }
        }
        earliest_ns
    }
}

/// Returns the error of writes behind a failed one.
fn not_attempted(number: u64, failure: &Error) -> Error {
    let why =
        format!("not attempted: the earlier write {number} failed; call resume, and submit this one again");
    Error::new(ErrorKind::Busy, why).caused_by(failure.clone())
}

/// The operation that drives a queue.
struct Drive(Arc<Lane>);

/// Guards the drive of a queue. After a panic, which is a bug, no operation drives it any more, so
/// the queued writes fail.
pub(crate) struct Driving(pub Arc<Lane>);

impl Drop for Driving {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

impl Operation for Drive {
    fn step(self: Box<Self>) -> Next {
        let driving = Driving(self.0.clone());
        let lane = &driving.0;
        for _ in 0..WRITES_AT_ONCE {
            let Some(mut first) = lane.take_first() else { return Next::Done };
            match first.write.advance(true) {
                Ok(WriteProgress::Waits(at_ns)) => {
                    let until_ns = lane.put_back(first, lane.path.context().now_ns());
                    return Next::At(at_ns.min(until_ns), self);
                }
                Ok(stand) => lane.written(first, stand),
                Err(e) => {
                    lane.failed(first.number, &e);
                    first.fail(e);
                }
            }
        }
        Next::At(0, self)
    }

    fn class(&self) -> OperationClass {
        OperationClass::Write
    }

    fn abandon(self: Box<Self>) {
        self.0.abandon();
    }
}

impl Lane {
    fn written(&self, queued: Queued, stand: WriteProgress) {
        let Queued { write, visible, done, .. } = queued;
        drop(write);
        visible.resolve(Ok(()));
        match stand {
            WriteProgress::Logged(lane, position) => self.path.make_durable((lane, position), done),
            _ => done.resolve(Ok(())),
        }
    }
}
