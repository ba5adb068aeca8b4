//! Validation: a write that takes effect only if the keys that its caller has read are unchanged.
//!
//! The caller collects the keys in a [`ReadSet`], each with the sequence at which it was read. The
//! write fails with `Conflict` if one of them has a newer change (backward validation, Kung and
//! Robinson, 1981). There are two passes:
//!
//! 1. *Without a lock*, against all changes that a pinned read state holds. Memtables and tables
//!    without a sequence above that of the read are passed over. The lookups in the other tables
//!    may read the device.
//! 2. *Under the writer's lock*, against the changes since the pin. These are in memory, unless a
//!    memtable was flushed meanwhile: then the first pass is repeated, with the next pin.
//!
//! So the lock is held for one lookup in memory per key, and for nothing if no write came between.
//! Of the ranges that were read it passes at most [`RANGE_ENTRIES_MAX`] entries in memory. Where
//! they hold more, the first pass is repeated as well, in the hope that no write comes after it.
//! The write fails with `Busy` after [`ATTEMPTS`] passes.
//!
//! **Tables keep what the first pass looks for.** Compaction may zero the sequence of an entry that
//! all snapshots see. The set holds a snapshot at or before the sequence of each of its reads, so
//! no change after a read is zeroed. Compaction may drop a change and the tombstone above it. Then
//! the key is absent again, as it was at the read, and the read still holds.

mod ranges;

use super::WritePath;
use super::admission::Entered;
use super::memtables::{Memtables, Writer};
use crate::tree::Tree;
use crate::tree::family::{ColumnFamily, Family, ReadState, pin_at};
use crate::tree::snapshot::Snapshot;
use base::hash::key_hash;
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo};
use memtable::MemTable;
use ranges::{RangeRead, Searched};
use std::collections::BTreeMap;
use std::sync::Arc;
use table::ReadCounters;
use version::FileMeta;

/// Bytes of a key in a set beside the key itself.
const KEY_BYTES: usize = 64;

/// Most bytes of the keys in a set. They bound the time of the second pass: about 60,000 lookups
/// of short keys.
pub const READ_SET_BYTES_MAX: usize = 8 << 20;

/// Most bytes of a key in a message.
const KEY_SHOWN_LEN: usize = 64;

/// Most entries in ranges that the second pass looks at.
const RANGE_ENTRIES_MAX: usize = 16 << 10;

/// First passes for ranges with more entries.
const ATTEMPTS: u32 = 16;

/// Keys and ranges that a caller has read, each with the sequence of the read, for a write that is
/// to fail if one of them changes.
#[derive(Debug)]
pub struct ReadSet {
    /// Keeps every change after a read distinguishable: see the module.
    snapshot: Snapshot,
    families: Vec<FamilyReads>,
    bytes: usize,
}

/// The reads of a family.
#[derive(Debug)]
struct FamilyReads {
    family: ColumnFamily,
    /// The lowest sequence at which a key was read, by key.
    keys: BTreeMap<Box<[u8]>, SeqNo>,
    ranges: Vec<RangeRead>,
}

/// A range of a [`ReadSet`] that becomes longer while it is read; see [`ReadSet::add_range`].
#[derive(Clone, Copy, Debug)]
pub struct RangeId {
    family: usize,
    range: usize,
}

impl ReadSet {
    /// Creates an empty set for reads at this snapshot and later ones.
    pub fn new(snapshot: Snapshot) -> ReadSet {
        ReadSet { snapshot, families: Vec::new(), bytes: 0 }
    }

    /// Returns the snapshot with which the set was created.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Adds a key that was read at a sequence. The first read of a key counts.
    ///
    /// # Errors
    /// `TooLarge`: the set would be above [`READ_SET_BYTES_MAX`].
    pub fn add(&mut self, family: &ColumnFamily, key: &[u8], seq: SeqNo) -> Result<()> {
        let (seq, nth) = (seq.max(self.snapshot.sequence()), self.of_family(family));
        if let Some(first) = self.families[nth].keys.get_mut(key) {
            *first = seq.min(*first);
            return Ok(());
        }
        self.book(key.len() + KEY_BYTES)?;
        self.families[nth].keys.insert(key.into(), seq);
        Ok(())
    }

