//! The run of a file that is read while a cursor goes through the one before.
//!
//! It is in flight in a queue of its own, which has the buffer: a cursor that goes elsewhere lets go of nothing that is written to. How long it is, and
//! when it pays, `readahead` says.

use crate::frame::BlockHandle;
use cache::Block;
use io::{Completed, ReadFile, ReadQueue};
use std::sync::Arc;

/// See the module. Dropped, it waits for what is in flight.
#[derive(Debug)]
pub(crate) struct NextRun {
    reads: ReadQueue,
    /// Which bytes are being read.
    run: Option<(u64, u64)>,
    landed: Option<Completed>,
}

impl NextRun {
    pub(crate) fn new(reads: ReadQueue) -> NextRun {
        NextRun { reads, run: None, landed: None }
    }

    /// Begins to read from `start` to `end`; what was begun before is given up.
    pub(crate) fn begin(&mut self, file: &Arc<dyn ReadFile>, (start, end): (u64, u64)) {
        self.land();
        self.run = Some((start, end));
        self.reads.submit(file, start, (end - start) as usize, start);
        // It goes to the device now, and not when somebody waits for it.
        self.landed = self.reads.complete(false).pop();
    }

    /// The bytes that were begun and where they begin, if the block is among them and they could be read. They are given once.
    pub(crate) fn take(&mut self, handle: BlockHandle) -> Option<(u64, Block)> {
        let (start, end) = self.run?;
        if handle.offset < start || handle.end() > end {
            return None;
        }
        self.run = None;
        self.land();
        let landed = self.landed.take()?;
        Some((landed.token, landed.read.ok()?))
    }

    fn land(&mut self) {
        while self.reads.in_flight() > 0 {
            self.landed = self.reads.complete(true).pop().or(self.landed.take());
        }
    }
}
