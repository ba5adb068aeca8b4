//! Gets whose device reads the caller performs: the steps of `read_path` and `multi_get`, for
//! callers that keep many in flight.
//!
//! A step never reads a block or a record. It returns the answer or the reads it needs
//! ([`BlockRequest`]). The caller performs each read in any way, hands it over with
//! [`PendingGet::put`], and takes the next step. Two operations still block: opening a file
//! (without reading its footer), and opening and reading the segment of a large value. A large
//! value is therefore returned as a [`ValueReader`].
//!
//! Dropping a pending get cancels it without waiting, since the caller owns the buffers of the
//! reads.

use crate::read::fetch::Content;
use crate::read::multi_get::MultiGetOp;
use crate::read::read_path::{GetOp, Value, book};
use crate::read::value_reader::ValueReader;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::{Result, SeqNo};
use cache::Block;
use std::sync::Arc;
use table::{BlockRequest, FetchCost, FetchedBlocks, Source, Stopped};

/// Outcome of a step.
#[derive(Debug)]
pub enum Progress<A> {
    /// Reads that must come first, in the order of files and offsets, each once. None was returned
    /// by an earlier step.
    Wants(Vec<BlockRequest>),
    /// The answer. There are no more steps.
    Done(A),
}

/// A value.
#[derive(Debug)]
pub enum FoundValue {
    /// In memory.
    Value(Value),
    /// A large value, not read yet. Reading it blocks.
    Large(ValueReader),
}

impl FoundValue {
    fn new(tree: &Arc<Tree>, content: Content) -> FoundValue {
        match content {
            Content::Bytes(bytes) => FoundValue::Value(Value(bytes)),
            Content::Segment(_) => FoundValue::Large(ValueReader::new(tree, content)),
        }
    }

    /// Returns the value in memory; blocks if it is large.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn into_value(self) -> Result<Value> {
        match self {
            FoundValue::Value(value) => Ok(value),
            FoundValue::Large(reader) => reader.into_value(),
        }
    }
}

/// A get whose device reads the caller performs; made by [`crate::Db::begin_get`]. A step runs
/// until it needs reads, and returns them. The caller performs them in any way, hands them over,
/// and takes the next step. Dropping it cancels it.
pub struct PendingGet {
    op: GetOp<Arc<Tree>, Vec<u8>>,
    fetched: FetchedBlocks,
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
        PendingGet { op, fetched: FetchedBlocks::default(), tree: tree.clone() }
    }

    /// Runs until the answer or the next read. It returns at least one read; hand over all of them
    /// before the next step.
    pub fn step(&mut self) -> Progress<Result<Option<FoundValue>>> {
        let answer = match self.op.advance(&mut self.fetched) {
            Ok(found) => Ok(found),
            Err(Stopped::Failed(e)) => Err(e),
            Err(Stopped::Wanting) => return Progress::Wants(self.fetched.take_wanted()),
        };
        let found = matches!(answer, Ok(Some(_)));
        book(&self.tree.context.stats, 1, u64::from(found), self.fetched.counters());
        Progress::Done(answer.map(|found| found.map(|content| FoundValue::new(&self.tree, content))))
    }

    /// Hands over the bytes of a read, or the reason of its failure.
    pub fn put(&mut self, want: &BlockRequest, read: Result<Block>) {
        self.deliver(want, read, FetchCost::alone(want));
    }

    /// The same, with the cost of the read.
    pub(crate) fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        self.fetched.deliver(want, read, cost);
    }

    /// Sets whether steps may open files and read large values (initially true). A step that needs
    /// to and may not returns no reads.
    pub(crate) fn set_may_block(&mut self, may_block: bool) {
        self.fetched.set_may_block(may_block);
    }

    /// Closes the files opened by lookups: see [`FetchedBlocks::close_files`].
    pub(crate) fn close_files(&mut self) {
        self.fetched.close_files();
    }

    /// Drops all data handed over: the next step requests it again.
    pub(crate) fn let_go(&mut self) {
        self.fetched.clear();
    }
}

/// A read of many keys, driven like a [`PendingGet`]; made by [`crate::Db::begin_multi_get`].
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

    /// Runs until all lookups need reads; at most 256 are outstanding. The next step may come
    /// before all of them are handed over: lookups with complete data continue, and if there are
    /// none it returns no more reads. The answers come in the order of the keys.
    pub fn step(&mut self) -> Progress<Vec<Result<Option<FoundValue>>>> {
        let wants = self.op.as_mut().map(MultiGetOp::step).unwrap_or_default();
        if self.op.as_ref().is_some_and(|op| !op.is_done()) {
            return Progress::Wants(wants);
        }
        let answers = self.op.take().map(MultiGetOp::finish).unwrap_or_default();
        let found = |content| FoundValue::new(&self.tree, content);
        Progress::Done(answers.into_iter().map(|answer| Ok(answer?.map(found))).collect())
    }

    /// Hands over the bytes of a read, or the reason of its failure.
    pub fn put(&mut self, want: &BlockRequest, read: Result<Block>) {
        self.deliver(want, read, FetchCost::alone(want));
    }

    /// The same, with the cost of the read.
    pub(crate) fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        if let Some(op) = &mut self.op {
            op.fetched().deliver(want, read, cost);
            op.arrived(want);
        }
    }

    /// As [`PendingGet::set_may_block`]. If a lookup may not block, the others continue meanwhile.
    /// A step that returns no reads, with none outstanding, has to block.
    pub(crate) fn set_may_block(&mut self, may_block: bool) {
        if let Some(op) = &mut self.op {
            op.fetched().set_may_block(may_block);
        }
    }

    /// As [`PendingGet::close_files`].
    pub(crate) fn close_files(&mut self) {
        if let Some(op) = &mut self.op {
            op.fetched().close_files();
        }
    }

    /// As [`PendingGet::let_go`].
    pub(crate) fn let_go(&mut self) {
        self.op.iter_mut().for_each(MultiGetOp::let_go);
    }

    /// Returns the number of keys not yet looked up. Data handed over is kept while it does not
    /// change.
    pub(crate) fn keys_left(&self) -> usize {
        self.op.as_ref().map_or(0, MultiGetOp::keys_left)
    }
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
