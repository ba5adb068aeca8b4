//! What is read, and flushes, where the caller could not finish them.

use super::reactor::{Next, Operation};
use super::request::Entry;
use crate::admin::flush::freeze_all;
use crate::read::iterator::DbIterator;
use crate::read::multi_get;
use crate::read::options::ReadOptions;
use crate::read::read_path::{GetOp, Value, pin};
use crate::tree::Tree;
use crate::tree::family::{Family, ReadState};
use crate::tree::snapshot::Snapshot;
use crate::work::jobs::Jobs;
use base::completion::Completer;
use base::{Result, SeqNo};
use std::sync::Arc;

/// A point read that memory did not answer.
pub(crate) struct Get {
    pub tree: Arc<Tree>,
    pub family: Arc<Family>,
    pub key: Vec<u8>,
    pub fill_cache: bool,
    pub done: Completer<Option<Value>>,
}

impl Operation for Get {
    fn step(self: Box<Self>) -> Next {
        let Get { tree, family, key, fill_cache, done } = *self;
        let read = || GetOp::new(&*tree, pin(&tree, &family, None), &*key, fill_cache).run();
        let found = tree.context.times.get.time(read);
        let found = found.and_then(|value| family.check_there().map(|()| value));
        // Before who is told may close the store.
        drop((tree, family));
        done.resolve(found);
        Next::Done
    }
}

/// Point reads at one moment.
pub(crate) struct MultiGet {
    tree: Arc<Tree>,
    family: Arc<Family>,
    snapshot: Snapshot,
    fill_cache: bool,
    keys: Vec<Vec<u8>>,
    /// Of the keys, in their order; `None`: memory did not answer.
    answers: Vec<Option<Option<Value>>>,
    /// Who is told, once it is submitted.
    pub done: Option<Completer<Vec<Option<Value>>>>,
}

impl MultiGet {
    pub fn new(
        (tree, family, snapshot): (&Arc<Tree>, &Arc<Family>, Snapshot),
        keys: Vec<Vec<u8>>,
        fill_cache: bool,
    ) -> MultiGet {
        let (tree, family, answers) = (tree.clone(), family.clone(), keys.iter().map(|_| None).collect());
        MultiGet { tree, family, snapshot, fill_cache, keys, answers, done: None }
    }

    fn pinned(&self) -> (Arc<ReadState>, SeqNo) {
        pin(&self.tree, &self.family, Some(self.snapshot.sequence()))
    }

    /// Answers what memory knows. True: that is all.
    pub fn ask_memory(&mut self) -> bool {
        let pinned = self.pinned();
        let ask =
            |key: &Vec<u8>| GetOp::new(&*self.tree, pinned.clone(), &**key, self.fill_cache).in_memory();
        self.answers = self.keys.iter().map(ask).collect();
        self.answers.iter().all(Option::is_some)
    }

    /// Reads what memory did not know, all of it together.
    pub fn answers(&mut self) -> Result<Vec<Option<Value>>> {
        let known = std::mem::take(&mut self.answers);
        let unknown = known.iter().zip(&self.keys).filter(|(answer, _)| answer.is_none());
        let unknown: Vec<&[u8]> = unknown.map(|(_, key)| &**key).collect();
        let mut read = multi_get::run(&self.tree, self.pinned(), unknown, self.fill_cache).into_iter();
        let answer = |known: Option<_>| known.map_or_else(|| read.next().unwrap_or(Ok(None)), Ok);
        known.into_iter().map(answer).collect()
    }
}

impl Operation for MultiGet {
    fn step(mut self: Box<Self>) -> Next {
        let answers = self.answers();
        let answers = answers.and_then(|answers| self.family.check_there().map(|()| answers));
        if let Some(done) = self.done.take() {
            // What it pinned goes before anybody hears of it.
            drop(self);
            done.resolve(answers);
        }
        Next::Done
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
}

fn page(tree: &Arc<Tree>, family: &Arc<Family>, options: ReadOptions, limit: usize) -> Result<Vec<Entry>> {
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
}
