//! The memtable as used by the engine.
//!
//! The caller controls visibility: an entry can be found as soon as it is linked, and a reader asks
//! at a snapshot. Consider a snapshot up to which all inserts have returned, published to the
//! reader with release and acquire. It sees the same entries at every later time.

use crate::range_tombstones::RangeTombstones;
use crate::skiplist::{Cursor, Held, NodeRef, SkipList, Target};
use base::key::pack_trailer;
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::sync::model::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use base::{InternalIterator, Result, SeqNo, ValueKind};
use std::fmt;
use std::sync::Arc;

/// A point entry of a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemEntry<'a> {
    /// The sequence of the write.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: ValueKind,
    /// The value, as inserted.
    pub value: &'a [u8],
}

/// Recent writes in memory, sorted. Share it as `Arc<MemTable>`.
///
/// ```
/// use base::ValueKind;
/// use lavastore_memtable::MemTable;
/// let table = MemTable::new(1);
/// table.insert(7, ValueKind::Value, b"key", b"old");
/// table.insert(9, ValueKind::Value, b"key", b"new");
/// assert_eq!(table.get(b"key", 8).map(|e| e.value), Some(&b"old"[..]));
/// assert_eq!(table.get(b"key", 6), None);
/// ```
pub struct MemTable {
    id: u64,
    list: Arc<SkipList>,
    range_tombstones: RangeTombstones,
    /// Minimum sequence; `u64::MAX` while the table is empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
    /// Some entry is a point tombstone.
    has_deletions: AtomicBool,
    /// Bytes already reported by [`MemTable::take_grown`].
    told_bytes: AtomicU64,
}

impl MemTable {
    /// Returns an empty memtable. It allocates almost nothing before the first insert.
    pub fn new(id: u64) -> Self {
        Self::with_list(id, SkipList::new(id))
    }

    /// Returns an empty memtable that will be frozen at about `bytes`: it allocates in steps that
    /// are small beside that.
    pub fn for_bytes(id: u64, bytes: usize) -> Self {
        Self::with_list(id, SkipList::for_bytes(id, bytes))
    }

    /// As [`MemTable::for_bytes`], for one of many that share a budget: it allocates little more
    /// than its contents, and is slower at first.
    pub fn sparing(id: u64, bytes: usize) -> Self {
        Self::with_list(id, SkipList::sparing(id, bytes))
    }

    /// Returns a memtable with the entries of others from sequence `floor` on. Nothing is inserted
    /// into those meanwhile.
    ///
    /// ```
    /// use base::ValueKind;
    /// use lavastore_memtable::MemTable;
    /// use std::sync::Arc;
    /// let (old, new) = (Arc::new(MemTable::new(1)), Arc::new(MemTable::new(2)));
    /// old.insert(7, ValueKind::Value, b"key", b"first");
    /// old.insert(8, ValueKind::Value, b"key", b"second");
    /// new.insert(9, ValueKind::Deletion, b"key", b"");
    /// let rest = MemTable::merged(3, &[old, new], 8);
    /// assert_eq!((rest.len(), rest.seq_range()), (2, Some((8, 9))));
    /// ```
    pub fn merged(id: u64, tables: &[Arc<MemTable>], floor: SeqNo) -> Arc<MemTable> {
        let bytes = tables.iter().map(|table| table.bytes()).sum();
        let merged = Arc::new(MemTable::for_bytes(id, bytes));
        let mut held = merged.hold();
        for table in tables {
            let mut cursor = Cursor::new(table.list.clone());
            cursor.first();
            while let Some(node) = cursor.node() {
                let trailer = node.trailer();
                if trailer >> 8 >= floor {
                    held.push(trailer >> 8, stored_kind(trailer), node.user_key(), node.value());
                }
                cursor.next();
            }
            for tombstone in table.range_tombstones.all().iter().filter(|tombstone| tombstone.seq >= floor) {
                merged.insert(tombstone.seq, ValueKind::RangeDeletion, &tombstone.start, &tombstone.end);
            }
        }
        held.link();
        merged
    }

    fn with_list(id: u64, list: SkipList) -> Self {
        MemTable {
            id,
            list: Arc::new(list),
            range_tombstones: RangeTombstones::default(),
            min_seq: AtomicU64::new(u64::MAX),
            max_seq: AtomicU64::new(0),
            has_deletions: AtomicBool::new(false),
            told_bytes: AtomicU64::new(0),
        }
    }

