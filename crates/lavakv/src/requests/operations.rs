//! What is done on a thread of the reactor, since it blocks: scans, flushes, and of point reads what is no read of the device.

use super::queues::Class;
use super::reactor::{Next, Operation};
use super::reading::{InFlight, Stepped};
use super::reads::{Reads, Ticket};
use super::request::Entry;
use crate::admin::flush::freeze_all;
use crate::read::iterator::DbIterator;
use crate::read::options::ReadOptions;
use crate::read::pending::Cost;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use base::completion::Completer;
use base::{Result, SeqNo};
use std::sync::Arc;
use table::Role;
use table::source::read_now;

/// The step of a point read that may block: a file is opened, a large value read, or much looked up that takes no read.
pub(crate) struct Block {
    pub ticket: Ticket,
    pub reads: Arc<Reads>,
}

impl Operation for Block {
    fn step(self: Box<Self>) -> Next {
        let Block { mut ticket, reads } = *self;
        match open(&mut *ticket.reading) {
            Stepped::Wants(wants) => drop(reads.bring(ticket, wants)),
            Stepped::Over => ticket.tell(),
        }
        Next::Done
    }

    fn class(&self) -> Class {
        Class::Read
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
            reading.put(end, read_now(&end.file, end.extent), Cost::alone(end));
        }
        if ends.is_empty() || reading.needs_all() && !wanted.is_empty() {
            reading.close_files();
            return Stepped::Wants(wanted);
        }
    }
}

/// A page of a scan.
pub(crate) struct Scan {
    pub tree: Arc<Tree>,
    pub family: Arc<Family>,
    pub options: ReadOptions,
    pub limit: usize,
    pub done: Completer<Vec<Entry>>,
}

impl Operation for Scan {
    fn step(self: Box<Self>) -> Next {
        let Scan { tree, family, options, limit, done } = *self;
        let page = page(&tree, &family, options, limit);
        // Before who is told may close the store.
        drop((tree, family));
        done.resolve(page);
        Next::Done
    }

    fn class(&self) -> Class {
        Class::Long
    }
}

fn page(tree: &Arc<Tree>, family: &Arc<Family>, options: ReadOptions, limit: usize) -> Result<Vec<Entry>> {
    let options = ReadOptions { expected_entries: limit, ..options };
    let mut iterator = DbIterator::new(tree, family, options)?;
    family.check_there()?;
    let mut page = Vec::new();
    iterator.seek_to_first()?;
    while iterator.valid() && page.len() < limit {
        page.push((iterator.key().to_vec(), iterator.value()?.to_vec()));
        if page.len() < limit {
            iterator.next()?;
        }
    }
    Ok(page)
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