    /// Adds an empty range that begins at a key, for a scan at a sequence;
    /// [`ReadSet::extend_range`] follows the scan.
    ///
    /// # Errors
    /// As [`ReadSet::add`].
    pub fn add_range(&mut self, family: &ColumnFamily, start: &[u8], seq: SeqNo) -> Result<RangeId> {
        let (since, family) = (seq.max(self.snapshot.sequence()), self.of_family(family));
        self.book(start.len() + KEY_BYTES)?;
        let ranges = &mut self.families[family].ranges;
        ranges.push(RangeRead { start: start.to_vec(), end: Some(start.to_vec()), since });
        Ok(RangeId { family, range: ranges.len() - 1 })
    }

    /// Makes a range longer, up to a key that is not in it; `None`: without an end.
    ///
    /// # Errors
    /// As [`ReadSet::add`].
    pub fn extend_range(&mut self, id: RangeId, end: Option<&[u8]>) -> Result<()> {
        let range = self.families.get_mut(id.family).and_then(|reads| reads.ranges.get_mut(id.range));
        let range = range.ok_or_else(|| Error::invalid("the range is of another read set"))?;
        let grows = end.map_or(0, <[u8]>::len).saturating_sub(range.end.as_ref().map_or(0, Vec::len));
        range.end = end.map(<[u8]>::to_vec);
        self.book(grows)
    }

    /// Returns the place of a family, which is added if it is new.
    fn of_family(&mut self, family: &ColumnFamily) -> usize {
        let nth = self.families.iter().position(|reads| reads.family.id() == family.id());
        nth.unwrap_or_else(|| {
            let (keys, ranges) = (BTreeMap::new(), Vec::new());
            self.families.push(FamilyReads { family: family.clone(), keys, ranges });
            self.families.len() - 1
        })
    }

    /// Books bytes of keys.
    fn book(&mut self, bytes: usize) -> Result<()> {
        let bytes = self.bytes + bytes;
        if bytes > READ_SET_BYTES_MAX {
            let why = format!(
                "a transaction tracks keys of {bytes} bytes, and at most {READ_SET_BYTES_MAX} are supported: make it \
                 shorter"
            );
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Enters the writer's lock by `enter`, and keeps it if no key has changed.
    ///
    /// # Errors
    /// Those of `enter`, and of [`ReadSet::check`].
    pub(super) fn enter_unchanged<'a>(
        &self,
        writes: &WritePath,
        mut enter: impl FnMut() -> Result<Entered<'a>>,
    ) -> Result<Entered<'a>> {
        for _ in 0..ATTEMPTS {
            let checked = self.check(&writes.tree)?;
            let entered = enter()?;
            match &entered {
                Entered::Open(writer) if !checked.still_holds(&writes.memtables, writer)? => {}
                _ => return Ok(entered),
            }
        }
        let why = "other writes came after each check of the ranges that the transaction has read: repeat \
                   it, or read shorter ranges";
        Err(Error::new(ErrorKind::Busy, why))
    }

    /// Returns if all keys are unchanged at one moment during the call.
    ///
    /// # Errors
    /// Those of [`ReadSet::check`].
    pub(crate) fn check_now(&self, writes: &WritePath) -> Result<()> {
        self.enter_unchanged(writes, || Ok(Entered::Open(writes.memtables.lock()))).map(drop)
    }

    /// The first pass.
    ///
    /// # Errors
    /// `Conflict`: a key has changed. Those of reading; `NotFound` for a dropped family.
    fn check(&self, tree: &Tree) -> Result<Checked<'_>> {
        let mut pins = Vec::with_capacity(self.families.len());
        for reads in &self.families {
            let family = tree.own(&reads.family)?;
            let (read_state, seq) = pin_at(&tree.snapshots, family);
            family.check_there()?;
            for (key, &since) in &reads.keys {
                let memtables = [&read_state.active].into_iter().chain(&read_state.frozen);
                if changed_in_memory(memtables, key, since)
                    || changed_in_tables(tree, &read_state, key, since)?
                {
                    return Err(conflict(family, key));
                }
            }
            for range in &reads.ranges {
                let memtables = [&read_state.active].into_iter().chain(&read_state.frozen);
                let in_memory = range.search_memtables(memtables, range.since, &mut usize::MAX.clone())?;
                if in_memory == Searched::Changed || range.is_changed_in_tables(tree, &read_state)? {
                    return Err(conflict_in(family, range));
                }
            }
            pins.push(Pin { family, read_state, seq });
        }
        Ok(Checked { set: self, pins })
    }
}

