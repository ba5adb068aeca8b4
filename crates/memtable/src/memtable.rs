//! The memtable as the engine sees it.
//!
//! Visibility is the business of the caller: an entry can be found as soon as it is linked, and a reader asks at a
//! snapshot. A snapshot up to which all inserts have returned (published to the reader with release and acquire, as
//! any shared counter is) sees the same entries at every later time.

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
    /// What it is.
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
    /// `u64::MAX` while the table is empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
    /// Some entry is a point tombstone.
    has_deletions: AtomicBool,
    /// Of its bytes so many were told by [`MemTable::take_grown`].
    told_bytes: AtomicU64,
}

impl MemTable {
    /// An empty memtable. It allocates nothing to speak of before the first insert.
    pub fn new(id: u64) -> Self {
        Self::with_list(id, SkipList::new(id))
    }

    /// An empty memtable that will be frozen at about `bytes`: it takes memory in steps that are small beside that.
    pub fn for_bytes(id: u64, bytes: usize) -> Self {
        Self::with_list(id, SkipList::for_bytes(id, bytes))
    }

    /// The same, as one of many that share a budget: it takes little more than it holds, and is slower at first.
    pub fn sparing(id: u64, bytes: usize) -> Self {
        Self::with_list(id, SkipList::sparing(id, bytes))
    }

    /// A memtable with the entries of others that have sequences from `floor` on. Nothing is inserted into those meanwhile.
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

    /// Adds an entry. Any number of threads may do so at once. For [`ValueKind::RangeDeletion`] the user key is the
    /// start and `value` the end of the range.
    ///
    /// # Panics
    /// If `(user_key, seq, kind)` is in the table already, if key or value are over [`base::limits`], or if the kind
    /// belongs to the log only.
    pub fn insert(&self, seq: SeqNo, kind: ValueKind, user_key: &[u8], value: &[u8]) {
        if let Some(trailer) = self.take(seq, kind, user_key, value) {
            self.list.insert(user_key, trailer, value);
        }
    }

    /// The trailer of a point entry, which is to go into the list; all else of an entry is done.
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
        // Sequences mostly rise: the minimum is written once.
        if self.min_seq.load(Relaxed) > seq {
            self.min_seq.fetch_min(seq, Relaxed);
        }
        if self.max_seq.load(Relaxed) < seq {
            self.max_seq.fetch_max(seq, Relaxed);
        }
        (!is_range).then(|| pack_trailer(seq, kind))
    }

    /// Begins a list of entries that are put in together: see [`HeldEntries`].
    pub fn hold(self: &Arc<Self>) -> HeldEntries {
        HeldEntries { table: self.clone(), points: Held::of(&self.list) }
    }

    /// The newest point entry of `user_key` with a sequence of at most `snapshot`, tombstones included. Range
    /// tombstones are not considered: see [`MemTable::covering_range_tombstone`].
    pub fn get(&self, user_key: &[u8], snapshot: SeqNo) -> Option<MemEntry<'_>> {
        let target = Target::new(user_key, pack_trailer(snapshot, ValueKind::Seek));
        let node = self.list.first_from(&target).filter(|node| node.user_key() == user_key)?;
        let trailer = node.trailer();
        debug_assert!(trailer >> 8 <= snapshot);
        Some(MemEntry { seq: trailer >> 8, kind: stored_kind(trailer), value: node.value() })
    }

    /// An iterator over the point entries. It sees entries that are inserted while it moves.
    pub fn iter(self: &Arc<Self>) -> MemIter {
        MemIter { cursor: Cursor::new(self.list.clone()), _table: self.clone() }
    }

    /// The range tombstones as fragments, made at the first call after an insert of one.
    pub fn range_tombstones(&self) -> Arc<FragmentedRangeTombstones> {
        self.range_tombstones.fragments()
    }

    /// The same in several parts, a number that grows with the logarithm of theirs: less work for one who reads between range deletes.
    pub fn range_tombstone_parts(&self) -> Vec<Arc<FragmentedRangeTombstones>> {
        self.range_tombstones.parts()
    }

    /// True if there are range tombstones; costs one load.
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones.len() > 0
    }

    /// True if there are tombstones, of points or ranges.
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

    /// The newest range tombstone visible at `snapshot` that covers `user_key`: entries of the key with a lower
    /// sequence are deleted. Costs one load where there are no range tombstones, and never fragments all of them for
    /// the sake of a few new ones.
    pub fn covering_range_tombstone(&self, user_key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        self.range_tombstones.covering(user_key, snapshot)
    }

    /// Bytes of memory held: chunks of the arena in full, and an estimate for range tombstones.
    pub fn bytes(&self) -> usize {
        self.list.bytes() + self.range_tombstones.bytes()
    }

    /// By how much [`MemTable::bytes`] has grown since it was asked last, by whomever: each byte is told once. When every thread that
    /// has inserted has asked, all of them were told.
    ///
    /// `None`: by nothing.
    pub fn take_grown(&self) -> Option<usize> {
        let (bytes, told) = (self.bytes() as u64, self.told_bytes.load(Relaxed));
        (bytes > told).then(|| bytes.saturating_sub(self.told_bytes.fetch_max(bytes, Relaxed)) as usize)
    }

    /// Entries, range tombstones included.
    pub fn len(&self) -> usize {
        self.list.len() + self.range_tombstones.len()
    }

    /// Point entries.
    pub fn point_entries(&self) -> usize {
        self.list.len()
    }

    /// True if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The smallest and largest sequence inserted; `None` if there is none yet.
    pub fn seq_range(&self) -> Option<(SeqNo, SeqNo)> {
        let range = (self.min_seq.load(Relaxed), self.max_seq.load(Relaxed));
        (range.0 <= range.1).then_some(range)
    }
}

/// Entries of a memtable that are put in together, once all are there: much faster for many of them than one by one, if nobody has to
/// find any before. They take memory of the table from the beginning, and count as being inserted.
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
    /// Holds an entry, as [`MemTable::insert`]; a range tombstone is in the table at once.
    ///
    /// # Panics
    /// As that, but for an entry that is in the table already: then [`HeldEntries::link`] does.
    pub fn push(&mut self, seq: SeqNo, kind: ValueKind, user_key: &[u8], value: &[u8]) {
        if let Some(trailer) = self.table.take(seq, kind, user_key, value) {
            self.points.push(user_key, trailer, value);
        }
    }

    /// Takes over what somebody else holds for the same memtable.
    ///
    /// # Panics
    /// If it is for another one.
    pub fn append(&mut self, other: HeldEntries) {
        self.points.append(other.points);
    }

    /// The memtable.
    pub fn table(&self) -> &Arc<MemTable> {
        &self.table
    }

    /// Entries that are held.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// True if none is held.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// All of them are found in the memtable when this returns.
    ///
    /// # Panics
    /// If one is there already.
    pub fn link(self) {
        self.points.link();
    }
}

/// The kind in a trailer that `insert` packed.
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

/// An iterator over the point entries of a memtable, which it keeps alive. Moving backward costs a search.
pub struct MemIter {
    cursor: Cursor,
    /// Whoever counts the owners of a memtable counts its iterators too.
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

// In the loom model the list's atomics live in a model run only.
#[cfg(all(test, not(loom)))]
mod tests;
