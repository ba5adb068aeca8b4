//! The iterator of the public API: a merged view of a pinned read state at one sequence.
//!
//! Separated values are lazy: a move reads keys and references. The value behind a reference is
//! read on demand, once for each position. So a scan over keys costs only the keys. A scan over
//! values reads them in batches (see [`crate::read::prefetch`]).

use crate::read::operands::{fold_into, operator_of};
use crate::read::options::ReadOptions;
use crate::read::prefetch::{Prefetch, Reach, batch::Values};
use crate::read::read_path::{Value, pin};
use crate::read::wanted::SeekReads;
use crate::tree::Tree;
use crate::tree::family::{ColumnFamily, Family, ReadState};
use crate::tree::open_iterators::{IteratorGuard, Reader};
use crate::tree::scan_cost::ScanCost;
use crate::tree::snapshot::Snapshot;
use base::process::Owned;
use base::{Error, ErrorKind, Result, SeqNo};
use lsm::visible::empty::EmptyRanges;
use lsm::{
    Bounds, Cursor, MergingIterator, ReferenceResolver, Sources, TableSource, Visibility, VisibleIterator,
    VisibleOptions,
};
use std::sync::Arc;
use table::IterOptions;
use version::FamilyId;

/// An iterator over the keys of a column family as of one moment, in both directions.
///
/// A new iterator has no position: call one of the `seek` methods. It pins its tables and
/// memtables, even after the [`crate::Db`] was dropped (the store stays locked until the iterator
/// is dropped). After [`crate::Db::close`] its moves fail with `Closed`.
#[must_use = "an iterator does nothing until it is moved"]
pub struct DbIterator {
    inner: Option<Prefetch>,
    keys_only: bool,
    family: FamilyId,
    seq: SeqNo,
    /// True if the last move went forward.
    forward: bool,
    /// Receives the count of passed entries.
    demand: Arc<ScanCost>,
    /// Passed entries reported so far.
    told_hidden: u64,
    // Fields are dropped in this order: the read state before the tree, so that clean-up finds it
    // released.
    read_state: Option<Arc<ReadState>>,
    _snapshot: Option<Snapshot>,
    /// The entry in the space ledger, which lists the pinned files.
    _reading: Owned<IteratorGuard>,
    tree: Arc<Tree>,
}

impl DbIterator {
    pub(crate) fn new(tree: &Arc<Tree>, family: &Arc<Family>, options: ReadOptions) -> Result<Self> {
        let pinned = pin(tree, family, tree.sequence_of(options.snapshot.as_ref())?);
        Self::over(tree, family, pinned, options)
    }

    /// Returns another iterator over the same family at the same moment; `options` without a
    /// snapshot.
    ///
    /// # Errors
    /// Those of opening tables; `InvalidArgument` for another family.
    pub fn beside(&self, family: &ColumnFamily, options: ReadOptions) -> Result<Self> {
        self.tree.reads.check()?;
        match &self.read_state {
            Some(read_state) if family.id() == self.family => {
                Self::over(&self.tree, &family.0, (read_state.clone(), self.seq), options)
            }
            _ => Err(Error::invalid(
                "the iterator is of another column family: pass the family of the iterator",
            )),
        }
    }

    fn over(
        tree: &Arc<Tree>,
        family: &Arc<Family>,
        (read_state, seq): (Arc<ReadState>, SeqNo),
        options: ReadOptions,
    ) -> Result<Self> {
        let reading = listed(tree, family, &options.name, (&read_state, seq));
        let reach = Reach::of(&options, tree.context.pace().costs());
        let values = Arc::new(Values {
            tree: tree.clone(),
            read_state: read_state.clone(),
            fill_cache: options.fill_cache,
            demand: family.demand.clone(),
        });
        let view = view((tree, family), (&read_state, seq), &options, Some(values.clone()), false)?;
        Ok(DbIterator {
            inner: Some(Prefetch::new(view, values, reach)),
            keys_only: options.keys_only,
            family: family.id,
            seq,
            forward: true,
            demand: family.demand.clone(),
            told_hidden: 0,
            read_state: Some(read_state),
            _snapshot: options.snapshot,
            _reading: Owned::new(reading),
            tree: tree.clone(),
        })
    }

    /// Fails once the store is closed; the iterator then releases its files.
    fn check_open(&mut self) -> Result<()> {
        self.tree.reads.check().inspect_err(|e| {
            if e.kind() == ErrorKind::Closed {
                (self.inner, self.read_state) = (None, None);
            }
        })
    }

