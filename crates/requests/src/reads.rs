//! Reads of the device in flight, for point reads and scans: hundreds, on one thread.
//!
//! A request whose first step (in the call that makes it) wanted bytes comes here by the [`inbox`]. One thread, the *driver*, has what it
//! wants read by an [`io::ReadQueue`], which goes on with up to 256 reads while the thread does something else; as they complete, those
//! that waited take their next step, and the last step tells. Which read is when in flight is decided by [`flights`]. A step that would wait
//! for anything but a read is left to the threads of the reactor ([`crate::blocking`]), and comes back.
//!
//! The driver sleeps where it waits for reads, or in the inbox if there are none; with none in flight it does nothing. In simulation there is no
//! thread: whoever waits takes a turn of the driver, in which one read is done, drawn by the seed.
//!
//! Buffers of reads in flight are the queue's. When the store is closed the driver lets go of the queue first, which waits for what is in
//! flight, and then tells those that waited that the store was closed.

mod flights;
mod inbox;

use crate::guard::guarded;
use crate::resumable::{ReadStep, ResumableRead};
use base::sync::{Mutex, OnceLock, lock, rank};
use flights::Flights;
pub(crate) use flights::Ticket;
use flights::lines::Charged;
use inbox::Inbox;
use io::{ReadQueue, ReadWaker};
use std::sync::Arc;
use store::context::Context;
use table::Want;

/// Requests that the driver has not seen and something is held for, at most, but for those that come at the same time.
const BROUGHT_MAX: usize = 256;

/// See the module.
pub(crate) struct Reads {
    context: Arc<Context>,
    inbox: Inbox<Brought>,
    /// What wakes the driver where it waits for reads, if it is a thread.
    waker: OnceLock<ReadWaker>,
    /// The driver, unless a thread has it, or it takes a turn. In simulation whoever waits may take one, the writer too.
    driver: Mutex<Option<Driver>, rank::SimulatedJobs>,
    /// Bytes that were read for requests that are not over.
    charged: Arc<Charged>,
}

/// A request, and what is to be read for it.
type Brought = (Ticket, Vec<Want>);

/// Whoever has it drives the reads.
struct Driver {
    queue: Option<ReadQueue>,
    flights: Flights,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // First what is in flight, then who waits for it.
        self.queue = None;
    }
}

impl Reads {
    pub fn new(context: &Arc<Context>) -> Arc<Reads> {
        let charged: Arc<Charged> = Arc::default();
        let driver = Driver { queue: None, flights: Flights::new(&charged) };
        Arc::new(Reads {
            context: context.clone(),
            inbox: Inbox::default(),
            waker: OnceLock::new(),
            driver: Mutex::new(Some(driver)),
            charged,
        })
    }

    /// A request that was made.
    pub fn ticket(&self, read: Box<dyn ResumableRead>) -> Ticket {
        Ticket::new(read, &self.charged)
    }

    /// A request wants these bytes, at least one. False: the store is closed; then it is dropped, and so told.
    pub fn bring(&self, mut ticket: Ticket, mut wants: Vec<Want>) -> bool {
        debug_assert!(!wants.is_empty(), "who wants nothing would never be told");
        // The driver is behind: it looks again when it comes to it, and until then nothing is held for it.
        if ticket.has_line() && self.inbox.len() >= BROUGHT_MAX {
            ticket.read.forget();
            wants.clear();
        }
        self.inbox.push((ticket, wants), || self.wake()).is_ok()
    }

    /// True if what was read for requests that are not over leaves room for one that takes much.
    pub fn has_room(&self) -> bool {
        self.charged.all() <= flights::BYTES_MAX / 4
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The thread of the driver: `block` takes those that need a thread which may block. Ends when this is closed, or by a panic outside of a
    /// step: then this is closed, or what is brought would wait for ever.
    pub fn run(&self, block: impl Fn(Ticket)) {
        let Some(mut driver) = lock(&self.driver).take() else { return };
        let queue = driver.queue.insert(ReadQueue::new(&self.context.env));
        let _ = self.waker.set(queue.waker());
        let drive = || {
            while let Some(brought) = self.inbox.take(!driver.flights.is_empty()) {
                let waits = brought.is_empty();
                driver.turn(&self.context, brought, waits).into_iter().for_each(&block);
            }
        };
        if guarded(&self.context.health, drive).is_none() {
            drop(self.inbox.close(|| {}));
        }
    }

    /// True if a turn would do something. For simulation.
    pub fn is_ready(&self) -> bool {
        let flying = lock(&self.driver).as_ref().map(|driver| !driver.flights.is_empty());
        flying.is_some_and(|flying| flying || self.inbox.len() > 0)
    }

    /// In simulation: a turn of the driver. Those that need a step that may block.
    pub fn turn(&self) -> Vec<Ticket> {
        let Some(mut driver) = lock(&self.driver).take() else { return Vec::new() };
        let Some(brought) = self.inbox.take_now() else { return Vec::new() };
        // Who hears of an answer does not drive reads meanwhile.
        let back = driver.turn(&self.context, brought, false);
        *lock(&self.driver) = Some(driver);
        back
    }

    /// Ends it: who waits is told that the store was closed, unless by the thread of the driver.
    pub fn close(&self) {
        drop(self.inbox.close(|| self.wake()));
        let driver = lock(&self.driver).take();
        drop(driver);
    }
}

impl Driver {
    /// Takes what was brought, begins what there is room for, and goes on with what is there; with `waits` waits for that first, unless it is
    /// woken.
    fn turn(&mut self, context: &Context, brought: Vec<Brought>, waits: bool) -> Vec<Ticket> {
        brought.into_iter().for_each(|(ticket, wants)| self.flights.add(ticket, wants));
        let mut back = self.flights.admit(|ticket| step(context, ticket));
        let queue = self.queue.get_or_insert_with(|| ReadQueue::new(&context.env));
        self.flights.begin(queue);
        for done in queue.complete(waits && back.is_empty()) {
            self.flights.land(done.token, done.read);
        }
        back.extend(self.flights.go_on(|ticket| step(context, ticket)));
        back
    }
}

/// `None` if it is over, and was told.
fn step(context: &Context, mut ticket: Ticket) -> Option<(Ticket, Vec<Want>)> {
    // If it panics it is dropped, and so told.
    guarded(&context.health, || match ticket.read.step(false) {
        ReadStep::Wants(wants) => Some((ticket, wants)),
        ReadStep::Done => {
            ticket.tell();
            None
        }
    })
    .flatten()
}

#[cfg(all(test, not(loom)))]
mod tests;
