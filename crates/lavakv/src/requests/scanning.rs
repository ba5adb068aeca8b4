//! Asynchronous scans. Each step, except for its device reads, runs on a thread of the reactor.
//! Merging takes too long for the thread that drives reads, and a step may open tables.

use super::request::Entry;
use crate::read::pending::Progress;
use crate::read::scan::PendingScan;
use crate::tree::family::Family;
use base::Result;
use base::completion::Completer;
use cache::Block;
use requests::{ReadStep, ResumableRead};
use std::sync::Arc;
use table::{BlockRequest, FetchCost};

/// A scan in flight: its state, its page once that is known, and its completer.
pub(crate) struct Scanning {
    scan: PendingScan,
    page: Option<Result<Vec<Entry>>>,
    family: Arc<Family>,
    done: Completer<Vec<Entry>>,
}

impl Scanning {
    pub fn new(scan: PendingScan, family: &Arc<Family>, done: Completer<Vec<Entry>>) -> Scanning {
        Scanning { scan, page: None, family: family.clone(), done }
    }
}

impl ResumableRead for Scanning {
    fn step(&mut self, may_block: bool) -> ReadStep {
        if !may_block {
            return ReadStep::Wants(Vec::new());
        }
        match self.scan.step() {
            Progress::Wants(wants) => ReadStep::Wants(wants),
            Progress::Done(page) => {
                self.page = Some(page);
                ReadStep::Done
            }
        }
    }

    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        self.scan.deliver(want, read, cost);
    }

    fn close_files(&mut self) {
        self.scan.close_files();
    }

    /// A scan in progress keeps its bytes, which are counted.
    fn forget(&mut self) {}

    fn needs_all(&self) -> bool {
        true
    }

    fn phase(&self) -> usize {
        0
    }

    fn held_bytes(&mut self) -> Option<u64> {
        Some(self.scan.held_bytes())
    }

    fn resolve(self: Box<Self>) {
        let Scanning { scan, page, family, done } = *self;
        let page = page.unwrap_or_else(|| unreachable!("it is over"));
        let page = page.and_then(|page| family.check_there().map(|()| page));
        // All that the scan has pinned is released first: the completion may lead to a close of the
        // store.
        drop((scan, family));
        done.resolve(page);
    }
}
