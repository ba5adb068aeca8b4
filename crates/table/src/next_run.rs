//! Background read of the next run of a file, while a cursor goes through the run before.
//!
//! The read is in flight in its own queue, which owns the buffer. So a cursor that moves elsewhere
//! frees no memory that is being written. `readahead` decides the length of the run, and when it
//! pays off.

use crate::frame::BlockHandle;
use cache::Block;
use io::{Completed, ReadFile, ReadQueue};
use std::sync::Arc;

/// Background read of a run: see the module. Dropping it waits for reads in flight.
#[derive(Debug)]
pub(crate) struct NextRun {
    reads: ReadQueue,
    /// Range of the file being read.
    run: Option<(u64, u64)>,
    landed: Option<Completed>,
}

impl NextRun {
    pub(crate) fn new(reads: ReadQueue) -> NextRun {
        NextRun { reads, run: None, landed: None }
    }

    /// Starts to read from `start` to `end`, and abandons the previous read.
    pub(crate) fn begin(&mut self, file: &Arc<dyn ReadFile>, (start, end): (u64, u64)) {
        self.land();
        self.run = Some((start, end));
        self.reads.submit(file, start, (end - start) as usize, start);
        // Submits the read to the device now, not at the first wait for it.
        self.landed = self.reads.complete(false).pop();
    }

    /// Returns the bytes of the started read with their offset, if they include the block and were
    /// read without error. They are returned once.
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
