//! The point read: memtables, newest first, then the tables, level by level.
//!
//! Sources are asked from new to old, so the first entry found is the answer, unless a range tombstone met on the way
//! is newer. A read pins the family's read state *before* it takes the visible frontier as its sequence: compaction may drop
//! what the frontier no longer needs, but not from files of a read state that is pinned. If the read state changed in between, it
//! starts again, so that a read sees everything that was visible when it took its sequence.
//!
//! The path is a state machine ([`GetOp`]): it finishes without I/O when a memtable has the answer, and says `NeedIo`
//! before each table it asks, so that an asynchronous caller can go on elsewhere.

use crate::files::damaged;
use crate::read::fetch::{self, Content};
use crate::tree::Tree;
use crate::tree::family::{Family, ReadState};
use crate::tree::snapshot::Snapshots;
use base::hash::key_hash;
use base::{Result, SeqNo, ValueKind};
use cache::BlockSlice;
use lsm::TableSource;
use std::sync::Arc;
use table::ReadCounters;
use version::FileMeta;

/// A value that was read. It pins the cached block it lies in.
#[derive(Clone, Debug)]
pub struct Value(BlockSlice);

impl Value {
    /// Copies the bytes out (or takes them, where nobody shares them).
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

/// Where a read stands after a step.
#[derive(Debug)]
pub(crate) enum GetStep {
    /// The next step asks a table, which may read from the device.
    NeedIo,
    /// The answer. A large value is found, but not read yet.
    Done(Option<Content>),
}

/// Pins a read state and a sequence to read at: the given snapshot, or the visible frontier.
pub(crate) fn pin(tree: &Tree, family: &Family, snapshot: Option<SeqNo>) -> (Arc<ReadState>, SeqNo) {
    match snapshot {
        Some(seq) => (family.read_state(), seq),
        None => pin_at(&tree.snapshots, family),
    }
}

/// Pins a read state and the visible frontier: the read state holds everything up to it.
pub(crate) fn pin_at(snapshots: &Snapshots, family: &Family) -> (Arc<ReadState>, SeqNo) {
    let mut read_state = family.read_state();
    loop {
        let seq = snapshots.visible();
        let now = family.read_state();
        if Arc::ptr_eq(&read_state, &now) {
            return (read_state, seq);
        }
        read_state = now;
    }
}

/// A point read as resumable steps.
pub(crate) struct GetOp<'a> {
    tree: &'a Tree,
    read_state: Arc<ReadState>,
    key: &'a [u8],
    snapshot: SeqNo,
    hash: u64,
    /// The newest range tombstone met that covers the key.
    covered: SeqNo,
    fill_cache: bool,
    at: Source,
    counters: ReadCounters,
}

enum Source {
    Memtables,
    /// A memtable has the answer: the value is in a segment. Sequence and reference.
    Segment(SeqNo, Vec<u8>),
    /// Level, and the next file of it (in L0).
    TableCache(usize, usize),
}

impl<'a> GetOp<'a> {
    /// `fill_cache`: whether a separated value that is read goes into the cache.
    pub fn new(
        tree: &'a Tree,
        family: &Family,
        key: &'a [u8],
        snapshot: Option<SeqNo>,
        fill_cache: bool,
    ) -> Self {
        let (read_state, snapshot) = pin(tree, family, snapshot);
        let counters = ReadCounters::default();
        GetOp {
            tree,
            read_state,
            key,
            snapshot,
            hash: key_hash(key),
            covered: 0,
            fill_cache,
            at: Source::Memtables,
            counters,
        }
    }

    /// Asks tables alone.
    pub fn below_memtables(self) -> Self {
        GetOp { at: Source::TableCache(0, 0), ..self }
    }

    /// Drives the steps to the end, and reads the value, whatever its length.
    pub fn run(self) -> Result<Option<Value>> {
        self.find()?.map(|content| content.into_bytes().map(Value)).transpose()
    }

    /// Drives the steps to the end.
    pub fn find(mut self) -> Result<Option<Content>> {
        let out = loop {
            match self.step() {
                Ok(GetStep::NeedIo) => {}
                Ok(GetStep::Done(value)) => break Ok(value),
                Err(e) => break Err(e),
            }
        };
        self.book(out.as_ref().is_ok_and(Option::is_some));
        out
    }

