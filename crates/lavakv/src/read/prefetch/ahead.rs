//! Reading the separated values of the next window while a scan goes through this one.
//!
//! The records are found and put together into requests as for a batch ([`super::batch`]). Then the requests are in flight in an
//! [`io::ReadQueue`] of the iterator's own, which owns their buffers: a scan that turns or is dropped gives up nothing that is written
//! to. What was given up is waited for before anything else begins, so there is never more in flight than one window; and the queue is dropped, which
//! waits too, before what keeps the files in the store.
//!
//! A request that fails takes only its own values with it: they are left out, and read alone when they are asked for, which tells why.

use super::batch::{Plan, Values};
use super::{Entry, Found, Put, ReadAhead};
use io::{Completed, ReadQueue};
use std::sync::Arc;

/// See the module.
pub(super) struct ValuesAhead {
    reads: ReadQueue,
    window: Option<Window>,
    values: Arc<Values>,
}

/// What was begun.
struct Window {
    plan: Plan,
    /// What needed no read.
    found: Vec<(usize, Found)>,
    /// What is read already.
    landed: Vec<Completed>,
}

impl ValuesAhead {
    pub fn new(values: Arc<Values>) -> ValuesAhead {
        ValuesAhead { reads: ReadQueue::new(&values.tree.context.env), window: None, values }
    }

    /// Waits for all that is in flight.
    fn land(&mut self) -> Vec<Completed> {
        let mut landed = Vec::new();
        while self.reads.in_flight() > 0 {
            landed.append(&mut self.reads.complete(true));
        }
        landed
    }
}

impl ReadAhead for ValuesAhead {
    fn begin(&mut self, entries: &[Entry<'_>]) {
        self.window = None;
        self.land();
        let mut found = Vec::new();
        let plan = self.values.plan(entries, &mut |nth, value| found.push((nth, value)));
        for (nth, run) in plan.runs.iter().enumerate() {
            if let Some(file) = plan.file(run) {
                self.reads.submit(file, run.bytes.start, run.len(), nth as u64);
            }
        }
        // They go to the device now, and not when somebody waits for them.
        let landed = self.reads.complete(false);
        self.window = Some(Window { plan, found, landed });
    }

    fn finish(&mut self, entries: &[Entry<'_>], put: Put<'_>) {
        let Some(Window { plan, found, landed }) = self.window.take() else { return };
        found.into_iter().for_each(|(nth, value)| put(nth, value));
        for Completed { token, read } in landed.into_iter().chain(self.land()) {
            if let (Some(run), Ok(read)) = (plan.runs.get(token as usize), read) {
                self.values.open_run((&plan, run), &read, entries, put);
            }
        }
    }
}