/// The read state against which the keys of a family were checked.
struct Pin<'a> {
    family: &'a Arc<Family>,
    read_state: Arc<ReadState>,
    /// The visible frontier: each later change is in the active memtable of the read state, or in a
    /// later one.
    seq: SeqNo,
}

/// A set without a change up to its pins.
struct Checked<'a> {
    set: &'a ReadSet,
    pins: Vec<Pin<'a>>,
}

impl Checked<'_> {
    /// The second pass, under the writer's lock. Returns false if a memtable that was active at the
    /// pin has been flushed: the first pass must be repeated.
    ///
    /// # Errors
    /// `Conflict`.
    fn still_holds(&self, memtables: &Memtables, writer: &Writer) -> Result<bool> {
        if self.pins.iter().all(|pin| pin.seq + 1 == writer.next_seq) {
            return Ok(true);
        }
        memtables.wait_for_inserts();
        let mut looks = RANGE_ENTRIES_MAX;
        for (pin, reads) in self.pins.iter().zip(&self.set.families) {
            let now = pin.family.read_state();
            let mut later = vec![&now.active];
            later.extend(&now.frozen);
            let Some(nth) = later.iter().position(|table| Arc::ptr_eq(table, &pin.read_state.active)) else {
                return Ok(false);
            };
            later.truncate(nth + 1);
            let changed = |key: &[u8]| changed_in_memory(later.iter().copied(), key, pin.seq);
            if let Some(key) = reads.keys.keys().find(|key| changed(key)) {
                return Err(conflict(pin.family, key));
            }
            for range in &reads.ranges {
                match range.search_memtables(later.iter().copied(), pin.seq, &mut looks)? {
                    Searched::Unchanged => {}
                    Searched::Changed => return Err(conflict_in(pin.family, range)),
                    Searched::TooLong => return Ok(false),
                }
            }
        }
        Ok(true)
    }
}

/// Returns true if a memtable has a change of the key above a sequence.
fn changed_in_memory<'a>(
    mut memtables: impl Iterator<Item = &'a Arc<MemTable>>,
    key: &[u8],
    since: SeqNo,
) -> bool {
    memtables.any(|memtable| {
        memtable.seq_range().is_some_and(|(_, max)| max > since)
            && (memtable.get(key, MAX_SEQ).is_some_and(|entry| entry.seq > since)
                || memtable.covering_range_tombstone(key, MAX_SEQ).is_some_and(|seq| seq > since))
    })
}

/// Returns true if a table has a change of the key above a sequence.
fn changed_in_tables(tree: &Tree, read_state: &ReadState, key: &[u8], since: SeqNo) -> Result<bool> {
    let version = &read_state.version;
    let is_later = |file: &&Arc<FileMeta>| file.seq_range().1 > since && file.covers(key);
    let in_level_0 = version.files(0).iter().filter(is_later);
    let below = (1..version.levels.len()).filter_map(|level| version.file_at(level, key)).filter(is_later);
    let mut counters = ReadCounters::default();
    for file in in_level_0.chain(below) {
        let table = tree.files.tables.table_from(file, &mut counters)?;
        if table.range_tombstones().covering(key, MAX_SEQ).is_some_and(|seq| seq > since) {
            return Ok(true);
        }
        let found = table.get(key, MAX_SEQ, key_hash(key), &mut counters)?;
        if found.is_some_and(|found| found.seq > since) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn conflict(family: &Family, key: &[u8]) -> Error {
    let (key, family) = (shown(key), &family.name);
    Error::new(ErrorKind::Conflict, format!("another write changed {key} of family {family} since the read"))
}

fn conflict_in(family: &Family, range: &RangeRead) -> Error {
    let (start, family) = (shown(&range.start), &family.name);
    let why = format!("another write changed the range from {start} on of family {family} since the read");
    Error::new(ErrorKind::Conflict, why)
}

/// Returns a key for a message.
fn shown(key: &[u8]) -> String {
    match key.get(..KEY_SHOWN_LEN) {
        Some(start) if start.len() < key.len() => format!("key \"{}...\"", start.escape_ascii()),
        _ => format!("key \"{}\"", key.escape_ascii()),
    }
}