    /// Adds an entry. Any number of threads may do so at once. For [`ValueKind::RangeDeletion`] the
    /// user key is the start and `value` the end of the range.
    ///
    /// # Panics
    /// If `(user_key, seq, kind)` is already in the table, if key or value are over
    /// [`base::limits`], or if the kind belongs only to the log.
    pub fn insert(&self, seq: SeqNo, kind: ValueKind, user_key: &[u8], value: &[u8]) {
        if let Some(trailer) = self.take(seq, kind, user_key, value) {
            self.list.insert(user_key, trailer, value);
        }
    }

    /// Records an entry. Returns the trailer of a point entry, which the caller adds to the list.
    fn take(&self, seq: SeqNo, kind: ValueKind, user_key: &[u8], value: &[u8]) -> Option<u64> {
        use ValueKind as K;
        assert!(!matches!(kind, K::Prepare | K::Commit | K::Rollback | K::Seek), "{kind:?} in a memtable");
        let is_range = kind == K::RangeDeletion;
        if is_range {
            let tombstone = RangeTombstone { start: user_key.to_vec(), end: value.to_vec(), seq };
            self.range_tombstones.push(tombstone);
        }
        if matches!(kind, K::Deletion | K::SingleDeletion) {
            self.has_deletions.store(true, Relaxed);
        }
        // Sequences usually ascend: the minimum is written once.
        if self.min_seq.load(Relaxed) > seq {
            self.min_seq.fetch_min(seq, Relaxed);
        }
        if self.max_seq.load(Relaxed) < seq {
            self.max_seq.fetch_max(seq, Relaxed);
        }
        (!is_range).then(|| pack_trailer(seq, kind))
    }

    /// Begins a batch of entries that are linked together: see [`HeldEntries`].
    pub fn hold(self: &Arc<Self>) -> HeldEntries {
        HeldEntries { table: self.clone(), points: Held::of(&self.list) }
    }

    /// Returns the newest point entry of `user_key` with a sequence of at most `snapshot`,
    /// including tombstones. Range tombstones are not considered: see
    /// [`MemTable::covering_range_tombstone`].
    pub fn get(&self, user_key: &[u8], snapshot: SeqNo) -> Option<MemEntry<'_>> {
        let target = Target::new(user_key, pack_trailer(snapshot, ValueKind::Seek));
        let node = self.list.first_from(&target).filter(|node| node.user_key() == user_key)?;
        let trailer = node.trailer();
        debug_assert!(trailer >> 8 <= snapshot);
        Some(MemEntry { seq: trailer >> 8, kind: stored_kind(trailer), value: node.value() })
    }

    /// Returns an iterator over the point entries. It sees entries that are inserted while it
    /// moves.
    pub fn iter(self: &Arc<Self>) -> MemIter {
        MemIter { cursor: Cursor::new(self.list.clone()), _table: self.clone() }
    }

    /// Returns the range tombstones as fragments, made at the first call after an insert of one.
    pub fn range_tombstones(&self) -> Arc<FragmentedRangeTombstones> {
        self.range_tombstones.fragments()
    }

    /// Returns the range tombstones as fragments in several parts, whose number grows
    /// logarithmically: less work for a reader between range deletes.
    pub fn range_tombstone_parts(&self) -> Vec<Arc<FragmentedRangeTombstones>> {
        self.range_tombstones.parts()
    }

    /// Returns true if there are range tombstones; costs one load.
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones.len() > 0
    }

    /// Returns true if there are tombstones, of points or ranges.
    ///
    /// ```
    /// use base::ValueKind;
    /// use lavastore_memtable::MemTable;
    /// let table = MemTable::new(1);
    /// table.insert(7, ValueKind::Value, b"key", b"value");
    /// assert!(!table.has_tombstones());
    /// table.insert(8, ValueKind::Deletion, b"key", b"");
    /// assert!(table.has_tombstones());
    /// ```
    pub fn has_tombstones(&self) -> bool {
        self.has_deletions.load(Relaxed) || self.has_range_tombstones()
    }

    /// Returns the newest range tombstone visible at `snapshot` that covers `user_key`: entries of
    /// the key with a lower sequence are deleted. Costs one load if there are no range tombstones,
    /// and never fragments all of them for a few new ones.
    pub fn covering_range_tombstone(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        self.range_tombstones.covering(user_key, snapshot)
    }

    /// Returns the bytes of memory held: chunks of the arena in full, and an estimate for range
    /// tombstones.
    pub fn bytes(&self) -> usize {
        self.list.bytes() + self.range_tombstones.bytes()
    }

    /// Returns the growth of [`MemTable::bytes`] since the last call on any thread: each byte is
    /// reported once. After every inserting thread has called it, all bytes are reported.
    ///
    /// `None`: no growth.
    pub fn take_grown(&self) -> Option<usize> {
        let (bytes, told) = (self.bytes() as u64, self.told_bytes.load(Relaxed));
        (bytes > told).then(|| bytes.saturating_sub(self.told_bytes.fetch_max(bytes, Relaxed)) as usize)
    }

    /// Returns the number of entries, including range tombstones.
    pub fn len(&self) -> usize {
        self.list.len() + self.range_tombstones.len()
    }

    /// Returns the number of point entries.
    pub fn point_entries(&self) -> usize {
        self.list.len()
    }

    /// Returns true if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the smallest and largest sequence inserted; `None` if there is none yet.
    pub fn seq_range(&self) -> Option<(SeqNo, SeqNo)> {
        let range = (self.min_seq.load(Relaxed), self.max_seq.load(Relaxed));
        (range.0 <= range.1).then_some(range)
    }
}

