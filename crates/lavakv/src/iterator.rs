//! The iterator of the public API: a pinned view, merged, seen at one sequence.
//!
//! Separated values are lazy: moving reads keys and references, and the value behind a reference is read when it is
//! asked for, once for each position. A scan over keys thus costs no more than the keys do.

use crate::engine::Engine;
use crate::family::{Family, View};
use crate::options::ReadOptions;
use crate::read_path::pin;
use crate::snapshot::Snapshot;
use base::{Error, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use lsm::{
    Bounds, MergingIterator, Readers, ReferenceResolver, Sources, TableSource, VisibleIterator,
    VisibleOptions,
};
use std::cell::OnceCell;
use std::sync::Arc;
use table::{IterOptions, ReadCounters};

/// Walks the keys of a column family in order, in both directions, as of one moment.
///
/// A new iterator stands nowhere: call one of the `seek` methods. It pins the tables and memtables it reads, also past
/// the end of the [`crate::Db`] it came from (the store stays locked until it is dropped).
pub struct DbIterator {
    inner: Option<VisibleIterator>,
    keys_only: bool,
    /// The separated value of the present position, once it was asked for.
    fetched: OnceCell<BlockSlice>,
    values: Option<Arc<Values>>,
    // Order of fields is order of dropping: the view last but the engine, so that clean-up sees the view gone.
    view: Option<Arc<View>>,
    _snapshot: Option<Snapshot>,
    engine: Arc<Engine>,
}

impl DbIterator {
    pub(crate) fn new(engine: &Arc<Engine>, family: &Family, options: ReadOptions) -> Result<Self> {
        if let Some(snapshot) = &options.snapshot
            && !snapshot.is_of(&engine.snapshots)
        {
            return Err(Error::invalid("the snapshot belongs to another store"));
        }
        engine.stats.iterators.add(1);
        let (view, seq) = pin(engine, family, options.snapshot.as_ref().map(Snapshot::sequence));
        let iter_options =
            IterOptions { fill_cache: options.fill_cache, readahead_bytes: options.readahead_bytes };
        let mut visible = VisibleOptions::at(seq);
        (visible.lower, visible.upper) = (options.lower_bound, options.upper_bound);
        visible.keys_only = options.keys_only;
        if let Some(prefix) = &options.prefix {
            visible = visible.with_prefix(prefix);
        }
        let tables: Arc<dyn TableSource> = engine.tables.clone();
        let mut sources = Sources::new(Readers::At(seq), tables, iter_options);
        for memtable in [&view.active].into_iter().chain(&view.frozen) {
            sources.cursors.push(Box::new(memtable.iter()));
            if memtable.has_range_tombstones() {
                sources.tombstones.push(memtable.range_tombstones());
            }
        }
        let bounds = Bounds { lower: visible.lower.as_deref(), upper: visible.upper.as_deref() };
        sources.add(view.version.levels.iter().enumerate(), bounds)?;
        let merged = MergingIterator::new(sources.cursors);
        let values =
            Arc::new(Values { engine: engine.clone(), view: view.clone(), fill_cache: options.fill_cache });
        visible.resolver = Some(values.clone());
        Ok(DbIterator {
            inner: Some(VisibleIterator::new(merged, sources.tombstones, visible)),
            keys_only: options.keys_only,
            fetched: OnceCell::new(),
            values: Some(values),
            view: Some(view),
            _snapshot: options.snapshot,
            engine: engine.clone(),
        })
    }

    /// The view beneath, which is about to move.
    fn moving(&mut self) -> &mut VisibleIterator {
        self.fetched.take();
        self.inner.as_mut().expect("present until dropped")
    }

    /// True while it stands on an entry.
    pub fn valid(&self) -> bool {
        self.inner.as_ref().is_some_and(VisibleIterator::valid)
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.moving().seek_to_first()
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.moving().seek_to_last()
    }

    /// Moves to the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.moving().seek(key)
    }

    /// Moves to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.moving().seek_for_prev(key)
    }

    /// Moves to the next key.
    ///
    /// # Errors
    /// `InvalidArgument` if it stands nowhere; the errors of reading otherwise, after which it stands nowhere.
    #[expect(clippy::should_implement_trait, reason = "a cursor, as `prev` is; `entries` is the Iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.must_stand()?;
        self.moving().next()
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<()> {
        self.must_stand()?;
        self.moving().prev()
    }

    fn must_stand(&self) -> Result<()> {
        if self.valid() {
            return Ok(());
        }
        Err(Error::invalid("the iterator stands nowhere: seek first, and check valid()"))
    }

    /// The key; empty if it stands nowhere.
    pub fn key(&self) -> &[u8] {
        self.inner.as_ref().filter(|i| i.valid()).map_or(&[], VisibleIterator::key)
    }

    /// The value; empty if it stands nowhere or was asked for keys only.
    ///
    /// A separated value is read by the first call at a position; moving over it without asking does not read it.
    ///
    /// # Errors
    /// Those of reading a separated value. The iterator stays where it is: ask again, or move on.
    pub fn value(&self) -> Result<&[u8]> {
        let Some(inner) = self.inner.as_ref().filter(|i| i.valid() && !self.keys_only) else {
            return Ok(&[]);
        };
        let kind = inner.value_kind();
        if !matches!(kind, ValueKind::Reference | ValueKind::SegmentReference) {
            return Ok(inner.value());
        }
        if let Some(value) = self.fetched.get() {
            return Ok(value);
        }
        let values = self.values.as_ref().expect("present until dropped");
        let value = values.fetch(inner.key(), inner.seq(), kind, inner.value())?;
        Ok(self.fetched.get_or_init(|| value))
    }

    /// The entries from here on (from the first key, if it stands nowhere), copied out.
    pub fn entries(self) -> Entries {
        Entries { started: self.valid(), iterator: self, failed: false }
    }
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        self.inner = None;
        self.values = None;
        self.view = None;
        if self.engine.obsolete.has_ready() {
            self.engine.scheduler.notify_work();
        }
    }
}

/// Reads the values behind the references that an iterator meets.
struct Values {
    view: Arc<View>,
    engine: Arc<Engine>,
    fill_cache: bool,
}

impl Values {
    fn fetch(&self, user_key: &[u8], seq: SeqNo, kind: ValueKind, reference: &[u8]) -> Result<BlockSlice> {
        let (version, mut counters) = (&self.view.version, ReadCounters::default());
        let entry = (user_key, seq, kind);
        crate::fetch::value(&self.engine, version, entry, reference, self.fill_cache, &mut counters)
    }
}

impl ReferenceResolver for Values {
    fn resolve(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        reference: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.extend_from_slice(&self.fetch(user_key, seq, kind, reference)?);
        Ok(())
    }
}

/// Keys and values in order; see [`DbIterator::entries`].
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
