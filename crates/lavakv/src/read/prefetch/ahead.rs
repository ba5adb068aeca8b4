//! Reading the separated values of the next windows while a scan goes through this one.
//!
//! The records are found and put together into requests as for a batch ([`super::batch`]). Then the requests are in flight in an
//! [`io::ReadQueue`] of the iterator's own, which owns their buffers: a scan that turns or is dropped gives up nothing that is written
//! to. What was given up is waited for before anything else begins, so there is never more in flight than two windows; and the queue is
//! dropped, which waits too, before what keeps the files in the store.
//!
//! A request that fails takes only its own values with it: they are left out, and read alone when they are asked for, which tells why.

use super::batch::{Plan, Values};
use super::{Entry, Found, Put, ReadAhead};
use io::{Completed, ReadQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use table::runs::Run;

/// See the module.
pub(super) struct ValuesAhead {
    reads: ReadQueue,
    /// What was begun and not waited for, oldest first.
    windows: VecDeque<Window>,
    /// The number of the next request.
    next: u64,
    values: Arc<Values>,
}

/// What was begun.
struct Window {
    plan: Plan,
    /// The number of the first of its requests.
    first: u64,
    /// What needed no read.
    found: Vec<(usize, Found)>,
    /// What is read.
    landed: Vec<Completed>,
}

impl Window {
    /// Which of its requests has this number.
    fn run(&self, number: u64) -> Option<&Run> {
        self.plan.runs.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

impl ValuesAhead {
    pub fn new(values: Arc<Values>, reads: ReadQueue) -> ValuesAhead {
        ValuesAhead { reads, windows: VecDeque::new(), next: 0, values }
    }

    /// Takes what has completed; with `wait` waits until something has.
    fn land(&mut self, wait: bool) {
        for done in self.reads.complete(wait) {
            // What nobody waits for any more was given up.
            if let Some(window) = self.windows.iter_mut().find(|window| window.run(done.token).is_some()) {
                window.landed.push(done);
            }
        }
    }
}

impl ReadAhead for ValuesAhead {
    fn begin(&mut self, entries: &[Entry<'_>]) {
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
        // They go to the device now, and not when somebody waits for them.
        self.land(false);
    }

    fn finish(&mut self, entries: &[Entry<'_>], put: Put<'_>) {
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
