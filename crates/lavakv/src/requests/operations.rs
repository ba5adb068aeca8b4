//! What is done on a thread of the reactor: steps of scans, flushes, and of point reads what is no read of the device.

use super::queues::Class;
use super::reactor::{Next, Operation};
use super::reading::{InFlight, Stepped};
use super::reads::{Reads, Ticket};
use crate::admin::flush::freeze_all;
use crate::work::jobs::Jobs;
use base::SeqNo;
use base::completion::Completer;
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
        match open(&mut *ticket.reading) {
            // Others have their turn first.
            Stepped::Wants(wants) if wants.is_empty() => {
                return Next::At(0, Box::new(Block { ticket, reads }));
            }
            Stepped::Wants(wants) => {
                ticket.settle();
                // If this is closed it is dropped, and so told.
                reads.bring(ticket, wants);
            }
            Stepped::Over => ticket.tell(),
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
fn open(reading: &mut dyn InFlight) -> Stepped {
    let mut wanted = Vec::new();
    loop {
        let Stepped::Wants(wants) = reading.step(true) else { return Stepped::Over };
        let (ends, others): (Vec<_>, Vec<_>) = wants.into_iter().partition(|want| want.role == Role::Tail);
        wanted.extend(others);
        for end in &ends {
            reading.put(end, read_now(&end.file, end.extent), FetchCost::alone(end));
        }
        if ends.is_empty() || reading.needs_all() && !wanted.is_empty() {
            reading.close_files();
            return Stepped::Wants(wanted);
        }
    }
}

/// How long until it is looked again whether something was flushed.
const LOOK_NS: u64 = 1_000_000;

/// A flush of everything.
pub(crate) struct Flush {
    jobs: Arc<Jobs>,
    done: Completer<()>,
    /// Up to which sequence everything is frozen, once it is.
    upto: Option<SeqNo>,
}

impl Flush {
    pub fn new(jobs: &Arc<Jobs>, done: Completer<()>) -> Flush {
        Flush { jobs: jobs.clone(), done, upto: None }
    }
}

impl Operation for Flush {
    fn step(mut self: Box<Self>) -> Next {
        let frozen = self.upto.map_or_else(|| freeze_all(&self.jobs), Ok);
        let outcome = match frozen {
            Err(e) => Some(Err(e)),
            Ok(upto) => {
                if self.upto.replace(upto).is_none() {
                    self.jobs.context.signals.notify_work();
                }
                crate::admin::flush::look_flushed(&self.jobs, upto)
            }
        };
        match outcome {
            Some(outcome) => {
                self.done.resolve(outcome);
                Next::Done
            }
            None => Next::At(self.jobs.context.now_ns().saturating_add(LOOK_NS), self),
        }
    }

    fn class(&self) -> Class {
        Class::Long
    }
}
