//! Bound on scans under way. The driver of [`Reads`] has their device reads in flight beside those
//! of point reads.
//!
//! A scan takes its steps on the threads of the reactor ([`crate::blocking`]): merging takes
//! processor time, which would delay the driver, and a step may have to open tables. While its
//! bytes are read no thread waits for it.
//!
//! Between steps a scan holds a window of blocks for each table, so many scans hold much memory. At
//! most [`SCANS_MAX`] are under way at once, fewer while buffers have a quarter of their bound. The
//! other scans are queued and hold nothing. The first in the queue begins when a scan under way
//! ends, with whatever outcome. One scan is always under way if there is any.

use crate::blocking::BlockingStep;
use crate::operation::Operation;
use crate::reads::{Reads, Ticket};
use crate::resumable::ResumableRead;
use crate::tasks::Tasks;
use base::Result;
use base::sync::model::{self, Mutex};
use base::sync::rank;
use std::collections::VecDeque;
use std::sync::Arc;
use store::context::closed;

/// Bound on scans under way.
const SCANS_MAX: usize = 64;

/// Admission of scans; see the module.
pub(crate) struct Scans {
    gate: ScanGate<Ticket>,
    tasks: Arc<Tasks<Box<dyn Operation>>>,
    reads: Arc<Reads>,
}

impl Scans {
    pub fn new(tasks: &Arc<Tasks<Box<dyn Operation>>>, reads: &Arc<Reads>) -> Arc<Scans> {
        Arc::new(Scans { gate: ScanGate::default(), tasks: tasks.clone(), reads: reads.clone() })
    }

    /// Begins a scan, or queues it.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin(self: &Arc<Self>, scan: impl ResumableRead + 'static) -> Result<()> {
        let ticket = self.reads.ticket(Box::new(scan));
        match self.gate.enter(ticket, self.has_room()) {
            Entered::Begins(ticket) => self.start(ticket).map_err(|_| closed()),
            Entered::Waits => Ok(()),
            Entered::Closed => Err(closed()),
        }
    }

    fn has_room(&self) -> bool {
        self.reads.has_room()
    }

    fn start(self: &Arc<Self>, ticket: Ticket) -> Result<(), Box<dyn Operation>> {
        let ticket = ticket.of_scan(Box::new(ScanPermit(self.clone())));
        let step = BlockingStep::new(ticket, &self.reads);
        self.tasks.push(step.class(), 0, Box::new(step))
    }

    /// Closes it: queued scans are resolved with `Closed`.
    pub fn close(&self) {
        drop(self.gate.close());
    }
}

/// Held by a scan under way. Dropped, it lets queued scans begin.
struct ScanPermit(Arc<Scans>);

impl Drop for ScanPermit {
    fn drop(&mut self) {
        let mut leaves = true;
        while let Some(ticket) = self.0.gate.next(std::mem::take(&mut leaves), self.0.has_room()) {
            // After a close the scan is dropped, which resolves it; the queue is empty then.
            drop(self.0.start(ticket));
        }
    }
}

/// The number of scans under way, and the queue.
struct ScanGate<T> {
    /// Both.
    state: Mutex<ScanQueue<T>, rank::Reactor>,
}

struct ScanQueue<T> {
    begun: usize,
    queued: VecDeque<T>,
    closed: bool,
}

enum Entered<T> {
    Begins(T),
    Waits,
    Closed,
}

impl<T> Default for ScanGate<T> {
    fn default() -> Self {
        ScanGate { state: Mutex::new(ScanQueue { begun: 0, queued: VecDeque::new(), closed: false }) }
    }
}

impl<T> ScanQueue<T> {
    fn may_begin(&self, has_room: bool) -> bool {
        self.begun == 0 || has_room && self.begun < SCANS_MAX
    }
}

impl<T> ScanGate<T> {
    fn enter(&self, scan: T, has_room: bool) -> Entered<T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Entered::Closed;
        }
        if !state.queued.is_empty() || !state.may_begin(has_room) {
            state.queued.push_back(scan);
            return Entered::Waits;
        }
        state.begun += 1;
        Entered::Begins(scan)
    }

    /// Takes the next queued scan that may begin; `leaves`: after a scan under way has ended.
    fn next(&self, leaves: bool, has_room: bool) -> Option<T> {
        let mut state = model::lock(&self.state);
        state.begun -= usize::from(leaves);
        let next = if state.may_begin(has_room) { state.queued.pop_front() } else { None };
        state.begun += usize::from(next.is_some());
        next
    }

    fn close(&self) -> VecDeque<T> {
        let mut state = model::lock(&self.state);
        state.closed = true;
        std::mem::take(&mut state.queued)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
