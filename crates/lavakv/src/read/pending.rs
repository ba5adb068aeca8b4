//! Gets whose reads somebody else does: the steps of `read_path` and `multi_get`, for callers that keep many under way.
//!
//! A step never reads a block or a record. It answers, or says what is to be read ([`Want`]); the caller reads that however it
//! likes, hands over each with [`PendingGet::put`], and takes the next step. What stays blocking: opening a file (not
//! reading its end), and opening and reading the segment of a large value, which is therefore handed out as a [`ValueReader`].
//!
//! Dropping one gives it up; there is nothing to wait for, since whoever reads has the buffers.

use crate::read::fetch::Content;
use crate::read::multi_get::MultiGetOp;
use crate::read::read_path::{GetOp, Value, book};
use crate::read::value_reader::ValueReader;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::{Result, SeqNo};
use cache::Block;
use std::sync::Arc;
use table::{Fetched, Role, Source, Stopped, Want};

/// How far a step came.
#[derive(Debug)]
pub enum Progress<A> {
    /// These are to be read first. At least one, in the order of files and places, each once.
    Wants(Vec<Want>),
    /// The answer. There are no more steps.
    Done(A),
}

/// A value that was found.
#[derive(Debug)]
pub enum Found {
    /// In memory.
    Value(Value),
    /// A large one, not read yet. Reading it blocks.
    Large(ValueReader),
}

impl Found {
    fn new(tree: &Arc<Tree>, content: Content) -> Found {
        match content {
            Content::Bytes(bytes) => Found::Value(Value(bytes)),
            Content::Segment(_) => Found::Large(ValueReader::new(tree, content)),
        }
    }

    /// All of it in memory, which blocks if it is large.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Found::Value(value) => Ok(value),
            Found::Large(reader) => reader.into_value(),
        }
    }
}

/// A read of one key whose reads of the device somebody else does; made by [`crate::Db::begin_get`]. A step goes as far as it comes, and says what is to be
/// read; whoever drives it reads that in whatever way, hands it over, and takes the next step. Dropped, it is given up.
pub struct PendingGet {
    op: GetOp<Arc<Tree>, Vec<u8>>,
    fetched: Fetched,
    // Dropped last: the store stays locked while its files are read.
    tree: Arc<Tree>,
}

impl PendingGet {
    pub(crate) fn new(
        tree: &Arc<Tree>,
        pinned: (Arc<ReadState>, SeqNo),
        key: Vec<u8>,
        fill_cache: bool,
    ) -> PendingGet {
        let op = GetOp::new(tree.clone(), pinned, key, fill_cache);
        PendingGet { op, fetched: Fetched::default(), tree: tree.clone() }
    }

    /// Goes on as far as it comes without a read.
    pub fn step(&mut self) -> Progress<Result<Option<Found>>> {
        let answer = match self.op.advance(&mut self.fetched) {
            Ok(found) => Ok(found),
            Err(Stopped::Failed(e)) => Err(e),
            Err(Stopped::Wanting) => return Progress::Wants(self.fetched.take_wanted()),
        };
        let found = matches!(answer, Ok(Some(_)));
        book(&self.tree.context.stats, 1, u64::from(found), self.fetched.counters());
        Progress::Done(answer.map(|found| found.map(|content| Found::new(&self.tree, content))))
    }

    /// Hands over the bytes of a want, or why they could not be read.
    pub fn put(&mut self, want: &Want, read: Result<Block>) {
        put(&mut self.fetched, want, read);
    }
}

/// A read of many keys, driven as a [`PendingGet`] is; made by [`crate::Db::begin_multi_get`].
pub struct PendingMultiGet {
    op: Option<MultiGetOp<Arc<Tree>, Vec<u8>>>,
    // Dropped last: the store stays locked while its files are read.
    tree: Arc<Tree>,
}

impl PendingMultiGet {
    pub(crate) fn new(
        tree: &Arc<Tree>,
        pinned: (Arc<ReadState>, SeqNo),
        keys: Vec<Vec<u8>>,
        fill_cache: bool,
    ) -> PendingMultiGet {
        let op = MultiGetOp::new(tree.clone(), pinned, keys, fill_cache);
        PendingMultiGet { op: Some(op), tree: tree.clone() }
    }

    /// Goes on as far as it comes without a read. Wants at most 256 reads; all of them are handed over before the next step.
    /// The answers come in the order of the keys.
    pub fn step(&mut self) -> Progress<Vec<Result<Option<Found>>>> {
        let wants = self.op.as_mut().map(MultiGetOp::step).unwrap_or_default();
        if !wants.is_empty() {
            return Progress::Wants(wants);
        }
        let answers = self.op.take().map(MultiGetOp::finish).unwrap_or_default();
        let found = |content| Found::new(&self.tree, content);
        Progress::Done(answers.into_iter().map(|answer| Ok(answer?.map(found))).collect())
    }

    /// Hands over the bytes of a want, or why they could not be read.
    pub fn put(&mut self, want: &Want, read: Result<Block>) {
        if let Some(op) = &mut self.op {
            put(op.fetched(), want, read);
        }
    }
}

fn put(fetched: &mut Fetched, want: &Want, read: Result<Block>) {
    if read.is_ok() && want.role != Role::Tail {
        fetched.counters().count_request(want.extent.len);
    }
    fetched.put(want, read);
}

impl std::fmt::Debug for PendingGet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingGet")
    }
}

impl std::fmt::Debug for PendingMultiGet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingMultiGet")
    }
}
