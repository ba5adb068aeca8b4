//! Steps of reads on the threads of the reactor: each step of a scan, and those steps of point
//! reads that may block.

use crate::operation::{Next, Operation};
use crate::queues::OperationClass;
use crate::reads::{Reads, Ticket};
use crate::resumable::{ReadStep, ResumableRead};
use std::sync::Arc;
use table::source::read_now;
use table::{BlockKind, FetchCost};

/// A step that may block: it opens a file, reads a large value, merges entries of a scan, or looks
/// up much without a read.
pub(crate) struct BlockingStep {
    ticket: Ticket,
    reads: Arc<Reads>,
}

impl BlockingStep {
    pub fn new(ticket: Ticket, reads: &Arc<Reads>) -> BlockingStep {
        BlockingStep { ticket, reads: reads.clone() }
    }
}

impl Operation for BlockingStep {
    fn step(self: Box<Self>) -> Next {
        let BlockingStep { mut ticket, reads } = *self;
        match step(ticket.read()) {
            // Other operations have their turn first.
            ReadStep::Wants(wants) if wants.is_empty() => {
                return Next::At(0, Box::new(BlockingStep { ticket, reads }));
            }
            ReadStep::Wants(wants) => {
                ticket.settle();
                // After a close the request is dropped, which resolves it.
                reads.submit(ticket, wants);
            }
            ReadStep::Done => ticket.resolve(),
        }
        Next::Done
    }

    fn class(&self) -> OperationClass {
        // A step of a scan computes for longer than one of a point read, and may read large values.
        if self.ticket.is_scan() { OperationClass::Long } else { OperationClass::Read }
    }
}

/// Takes a step, and reads the ends of files that are to be opened. So a file is opened here, for
/// all requests: if the driver read these ends, each request would keep the file open for itself
/// meanwhile, and there may be more requests than the process may have files.
fn step(read: &mut dyn ResumableRead) -> ReadStep {
    let mut wanted = Vec::new();
    loop {
        let ReadStep::Wants(wants) = read.step(true) else { return ReadStep::Done };
        let (ends, others): (Vec<_>, Vec<_>) =
            wants.into_iter().partition(|want| want.role == BlockKind::Tail);
        wanted.extend(others);
        for end in &ends {
            read.deliver(end, read_now(&end.file, end.extent), FetchCost::alone(end));
        }
        if ends.is_empty() || read.needs_all() && !wanted.is_empty() {
            read.close_files();
            return ReadStep::Wants(wanted);
        }
    }
}
