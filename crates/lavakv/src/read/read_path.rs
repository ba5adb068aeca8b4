//! The point read: memtables, newest first, then the tables, level by level.
//!
//! Sources are searched from new to old, so the first entry found is the answer, unless a range
//! tombstone found on the way is newer. If the entry is a merge operand, the search goes on below it
//! for more operands and their base. A read pins the family's read state *before* it takes the
//! visible frontier as its sequence. Compaction may drop versions below the frontier, but not from
//! files of a pinned read state. If the read state changed in between, the read starts again, so
//! that it sees everything that was visible at its sequence.
//!
//! The path is a state machine ([`GetOp`]), written once for any [`Source`] of bytes. With a
//! blocking source, the first call runs to the end. With a non-blocking one
//! (`table::FetchedBlocks`), the read stops wherever it needs bytes that are neither in memory nor
//! in the cache, and returns the missing extents. It continues once they were handed over, so one
//! thread can keep many reads in flight
//! ([decision](../../../docs/decisions/0063-reads-say-what-they-want.md)).

use crate::context::stats::Stats;
use crate::files::damaged;
use crate::read::fetch::{self, Content};
use crate::read::operands::{FoundOperands, operator_of};
use crate::tree::Tree;
use crate::tree::family::{Family, ReadState, pin_at};
use base::hash::key_hash;
use base::key::{self, seek_target};
use base::{InternalIterator, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use memtable::MemTable;
use std::ops::Deref;
use std::sync::Arc;
use table::{ReadCounters, Source, Stop};
use version::FileMeta;

/// Holds the value of a read without a copy; it derefs to its bytes, and keeps its memory in use
/// while it lives.
///
/// It is immutable and cheap to clone, and stays valid after later writes and a close. Use
/// [`Value::into_vec`] for bytes that live long: a small value may keep a whole cached block.
#[derive(Clone, Debug)]
pub struct Value(pub(crate) BlockSlice);

impl Value {
    /// Returns a copy of the bytes, for bytes that live long or change, and gives up the shared
    /// memory. To read the bytes without a copy dereference the value. The call reads no device.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl std::ops::Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value(BlockSlice::from(bytes))
    }
}

/// Pins a read state and a sequence to read at: the snapshot's, or the visible frontier.
pub(crate) fn pin(tree: &Tree, family: &Family, snapshot: Option<SeqNo>) -> (Arc<ReadState>, SeqNo) {
    match snapshot {
        Some(seq) => (family.read_state(), seq),
        None => pin_at(&tree.snapshots, family),
    }
}

/// A resumable point read: see the module. The blocking read borrows tree and key; one that
/// outlives its caller owns them.
pub(crate) struct GetOp<T, K> {
    tree: T,
    read_state: Arc<ReadState>,
    key: K,
    snapshot: SeqNo,
    hash: u64,
    /// Merge operands found so far; `None`: none yet.
    operands: Option<Box<FoundOperands>>,
    /// The newest range tombstone found so far that covers the key.
    covered: SeqNo,
    fill_cache: bool,
    /// True if the caller only needs to know whether a value exists; the value is not read.
    presence_only: bool,
    at: At,
}

/// The next source to search.
enum At {
    Memtables,
    /// A memtable has the answer: the value is in a segment. Sequence and reference.
    Segment(SeqNo, Vec<u8>),
    /// The level, and the index of its next file (in L0).
    Tables(usize, usize),
}

impl<'a> GetOp<&'a Tree, &'a [u8]> {
    /// Reads the value, whatever its length.
    pub fn run(self) -> Result<Option<Value>> {
        self.find()?.map(Content::into_value).transpose()
    }

    /// Reads the value, unless it is large.
    pub fn find(mut self) -> Result<Option<Content>> {
        let mut counters = ReadCounters::default();
        let out = self.advance(&mut counters);
        book(&self.tree.context.stats, 1, u64::from(out.as_ref().is_ok_and(Option::is_some)), &counters);
        out
    }
}

impl<T: Deref<Target = Tree>, K: Deref<Target = [u8]>> GetOp<T, K> {
    /// Creates a read of a pinned read state. `fill_cache`: whether a separated value enters the
    /// cache.
    pub fn new(tree: T, pinned: (Arc<ReadState>, SeqNo), key: K, fill_cache: bool) -> Self {
        let ((read_state, snapshot), hash) = (pinned, key_hash(&key));
        let (operands, covered, presence_only, at) = (None, 0, false, At::Memtables);
        GetOp { tree, read_state, key, snapshot, hash, operands, covered, fill_cache, presence_only, at }
    }

