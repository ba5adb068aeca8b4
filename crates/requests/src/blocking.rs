//! Steps of reads on a thread of the reactor: each step of a scan, and of point reads what is no read of the device.

use crate::operation::{Next, Operation};
use crate::queues::Class;
use crate::reads::{Reads, Ticket};
use crate::resumable::{ReadStep, ResumableRead};
use std::sync::Arc;
use table::source::read_now;
use table::{FetchCost, Role};

/// The step of a scan, or one of a point read that may block: a file is opened, a large value read, or much looked up that takes no read.
pub(crate) struct Block {
    pub ticket: Ticket,
    pub reads: Arc<Reads>,
}

impl Operation for Block {
    fn step(self: Box<Self>) -> Next {
        let Block { mut ticket, reads } = *self;
        match open(&mut *ticket.read) {
            // Others have their turn first.
            ReadStep::Wants(wants) if wants.is_empty() => {
                return Next::At(0, Box::new(Block { ticket, reads }));
            }
            ReadStep::Wants(wants) => {
                ticket.settle();
                // If this is closed it is dropped, and so told.
                reads.bring(ticket, wants);
            }
            ReadStep::Done => ticket.tell(),
        }
        Next::Done
    }

    fn class(&self) -> Class {
        // Of a scan: it computes for longer than a point read, and may read large values.
        if self.ticket.pass.is_some() { Class::Long } else { Class::Read }
    }
}

/// Goes on, and reads the ends of files that are to be opened. A file is open here or for good: were it left to who drives reads, each request
/// would have it open for itself meanwhile, and there may be more of them than a process may have files.
fn open(read: &mut dyn ResumableRead) -> ReadStep {
    let mut wanted = Vec::new();
    loop {
        let ReadStep::Wants(wants) = read.step(true) else { return ReadStep::Done };
        let (ends, others): (Vec<_>, Vec<_>) = wants.into_iter().partition(|want| want.role == Role::Tail);
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