    fn seek_by(&mut self, forward: bool, seek: impl FnOnce(&mut Prefetch) -> Result<()>) -> Result<()> {
        self.check_open()?;
        self.forward = forward;
        let begun = self.tree.context.times.seek.begin();
        let out = seek(self.inner());
        self.tree.context.times.seek.end(begun);
        self.tell_hidden();
        out
    }

    /// Reports the entries passed since the last report.
    fn tell_hidden(&mut self) {
        let hidden = self.hidden_entries();
        self.demand.passed(hidden.saturating_sub(self.told_hidden));
        self.told_hidden = hidden;
    }

    fn step_by(&mut self, forward: bool, step: impl FnOnce(&mut Prefetch) -> Result<()>) -> Result<()> {
        self.check_open()?;
        self.must_stand()?;
        self.forward = forward;
        let begun = self.tree.context.times.next.begin();
        let out = step(self.inner());
        self.tree.context.times.next.end(begun);
        out
    }

    fn inner(&mut self) -> &mut Prefetch {
        self.inner.as_mut().expect("present until dropped")
    }

    /// True if it has a position.
    pub fn valid(&self) -> bool {
        self.inner.as_ref().is_some_and(Prefetch::valid)
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// Those of reading, after which it has no position; `Closed` once the store is closed.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_by(true, Prefetch::seek_to_first)
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_by(false, Prefetch::seek_to_last)
    }

    /// Moves to the first key at or after `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_by(true, |inner| inner.seek(key))
    }

    /// Moves to the last key at or before `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek_by(false, |inner| inner.seek_for_prev(key))
    }

    /// Moves to the next key.
    ///
    /// # Errors
    /// `InvalidArgument` if it has no position; otherwise the errors of reading, after which it has
    /// none.
    #[expect(clippy::should_implement_trait, reason = "a cursor, as `prev` is; `entries` is the Iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.step_by(true, Prefetch::next)
    }

    /// Moves to the previous key.
    ///
    /// # Errors
    /// As [`DbIterator::next`].
    pub fn prev(&mut self) -> Result<()> {
        self.step_by(false, Prefetch::prev)
    }

    /// Continues after a move that failed because a table, or part of it, cannot be read. The
    /// direction stays the same. The iterator skips all keys that the unreadable part may hold.
    /// That part is one block if the table's index contains its end, otherwise the table (from
    /// [`crate::DamagedFile::first_key`] to `last_key`). Entries of other tables between these keys
    /// are skipped too, since they may not be the newest: read single keys with [`crate::Db::get`].
    /// After a key whose merge operands could not be folded, it skips that key.
    ///
    /// # Errors
    /// Those of any move: the next unreadable table fails in the same way. `InvalidArgument` if the
    /// last move did not fail because of an unreadable table, or of merge operands.
    pub fn skip_damaged(&mut self) -> Result<()> {
        self.check_open()?;
        let forward = self.forward;
        if self.valid() || !self.inner().skip_gap(forward)? {
            return Err(Error::invalid(
                "the iterator is not at damage, so there is none to skip: seek first",
            ));
        }
        Ok(())
    }

    fn must_stand(&self) -> Result<()> {
        if self.valid() {
            return Ok(());
        }
        Err(Error::invalid("the iterator has no position: seek first, and check valid()"))
    }

    /// Returns the key; empty without a position.
    pub fn key(&self) -> &[u8] {
        self.inner.as_ref().filter(|i| i.valid()).map_or(&[], Prefetch::key)
    }

    /// Returns the value; empty without a position, or with `keys_only`.
    ///
    /// The first call at a position reads a separated value; a move alone does not. If the values
    /// of successive positions are read, those of the next positions are read ahead.
    ///
    /// # Errors
    /// Those of reading a separated value. The iterator keeps its position: retry, or move on.
    pub fn value(&self) -> Result<&[u8]> {
        self.tree.reads.check()?;
        match &self.inner {
            Some(inner) if inner.valid() && !self.keys_only => inner.value(),
            _ => Ok(&[]),
        }
    }

    /// Folds merge operands, the oldest first, into a value of `key`: see [`crate::Db::fold`].
    ///
    /// # Errors
    /// Those of [`crate::Db::fold`].
    pub fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Value> {
        let options = self.read_state.as_ref().map(|read_state| &*read_state.options);
        let operator = options.and_then(|options| operator_of(&self.tree.context.options, options));
        fold_into(operator, key, base, operands)
    }

    /// Returns the number of entries that its moves passed without returning them: tombstones,
    /// entries below them, and old versions. Large numbers explain slow scans.
    pub fn hidden_entries(&self) -> u64 {
        self.inner.as_ref().map_or(0, Prefetch::hidden_entries)
    }

    /// Returns copies of the entries from here on (from the first key, without a position).
    pub fn entries(self) -> Entries {
        Entries { started: self.valid(), iterator: self, failed: false }
    }
}