    /// Returns empty bytes instead of a value, and never reads a separated one.
    pub fn presence_only(self) -> Self {
        GetOp { presence_only: true, ..self }
    }

    /// Searches the tables only.
    pub fn below_memtables(self) -> Self {
        GetOp { at: At::Tables(0, 0), ..self }
    }

    /// Runs to the answer. A large value is located, but not read. With a non-blocking `source` it
    /// stops before the first missing read, and continues there at the next call.
    ///
    /// # Errors
    /// Those of damage and of reading; with a non-blocking source, a wait for data.
    pub fn advance<S: Source>(&mut self, source: &mut S) -> Result<Option<Content>, S::Stop> {
        if let At::Memtables = self.at {
            self.at = At::Tables(0, 0);
            if let Some(answer) = self.ask_memtables() {
                self.tree.context.stats.gets_memtable.add(1);
                return Ok(self.folded(answer)?);
            }
        }
        loop {
            // A repeated step counts its lookups again, so its counts are undone.
            let before = S::RESUMES.then(|| *source.counters());
            match self.step(source).map_err(S::Stop::into_error) {
                Ok(Some(answer)) => return Ok(self.folded(answer)?),
                Ok(None) => {}
                Err(Ok(e)) => return Err(e.into()),
                Err(Err(waiting)) => {
                    before.into_iter().for_each(|before| *source.counters() = before);
                    return Err(waiting);
                }
            }
        }
    }

    /// Searches the next table; `Some` is the answer.
    fn step<S: Source>(&mut self, source: &mut S) -> Result<Option<Option<Content>>, S::Stop> {
        match &self.at {
            At::Segment(seq, reference) => {
                let entry = (&*self.key, *seq, ValueKind::PlacedReference);
                let (version, fill) = (&self.read_state.version, self.fill_cache);
                let found = fetch::content(&self.tree, version, entry, reference, fill, source)?;
                Ok(Some(Some(found)))
            }
            &At::Tables(level, index) => match self.next_file(level, index) {
                None => Ok(Some(None)),
                Some((file, next)) => {
                    let below = self.below();
                    let answer = self.ask_table(&file, source)?;
                    // After an operand the same table may have older entries.
                    if self.below() == below {
                        self.at = next;
                    }
                    Ok(answer)
                }
            },
            At::Memtables => unreachable!("memtables are asked first"),
        }
    }

    /// Returns the sequence up to which entries are wanted. Range tombstones count up to the
    /// snapshot.
    fn below(&self) -> SeqNo {
        self.operands.as_ref().map_or(self.snapshot, |operands| operands.below())
    }

    fn push_operand(&mut self, seq: SeqNo, operand: &[u8]) {
        self.operands.get_or_insert_default().push(seq, operand);
    }

    /// Adds the operands that follow in a memtable, by a cursor: a hot counter has thousands.
    fn push_operands_below(&mut self, memtable: &Arc<MemTable>) {
        let mut versions = memtable.iter();
        // A seek and moves in memory do not fail.
        let mut moved = versions.seek(&seek_target(&self.key, self.below()));
        while moved.is_ok() && versions.valid() {
            let (user_key, trailer) = key::split(versions.key());
            let seq = trailer >> 8;
            let is_operand = key::kind(versions.key()) == Some(ValueKind::Merge);
            if *user_key != *self.key || !is_operand || seq < self.covered {
                break;
            }
            self.push_operand(seq, versions.value());
            moved = versions.next();
        }
    }

    /// Returns the answer with the operands above it folded into it.
    fn folded(&self, answer: Option<Content>) -> Result<Option<Content>> {
        let Some(operands) = &self.operands else { return Ok(answer) };
        let operator = operator_of(&self.tree.context.options, &self.read_state.options);
        operands.fold(&self.key, answer, operator).map(Some)
    }

