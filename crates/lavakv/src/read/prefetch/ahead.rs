//! Background reads of the separated values of the next windows of a scan.
//!
//! The records are located and joined into requests as for a batch ([`super::batch`]). The requests
//! are then in flight in an [`io::ReadQueue`] of the iterator, which owns their buffers. So a scan
//! that turns or is dropped frees no buffer that the device writes to. Abandoned reads are waited
//! for before new ones begin, so at most two windows are in flight. The queue is dropped, which
//! waits too, before the references that keep the files in the store.
//!
//! A failed request affects only its own values: they are left out, and a read of one alone reports
//! the error.

use super::batch::{ReadPlan, Values};
use super::{PrefetchedValue, Put, ReadAhead, ViewEntry};
use io::{Completed, ReadQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use table::runs::Run;

/// Background reads of one iterator: see the module.
pub(super) struct ValuesAhead {
    reads: ReadQueue,
    /// Started windows that were not waited for, oldest first.
    windows: VecDeque<Window>,
    /// The number of the next request.
    next: u64,
    values: Arc<Values>,
}

/// A window whose reads were started.
struct Window {
    plan: ReadPlan,
    /// The number of its first request.
    first: u64,
    /// Values that needed no read.
    found: Vec<(usize, PrefetchedValue)>,
    /// Completed reads.
    landed: Vec<Completed>,
}

impl Window {
    /// Returns the run of the request with this number, if it belongs to the window.
    fn run(&self, number: u64) -> Option<&Run> {
        self.plan.runs.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

impl ValuesAhead {
    pub fn new(values: Arc<Values>, reads: ReadQueue) -> ValuesAhead {
        ValuesAhead { reads, windows: VecDeque::new(), next: 0, values }
    }

    /// Takes completed reads; with `wait` it waits until there is one.
    fn land(&mut self, wait: bool) {
        for done in self.reads.complete(wait) {
            // Reads of abandoned windows are dropped.
            if let Some(window) = self.windows.iter_mut().find(|window| window.run(done.token).is_some()) {
                window.landed.push(done);
            }
        }
    }
}

impl ReadAhead for ValuesAhead {
    fn begin(&mut self, entries: &[ViewEntry<'_>]) {
        while self.windows.is_empty() && self.reads.in_flight() > 0 {
            self.land(true);
        }
        let (mut found, first) = (Vec::new(), self.next);
        let plan = self.values.plan(entries, &mut |nth, value| found.push((nth, value)));
        for run in &plan.runs {
            if let Some(file) = plan.file(run) {
                self.reads.submit(file, run.bytes.start, run.len(), self.next);
            }
            self.next += 1;
        }
        self.windows.push_back(Window { plan, first, found, landed: Vec::new() });
        // Submits the requests to the device now, not at the wait.
        self.land(false);
    }

    fn finish(&mut self, entries: &[ViewEntry<'_>], put: Put<'_>) {
        let lacks = |window: &Window| window.landed.len() < window.plan.runs.len();
        while self.windows.front().is_some_and(lacks) && self.reads.in_flight() > 0 {
            self.land(true);
        }
        let Some(mut window) = self.windows.pop_front() else { return };
        window.found.drain(..).for_each(|(nth, value)| put(nth, value));
        let landed = std::mem::take(&mut window.landed);
        self.values.tree.context.stats.iter_value_reads_ahead.add(landed.len() as u64);
        for Completed { token, read } in landed {
            if let (Some(run), Ok(read)) = (window.run(token), read) {
                self.values.open_run((&window.plan, run), &read, entries, put);
            }
        }
    }

    fn give_up(&mut self) {
        self.windows.clear();
    }
}
