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
use table::{FetchCost, Fetched, Source, Stopped, Want};

/// How far a step came.
#[derive(Debug)]
pub enum Progress<A> {
    /// These are to be read first: in the order of files and places, each once, and never what a step before has wanted.
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

    /// Goes on as far as it comes without a read. Wants at least one read; all of them are handed over before the next step.
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
        self.deliver(want, read, FetchCost::alone(want));
    }

    /// The same, with what it has cost.
    pub(crate) fn deliver(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        self.fetched.deliver(want, read, cost);
    }

    /// Whether steps may open files and read large values (at first they may). One that may not and has to wants nothing.
    pub(crate) fn set_may_block(&mut self, may_block: bool) {
        self.fetched.set_may_block(may_block);
    }

    /// Lets go of files that were opened: see [`Fetched::close_files`].
    pub(crate) fn close_files(&mut self) {
        self.fetched.close_files();
    }

    /// Forgets what was wanted and handed over: the next step wants it again.
    pub(crate) fn let_go(&mut self) {
        self.fetched.clear();
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

    /// Goes on as far as it comes without a read, at most 256 of which are wanted at the same time. The next step may be taken before all of
    /// them are handed over: keys that have what they want go on, and if there are none it wants nothing more.
    /// The answers come in the order of the keys.
    pub fn step(&mut self) -> Progress<Vec<Result<Option<Found>>>> {
        let wants = self.op.as_mut().map(MultiGetOp::step).unwrap_or_default();
        if self.op.as_ref().is_some_and(|op| !op.is_done()) {
            return Progress::Wants(wants);
        }
        let answers = self.op.take().map(MultiGetOp::finish).unwrap_or_default();
        let found = |content| Found::new(&self.tree, content);
        Progress::Done(answers.into_iter().map(|answer| Ok(answer?.map(found))).collect())
    }

    /// Hands over the bytes of a want, or why they could not be read.
    pub fn put(&mut self, want: &Want, read: Result<Block>) {
        self.deliver(want, read, FetchCost::alone(want));
    }

    /// The same, with what it has cost.
    pub(crate) fn deliver(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        if let Some(op) = &mut self.op {
            op.fetched().deliver(want, read, cost);
            op.arrived(want);
        }
    }

    /// As [`PendingGet::set_may_block`]. One that may not block goes on with other keys meanwhile: it has to if it wants nothing and all was
    /// handed over.
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

    /// How many keys are not looked up yet: as long as it stays the same, what was handed over is kept.
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