    /// Returns `Some(answer)` if a memtable settles the read without I/O.
    fn ask_memtables(&mut self) -> Option<Option<Content>> {
        let read_state = self.read_state.clone();
        for memtable in [&read_state.active].into_iter().chain(&read_state.frozen) {
            let covering = memtable.covering_range_tombstone(&self.key, self.snapshot);
            self.covered = self.covered.max(covering.unwrap_or(0));
            while let Some(entry) = memtable.get(&self.key, self.below()) {
                if entry.seq < self.covered {
                    return Some(None);
                }
                if self.presence_only && has_value(entry.kind) {
                    return Some(Some(nothing()));
                }
                if entry.kind == ValueKind::Merge {
                    self.push_operand(entry.seq, entry.value);
                    self.push_operands_below(memtable);
                    continue;
                }
                if entry.kind == ValueKind::PlacedReference {
                    self.at = At::Segment(entry.seq, entry.value.to_vec());
                    return None;
                }
                let bytes = || Content::Bytes(BlockSlice::from(entry.value.to_vec()));
                return Some((entry.kind == ValueKind::Value).then(bytes));
            }
        }
        // Everything in tables is older than a tombstone in a memtable.
        (self.covered > 0).then_some(None)
    }

    /// Returns the next table whose range contains the key, and the source after it.
    fn next_file(&self, mut level: usize, mut index: usize) -> Option<(Arc<FileMeta>, At)> {
        let version = &self.read_state.version;
        while level < version.levels.len() {
            if level == 0 {
                while let Some(file) = version.files(0).get(index) {
                    index += 1;
                    if file.covers(&self.key) {
                        return Some((file.clone(), At::Tables(0, index)));
                    }
                }
            } else if let Some(file) = version.file_at(level, &self.key) {
                return Some((file.clone(), At::Tables(level + 1, 0)));
            }
            (level, index) = (level + 1, 0);
        }
        None
    }

    fn ask_table<S: Source>(
        &mut self,
        file: &FileMeta,
        source: &mut S,
    ) -> Result<Option<Option<Content>>, S::Stop> {
        let opened = self.tree.files.tables.table_from(file, source);
        let table = damaged::in_table(opened, file)?;
        if !table.range_tombstones().is_empty() {
            let covering = table.range_tombstones().covering(&self.key, self.snapshot);
            self.covered = self.covered.max(covering.unwrap_or(0));
        }
        let found = table.get(&self.key, self.below(), self.hash, source);
        let found = damaged::in_table(found, file)?;
        let Some(found) = found else { return Ok((self.covered > 0).then_some(None)) };
        match found.kind {
            // Strictly less: an entry with a zeroed sequence has 0, and so has "no tombstone".
            _ if found.seq < self.covered => Ok(Some(None)),
            ValueKind::Value => Ok(Some(Some(Content::Bytes(found.value)))),
            kind if kind.is_tombstone() => Ok(Some(None)),
            kind if self.presence_only && has_value(kind) => Ok(Some(Some(nothing()))),
            ValueKind::Merge => {
                self.push_operand(found.seq, &found.value);
                Ok(None)
            }
            kind => {
                let entry = (&*self.key, found.seq, kind);
                let version = &self.read_state.version;
                let content =
                    fetch::content(&self.tree, version, entry, &found.value, self.fill_cache, source);
                Ok(Some(Some(content?)))
            }
        }
    }
}

/// True for kinds of entries that make their key present.
fn has_value(kind: ValueKind) -> bool {
    use ValueKind::{Merge, PlacedReference, Reference, Value};
    matches!(kind, Value | Merge | Reference | PlacedReference)
}

fn nothing() -> Content {
    Content::Bytes(BlockSlice::from(Vec::new()))
}

/// Adds point reads and their total cost to the statistics.
pub(crate) fn book(stats: &Stats, gets: u64, found: u64, c: &ReadCounters) {
    stats.gets.add(gets);
    stats.gets_found.add(found);
    if c.device_reads > 0 {
        stats.get_device_reads.add(c.device_reads);
        stats.get_device_bytes.add(c.device_read_bytes);
        stats.get_index_reads.add(c.index_reads);
        stats.get_filter_reads.add(c.filter_reads);
        stats.get_data_reads.add(c.data_reads);
        stats.get_vsst_index_reads.add(c.vsst_index_reads);
        stats.get_value_reads.add(c.value_reads);
    }
    stats.get_values_cached.add(c.values_cached);
    stats.get_filter_negatives.add(c.filter_negatives);
    stats.get_filter_false_positives.add(c.filter_false_positives);
    if c.filters_unreadable > 0 {
        stats.get_filters_unreadable.add(c.filters_unreadable);
    }
}