/// Batch of entries of a memtable that are linked together: much faster for many entries than
/// single inserts, if no reader needs them before. They take memory of the table from the
/// beginning, and count as being inserted.
///
/// ```
/// use base::ValueKind;
/// use lavastore_memtable::MemTable;
/// use std::sync::Arc;
/// let table = Arc::new(MemTable::new(1));
/// let mut held = table.hold();
/// held.push(9, ValueKind::Value, b"b", b"2");
/// held.push(7, ValueKind::Value, b"a", b"1");
/// assert_eq!(table.get(b"a", 9), None);
/// held.link();
/// assert_eq!(table.get(b"a", 9).map(|e| e.value), Some(&b"1"[..]));
/// ```
pub struct HeldEntries {
    table: Arc<MemTable>,
    points: Held,
}

impl HeldEntries {
    /// Adds an entry to the batch, as [`MemTable::insert`]; a range tombstone is in the table at
    /// once.
    ///
    /// # Panics
    /// As [`MemTable::insert`], except for an entry that is already in the table: then
    /// [`HeldEntries::link`] panics.
    pub fn push(&mut self, seq: SeqNo, kind: ValueKind, user_key: &[u8], value: &[u8]) {
        if let Some(trailer) = self.table.take(seq, kind, user_key, value) {
            self.points.push(user_key, trailer, value);
        }
    }

    /// Takes over the batch of another thread for the same memtable.
    ///
    /// # Panics
    /// If it is for another memtable.
    pub fn append(&mut self, other: HeldEntries) {
        self.points.append(other.points);
    }

    /// Returns the memtable.
    pub fn table(&self) -> &Arc<MemTable> {
        &self.table
    }

    /// Returns the number of entries in the batch.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns true if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Links all entries: they can be found in the memtable when this returns.
    ///
    /// # Panics
    /// If one is already there.
    pub fn link(self) {
        self.points.link();
    }
}

/// Returns the kind in a trailer that `insert` packed.
fn stored_kind(trailer: u64) -> ValueKind {
    ValueKind::from_u8(trailer as u8).unwrap_or_else(|| unreachable!("insert packs stored kinds only"))
}

impl fmt::Debug for MemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemTable")
            .field("id", &self.id)
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .field("seq_range", &self.seq_range())
            .finish()
    }
}

/// Iterator over the point entries of a memtable, which it keeps alive. A backward move costs a
/// search.
pub struct MemIter {
    cursor: Cursor,
    /// Counts as an owner of the memtable.
    _table: Arc<MemTable>,
}

impl MemIter {
    fn node(&self) -> NodeRef<'_> {
        self.cursor.node().unwrap_or_else(|| panic!("the iterator is not valid"))
    }
}

impl InternalIterator for MemIter {
    fn valid(&self) -> bool {
        self.cursor.node().is_some()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.first();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.last();
        Ok(())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.cursor.seek(&Target::encoded(target));
        Ok(())
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.cursor.seek_for_prev(&Target::encoded(target));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        self.cursor.next();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        self.cursor.prev();
        Ok(())
    }

    fn key(&self) -> &[u8] {
        self.node().key()
    }

    fn value(&self) -> &[u8] {
        self.node().value()
    }
}

impl fmt::Debug for MemIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemIter").field("table", &self._table.id).field("valid", &self.valid()).finish()
    }
}

// In the loom model the list's atomics exist only in a model run.
#[cfg(all(test, not(loom)))]
mod tests;
