//! Scans in flight: each a page, whose reads the driver of [`Reads`] has in flight with those of point reads.
//!
//! A scan takes its steps on the threads of the reactor ([`crate::blocking::Block`]): merging takes the processor's time, which is not the driver's to
//! give, and a step may have to open tables. While its bytes are read no thread waits for it.
//!
//! What a scan holds from step to step, a window of blocks for each table, makes many of them large, so only [`SCANS_MAX`] are under way at once,
//! and fewer where what was read for them takes a quarter of what all requests may hold. The others stand in line, and hold nothing. The first in
//! line begins when one is over, whatever became of it. One is always under way if any is there.

use crate::blocking::Block;
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

/// Scans under way at once, at most.
const SCANS_MAX: usize = 64;

/// See the module.
pub(crate) struct Scans {
    gate: Gate<Ticket>,
    tasks: Arc<Tasks<Box<dyn Operation>>>,
    reads: Arc<Reads>,
}

impl Scans {
    pub fn new(tasks: &Arc<Tasks<Box<dyn Operation>>>, reads: &Arc<Reads>) -> Arc<Scans> {
        Arc::new(Scans { gate: Gate::default(), tasks: tasks.clone(), reads: reads.clone() })
    }

    /// Begins a scan, or lets it stand in line.
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
        let ticket = ticket.of_scan(Box::new(Pass(self.clone())));
        let step = Block { ticket, reads: self.reads.clone() };
        self.tasks.push(step.class(), 0, Box::new(step))
    }

    /// The store is closed: who stands in line is told so.
    pub fn close(&self) {
        drop(self.gate.close());
    }
}

/// Of a scan that is under way, until this is dropped.
struct Pass(Arc<Scans>);

impl Drop for Pass {
    fn drop(&mut self) {
        let mut leaves = true;
        while let Some(ticket) = self.0.gate.next(std::mem::take(&mut leaves), self.0.has_room()) {
            // If the store is closed it is dropped, and so told; then nobody stands in line any more.
            drop(self.0.start(ticket));
        }
    }
}

/// How many are under way, and who stands in line.
struct Gate<T> {
    /// Both.
    state: Mutex<State<T>, rank::Reactor>,
}

struct State<T> {
    begun: usize,
    line: VecDeque<T>,
    closed: bool,
}

enum Entered<T> {
    Begins(T),
    Waits,
    Closed,
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Gate { state: Mutex::new(State { begun: 0, line: VecDeque::new(), closed: false }) }
    }
}

impl<T> State<T> {
    fn may_begin(&self, has_room: bool) -> bool {
        self.begun == 0 || has_room && self.begun < SCANS_MAX
    }
}

impl<T> Gate<T> {
    fn enter(&self, one: T, has_room: bool) -> Entered<T> {
        let mut state = model::lock(&self.state);
        if state.closed {
            return Entered::Closed;
        }
        if !state.line.is_empty() || !state.may_begin(has_room) {
            state.line.push_back(one);
            return Entered::Waits;
        }
        state.begun += 1;
        Entered::Begins(one)
    }

    /// The next in line that may begin, after one has left.
    fn next(&self, leaves: bool, has_room: bool) -> Option<T> {
        let mut state = model::lock(&self.state);
        state.begun -= usize::from(leaves);
        let next = if state.may_begin(has_room) { state.line.pop_front() } else { None };
        state.begun += usize::from(next.is_some());
        next
    }

    fn close(&self) -> VecDeque<T> {
        let mut state = model::lock(&self.state);
        state.closed = true;
        std::mem::take(&mut state.line)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