/// Counts an iterator over a read state, and lists it until the returned guard is dropped.
pub(crate) fn listed(
    tree: &Tree,
    family: &Family,
    name: &str,
    (read_state, seq): (&Arc<ReadState>, SeqNo),
) -> IteratorGuard {
    tree.context.stats.iterators.add(1);
    let reader = Reader {
        name: name.into(),
        family: family.id,
        seq,
        since_ns: tree.context.now_ns(),
        read_state: Arc::downgrade(read_state),
    };
    IteratorGuard::begin(&tree.readers, tree.snapshots.new_id(), reader)
}

/// Returns the view of a read state at a sequence that `options` ask for. With `waits` the caller
/// performs its device reads (`read::scan`).
///
/// # Errors
/// Those of opening tables.
pub(crate) fn view(
    (tree, family): (&Arc<Tree>, &Arc<Family>),
    (read_state, seq): (&Arc<ReadState>, SeqNo),
    options: &ReadOptions,
    resolver: Option<Arc<dyn ReferenceResolver>>,
    waits: bool,
) -> Result<VisibleIterator> {
    let iter_options =
        IterOptions { fill_cache: options.fill_cache, readahead_bytes: options.readahead_bytes };
    // A filter of compactions removes keys that a pinned read state still shows.
    let is_filtered = tree.context.options.expert.compaction_filters.of(&family.name).is_some();
    let empty = (!is_filtered).then(|| family.clone() as Arc<dyn EmptyRanges>);
    let mut visible = VisibleOptions { resolver, empty, ..VisibleOptions::at(seq) };
    visible.operator = operator_of(&tree.context.options, &read_state.options);
    (visible.lower, visible.upper) = (options.lower_bound.clone(), options.upper_bound.clone());
    visible.keys_only = options.keys_only;
    if let Some(prefix) = &options.prefix {
        visible = visible.with_prefix(prefix);
    }
    let tables: Arc<dyn TableSource> = tree.files.tables.clone();
    let sources = Sources::new(Visibility::At(seq), tables, iter_options);
    let mut sources =
        if waits { sources.waiting() } else { sources.reading_ahead(&tree.context.read_queues) };
    for memtable in [&read_state.active].into_iter().chain(&read_state.frozen) {
        sources.cursors.push(Cursor::Any(Box::new(memtable.iter())));
        sources.tombstones.extend(memtable.range_tombstone_parts());
    }
    let bounds = Bounds { lower: visible.lower.as_deref(), upper: visible.upper.as_deref() };
    sources.add(read_state.version.levels.iter().enumerate(), bounds)?;
    let merged = MergingIterator::over(sources.cursors);
    let merged = if waits { merged } else { merged.reading_together(Box::new(SeekReads(tree.clone()))) };
    Ok(VisibleIterator::new(merged, sources.tombstones, visible))
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.valid() {
            true => write!(f, "DbIterator(at \"{}\")", self.key().escape_ascii()),
            false => f.write_str("DbIterator(nowhere)"),
        }
    }
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        if self.tree.context.check_process().is_err() {
            std::mem::forget((self.inner.take(), self.read_state.take(), self.tree.clone()));
            return;
        }
        self.tell_hidden();
        self.inner = None;
        self.read_state = None;
        self.tree.was_let_go();
    }
}

/// Keys and values in order; see [`DbIterator::entries`].
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct Entries {
    iterator: DbIterator,
    started: bool,
    failed: bool,
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if !self.started {
            self.started = true;
            if let Err(e) = self.iterator.seek_to_first() {
                self.failed = true;
                return Some(Err(e));
            }
        }
        if !self.iterator.valid() {
            return None;
        }
        let value = match self.iterator.value() {
            Ok(value) => value.to_vec(),
            Err(e) => {
                self.failed = true;
                return Some(Err(e));
            }
        };
        let entry = (self.iterator.key().to_vec(), value);
        if let Err(e) = self.iterator.next() {
            self.failed = true;
            return Some(Err(e));
        }
        Some(Ok(entry))
    }
}
