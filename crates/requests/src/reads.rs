//! Device reads of point reads and scans: hundreds in flight, on one thread.
//!
//! A request whose step wants bytes arrives through the [`inbox`]. One thread, the *driver*, reads
//! the wanted bytes with an [`io::ReadQueue`], which keeps up to 256 reads in flight while the
//! thread does other work. As they complete, the requests that waited take their next step, and the
//! last step resolves the request. [`scheduler`] decides which reads are in flight. A step that
//! would wait for anything but a read runs on the threads of the reactor ([`crate::blocking`]), and
//! then the request returns.
//!
//! The driver sleeps where it waits for reads, or in the inbox if none is in flight. In simulation
//! there is no thread: a caller that waits takes a turn of the driver, in which one read completes,
//! chosen by the seed.
//!
//! Buffers of reads in flight belong to the queue. At a close the driver first drops the queue,
//! which waits for its reads, and then the requests, which are resolved with `Closed`.

mod inbox;
mod scheduler;

use crate::guard::guarded;
use crate::resumable::{ReadStep, ResumableRead};
use base::sync::{Mutex, OnceLock, lock, rank};
use inbox::Inbox;
use io::{ReadQueue, ReadWaker};
use scheduler::fairness::BufferBytes;
use scheduler::{BUFFER_BYTES_MAX, ReadScheduler};
use std::sync::Arc;
use store::context::Context;
use table::BlockRequest;

pub(crate) use scheduler::Ticket;

/// Bound on requests in the inbox that hold blocks or files; concurrent submissions may exceed it.
const INBOX_MAX: usize = 256;

/// Device reads of all requests, and their driver; see the module.
pub(crate) struct Reads {
    context: Arc<Context>,
    inbox: Inbox<Submission>,
    /// Wakes the driver, if that is a thread, where it waits for reads.
    waker: OnceLock<ReadWaker>,
    /// The driver, unless a thread has it, or it takes a turn. In simulation any waiting caller may
    /// take one, the writer too.
    driver: Mutex<Option<Driver>, rank::SimulatedJobs>,
    /// Buffers of unfinished requests.
    buffers: Arc<BufferBytes>,
}

/// A request, and its wants.
type Submission = (Ticket, Vec<BlockRequest>);

/// The reads in flight, and the right to drive them.
struct Driver {
    queue: Option<ReadQueue>,
    scheduler: ReadScheduler,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The reads in flight end before the requests that wait for them.
        self.queue = None;
    }
}

impl Reads {
    pub fn new(context: &Arc<Context>) -> Arc<Reads> {
        let buffers: Arc<BufferBytes> = Arc::default();
        let driver = Driver { queue: None, scheduler: ReadScheduler::new(&buffers) };
        Arc::new(Reads {
            context: context.clone(),
            inbox: Inbox::default(),
            waker: OnceLock::new(),
            driver: Mutex::new(Some(driver)),
            buffers,
        })
    }

    /// Returns the ticket of a new request.
    pub fn ticket(&self, read: Box<dyn ResumableRead>) -> Ticket {
        Ticket::new(read, &self.buffers)
    }

    /// Submits a request with its wants, at least one. Returns false if the store is closed; the
    /// request is dropped then.
    pub fn submit(&self, mut ticket: Ticket, mut wants: Vec<BlockRequest>) -> bool {
        debug_assert!(!wants.is_empty(), "a request without wants would never be resolved");
        // The driver is behind: the request repeats its step once the driver takes it, and holds
        // nothing until then.
        if !ticket.is_scan() && self.inbox.len() >= INBOX_MAX {
            ticket.read().forget();
            wants.clear();
        }
        self.inbox.push((ticket, wants), || self.wake()).is_ok()
    }

    /// Returns true if buffers leave room for another scan.
    pub fn has_room(&self) -> bool {
        self.buffers.all() <= BUFFER_BYTES_MAX / 4
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Runs the driver's thread; `block` takes requests that need a step which may block. Ends at a
    /// close, or after a panic outside of a step: then it closes the inbox, or later submissions
    /// would wait forever.
    pub fn run(&self, block: impl Fn(Ticket)) {
        let Some(mut driver) = lock(&self.driver).take() else { return };
        let queue = driver.queue.insert(ReadQueue::new(&self.context.env));
        let _ = self.waker.set(queue.waker());
        let drive = || {
            while let Some(submissions) = self.inbox.take(!driver.scheduler.is_empty()) {
                let waits = submissions.is_empty();
                driver.turn(&self.context, submissions, waits).into_iter().for_each(&block);
            }
        };
        if guarded(&self.context.health, drive).is_none() {
            drop(self.inbox.close(|| {}));
        }
    }

    /// In simulation: returns true if a turn would do something.
    pub fn is_ready(&self) -> bool {
        let in_flight = lock(&self.driver).as_ref().map(|driver| !driver.scheduler.is_empty());
        in_flight.is_some_and(|in_flight| in_flight || self.inbox.len() > 0)
    }

    /// In simulation: takes a turn of the driver. Returns requests that need a step which may
    /// block.
    pub fn turn(&self) -> Vec<Ticket> {
        let Some(mut driver) = lock(&self.driver).take() else { return Vec::new() };
        let Some(submissions) = self.inbox.take_now() else { return Vec::new() };
        // A completion that is resolved in this turn takes no turn of its own.
        let blocked = driver.turn(&self.context, submissions, false);
        *lock(&self.driver) = Some(driver);
        blocked
    }

    /// Closes it: waiting requests are resolved with `Closed`, by the driver's thread if that has
    /// them.
    pub fn close(&self) {
        drop(self.inbox.close(|| self.wake()));
        let driver = lock(&self.driver).take();
        drop(driver);
    }
}

impl Driver {
    /// Takes submissions, starts device reads, and resumes requests whose reads have completed;
    /// with `waits` it first waits for a completion or a wake-up. Returns requests that need a step
    /// which may block.
    fn turn(&mut self, context: &Context, submissions: Vec<Submission>, waits: bool) -> Vec<Ticket> {
        submissions.into_iter().for_each(|(ticket, wants)| self.scheduler.add(ticket, wants));
        let mut blocked = self.scheduler.admit(|ticket| step(context, ticket));
        let queue = self.queue.get_or_insert_with(|| ReadQueue::new(&context.env));
        self.scheduler.dispatch(queue);
        for done in queue.complete(waits && blocked.is_empty()) {
            self.scheduler.complete(done.token, done.read);
        }
        blocked.extend(self.scheduler.resume(|ticket| step(context, ticket)));
        blocked
    }
}

/// Takes a step of a request. Returns `None` for a finished one, which is resolved.
fn step(context: &Context, mut ticket: Ticket) -> Option<(Ticket, Vec<BlockRequest>)> {
    // A panic drops the request, which resolves it.
    guarded(&context.health, || match ticket.read().step(false) {
        ReadStep::Wants(wants) => Some((ticket, wants)),
        ReadStep::Done => {
            ticket.resolve();
            None
        }
    })
    .flatten()
}

#[cfg(all(test, not(loom)))]
mod tests;