    /// Advances to the next source that may do I/O, or to the answer.
    pub fn step(&mut self) -> Result<GetStep> {
        match &self.at {
            Source::Memtables => {
                self.at = Source::TableCache(0, 0);
                if let Some(answer) = self.ask_memtables() {
                    self.tree.context.stats.gets_memtable.add(1);
                    return Ok(GetStep::Done(answer));
                }
                Ok(GetStep::NeedIo)
            }
            Source::Segment(seq, reference) => {
                let entry = (self.key, *seq, ValueKind::PlacedReference);
                let (version, fill) = (&self.read_state.version, self.fill_cache);
                let found = fetch::content(self.tree, version, entry, reference, fill, &mut self.counters);
                found.map(|content| GetStep::Done(Some(content)))
            }
            &Source::TableCache(level, index) => match self.next_file(level, index) {
                None => Ok(GetStep::Done(None)),
                Some((file, next)) => {
                    self.at = next;
                    let answer = self.ask_table(&file)?;
                    Ok(answer.map_or(GetStep::NeedIo, GetStep::Done))
                }
            },
        }
    }

    /// `Some(answer)` if a memtable settles the read without I/O.
    fn ask_memtables(&mut self) -> Option<Option<Content>> {
        let read_state = self.read_state.clone();
        for memtable in [&read_state.active].into_iter().chain(&read_state.frozen) {
            let covering = memtable.covering_range_tombstone(self.key, self.snapshot);
            self.covered = self.covered.max(covering.unwrap_or(0));
            if let Some(entry) = memtable.get(self.key, self.snapshot) {
                if entry.seq < self.covered {
                    return Some(None);
                }
                if entry.kind == ValueKind::PlacedReference {
                    self.at = Source::Segment(entry.seq, entry.value.to_vec());
                    return None;
                }
                let bytes = || Content::Bytes(BlockSlice::from(entry.value.to_vec()));
                return Some((entry.kind == ValueKind::Value).then(bytes));
            }
        }
        // Everything in tables is older than a tombstone met in a memtable.
        (self.covered > 0).then_some(None)
    }

    /// The next table whose range holds the key, and where to go on after it.
    fn next_file(&self, mut level: usize, mut index: usize) -> Option<(Arc<FileMeta>, Source)> {
        let version = &self.read_state.version;
        while level < version.levels.len() {
            if level == 0 {
                while let Some(file) = version.files(0).get(index) {
                    index += 1;
                    if file.covers(self.key) {
                        return Some((file.clone(), Source::TableCache(0, index)));
                    }
                }
            } else if let Some(file) = version.file_at(level, self.key) {
                return Some((file.clone(), Source::TableCache(level + 1, 0)));
            }
            (level, index) = (level + 1, 0);
        }
        None
    }

    fn ask_table(&mut self, file: &FileMeta) -> Result<Option<Option<Content>>> {
        let opened = self.tree.files.tables.table(file);
        if base::canary::is("damaged-table-read-past") && opened.is_err() {
            return Ok(None);
        }
        let table = damaged::in_table(opened, file)?;
        if !table.range_tombstones().is_empty() {
            let covering = table.range_tombstones().covering(self.key, self.snapshot);
            self.covered = self.covered.max(covering.unwrap_or(0));
        }
        let found = table.get(self.key, self.snapshot, self.hash, &mut self.counters);
        let found = damaged::in_table(found, file)?;
        let Some(found) = found else { return Ok((self.covered > 0).then_some(None)) };
        match found.kind {
            // Strictly: an entry whose sequence was zeroed has 0, and so has "no tombstone".
            _ if found.seq < self.covered => Ok(Some(None)),
            ValueKind::Value => Ok(Some(Some(Content::Bytes(found.value)))),
            kind if kind.is_tombstone() => Ok(Some(None)),
            kind => {
                let entry = (self.key, found.seq, kind);
                let counters = &mut self.counters;
                let version = &self.read_state.version;
                let content =
                    fetch::content(self.tree, version, entry, &found.value, self.fill_cache, counters)?;
                Ok(Some(Some(content)))
            }
        }
    }

    fn book(&self, found: bool) {
        let (stats, c) = (&self.tree.context.stats, &self.counters);
        stats.gets.add(1);
        stats.gets_found.add(u64::from(found));
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
}
