//! The point read: memtables, newest first, then the tables, level by level.
//!
//! Sources are asked from new to old, so the first entry found is the answer, unless a range tombstone met on the way
//! is newer. A read pins the family's read state *before* it takes the visible frontier as its sequence: compaction may drop
//! what the frontier no longer needs, but not from files of a read state that is pinned. If the read state changed in between, it
//! starts again, so that a read sees everything that was visible when it took its sequence.
//!
//! The path is a state machine ([`GetOp`]), written once for any [`Source`] of bytes. With one that reads, the first call
//! goes to the end. With one that does not (`table::Fetched`), the read stops wherever it needs bytes that neither memory nor
//! cache has, says which, and goes on there once they were handed over: so one thread can have the reads of many in flight
//! ([decision](../../../docs/decisions/0063-reads-say-what-they-want.md)).

use crate::context::stats::Stats;
use crate::files::damaged;
use crate::read::fetch::{self, Content};
use crate::tree::Tree;
use crate::tree::family::{Family, ReadState};
use crate::tree::snapshot::Snapshots;
use base::hash::key_hash;
use base::{Result, SeqNo, ValueKind};
use cache::BlockSlice;
use std::ops::Deref;
use std::sync::Arc;
use table::{ReadCounters, Source, Stop};
use version::FileMeta;

/// A value that was read. It pins the cached block it lies in.
#[derive(Clone, Debug)]
pub struct Value(pub(crate) BlockSlice);

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

/// A point read that can be gone on with: see the module. The blocking read borrows tree and key, one that outlives its
/// caller owns them.
pub(crate) struct GetOp<T, K> {
    tree: T,
    read_state: Arc<ReadState>,
    key: K,
    snapshot: SeqNo,
    hash: u64,
    /// The newest range tombstone met that covers the key.
    covered: SeqNo,
    fill_cache: bool,
    /// The answer is whether there is a value; the value is not read.
    presence_only: bool,
    at: At,
}

/// What is to be asked next.
enum At {
    Memtables,
    /// A memtable has the answer: the value is in a segment. Sequence and reference.
    Segment(SeqNo, Vec<u8>),
    /// Level, and the next file of it (in L0).
    Tables(usize, usize),
}

impl<'a> GetOp<&'a Tree, &'a [u8]> {
    /// Reads to the end, and the value, whatever its length.
    pub fn run(self) -> Result<Option<Value>> {
        self.find()?.map(Content::into_value).transpose()
    }

    /// Reads to the end, except for a large value.
    pub fn find(mut self) -> Result<Option<Content>> {
        let mut counters = ReadCounters::default();
        let out = self.advance(&mut counters);
        book(&self.tree.context.stats, 1, u64::from(out.as_ref().is_ok_and(Option::is_some)), &counters);
        out
    }
}

impl<T: Deref<Target = Tree>, K: Deref<Target = [u8]>> GetOp<T, K> {
    /// A read of what `pinned` shows. `fill_cache`: whether a separated value that is read goes into the cache.
    pub fn new(tree: T, pinned: (Arc<ReadState>, SeqNo), key: K, fill_cache: bool) -> Self {
        let ((read_state, snapshot), hash) = (pinned, key_hash(&key));
        let (covered, presence_only, at) = (0, false, At::Memtables);
        GetOp { tree, read_state, key, snapshot, hash, covered, fill_cache, presence_only, at }
    }

    /// Answers with empty bytes in place of a value, and never reads a separated one.
    pub fn presence_only(self) -> Self {
        GetOp { presence_only: true, ..self }
    }

    /// Asks tables alone.
    pub fn below_memtables(self) -> Self {
        GetOp { at: At::Tables(0, 0), ..self }
    }

    /// Goes on to the answer, in which a large value is found, but not read yet. Where `source` does not read, it stops before
    /// the first read, and goes on there when it is called again.
    ///
    /// # Errors
    /// What damage or the files report; that the read has to wait.
    pub fn advance<S: Source>(&mut self, source: &mut S) -> Result<Option<Content>, S::Stop> {
        if let At::Memtables = self.at {
            self.at = At::Tables(0, 0);
            if let Some(answer) = self.ask_memtables() {
                self.tree.context.stats.gets_memtable.add(1);
                return Ok(answer);
            }
        }
        loop {
            // A step that begins again counts again what it meets.
            let before = S::RESUMES.then(|| *source.counters());
            match self.step(source).map_err(S::Stop::into_error) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(Ok(e)) => return Err(e.into()),
                Err(Err(waiting)) => {
                    before.into_iter().for_each(|before| *source.counters() = before);
                    return Err(waiting);
                }
            }
        }
    }

    /// Asks the next table; `Some` is the answer.
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
                    let answer = self.ask_table(&file, source)?;
                    self.at = next;
                    Ok(answer)
                }
            },
            At::Memtables => unreachable!("memtables are asked first"),
        }
    }

    /// `Some(answer)` if a memtable settles the read without I/O.
    fn ask_memtables(&mut self) -> Option<Option<Content>> {
        let read_state = self.read_state.clone();
        for memtable in [&read_state.active].into_iter().chain(&read_state.frozen) {
            let covering = memtable.covering_range_tombstone(&self.key, self.snapshot);
            self.covered = self.covered.max(covering.unwrap_or(0));
            if let Some(entry) = memtable.get(&self.key, self.snapshot) {
                if entry.seq < self.covered {
                    return Some(None);
                }
                if self.presence_only && has_value(entry.kind) {
                    return Some(Some(nothing()));
                }
                if entry.kind == ValueKind::PlacedReference {
                    self.at = At::Segment(entry.seq, entry.value.to_vec());
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
        let found = table.get(&self.key, self.snapshot, self.hash, source);
        let found = damaged::in_table(found, file)?;
        let Some(found) = found else { return Ok((self.covered > 0).then_some(None)) };
        match found.kind {
            // Strictly: an entry whose sequence was zeroed has 0, and so has "no tombstone".
            _ if found.seq < self.covered => Ok(Some(None)),
            ValueKind::Value => Ok(Some(Some(Content::Bytes(found.value)))),
            kind if kind.is_tombstone() => Ok(Some(None)),
            kind if self.presence_only && has_value(kind) => Ok(Some(Some(nothing()))),
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

/// True for the kinds whose entry makes its key present.
fn has_value(kind: ValueKind) -> bool {
    matches!(kind, ValueKind::Value | ValueKind::Reference | ValueKind::PlacedReference)
}

fn nothing() -> Content {
    Content::Bytes(BlockSlice::from(Vec::new()))
}

/// Counts point reads, and what they cost together.
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
