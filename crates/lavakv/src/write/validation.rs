//! Validation: a write that takes effect only if the keys that its caller has read are unchanged.
//!
//! The caller reads at a snapshot, and collects the keys and ranges in a [`ReadSet`]. The write
//! fails with `Conflict` if one of them has a newer change (backward validation, Kung and Robinson,
//! 1981). Once the write is admitted, there are two passes:
//!
//! 1. *Without a lock*, against all changes that a pinned read state holds. Memtables and tables
//!    without a sequence above the snapshot are passed over. The lookups in the other tables may
//!    read the device.
//! 2. *Under the writer's lock*, against the changes since the pin. These are in memory, unless a
//!    memtable was flushed meanwhile: then the first pass is repeated, for the changes since its
//!    pin.
//!
//! So the lock is held for one lookup per key and later memtable, and for nothing if no write came
//! between. The second pass takes at most [`LOOKS_MAX`] lookups, entries of ranges and fragments of
//! range tombstones. If that does not suffice, the first pass is repeated as well, in the hope that
//! no write comes after it. The write fails with `Busy` after [`ATTEMPTS`] passes.
//!
//! **Tables keep the changes that the first pass searches.** Compaction may zero the sequence of an entry that
//! all snapshots see. The set keeps its snapshot, so no change after it is zeroed. Compaction may
//! drop a change and the tombstone above it. Then the key is absent again, as it was at the
//! snapshot, and the read still holds.

mod ranges;

use super::WritePath;
use super::admission::Entered;
use super::memtables::Writer;
use crate::batch::shown_key;
use crate::tree::Tree;
use crate::tree::family::{ColumnFamily, Family, ReadState, pin_at};
use crate::tree::snapshot::Snapshot;
use base::hash::key_hash;
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo};
use memtable::MemTable;
use ranges::{Looks, RangeRead, Searched};
use std::collections::BTreeSet;
use std::sync::Arc;
use table::ReadCounters;
use version::FileMeta;

/// Bytes of a key in a set beside the key itself.
const KEY_BYTES: usize = 64;

/// Most bytes of the keys in a set.
pub const READ_SET_BYTES_MAX: usize = 4 << 20;

/// Most lookups of the second pass: some ten milliseconds.
const LOOKS_MAX: usize = 64 << 10;

/// First passes before the write fails.
const ATTEMPTS: u32 = 16;

/// Keys between two looks at whether the store is still open.
const KEYS_BETWEEN_CHECKS: usize = 256;

/// Keys and ranges that a caller has read at a snapshot, for a write that is to fail if one of them
/// changes.
#[derive(Debug)]
pub struct ReadSet {
    /// Keeps every later change distinguishable: see the module.
    snapshot: Snapshot,
    families: Vec<FamilyReads>,
    bytes: usize,
}

/// The reads of a family.
#[derive(Debug)]
struct FamilyReads {
    family: ColumnFamily,
    keys: BTreeSet<Box<[u8]>>,
    ranges: Vec<RangeRead>,
}

/// A range of a [`ReadSet`] that becomes longer while it is read; see [`ReadSet::add_range`].
#[derive(Clone, Copy, Debug)]
pub struct RangeId {
    family: usize,
    range: usize,
}

impl ReadSet {
    /// Creates an empty set for reads at this snapshot.
    pub fn new(snapshot: Snapshot) -> ReadSet {
        ReadSet { snapshot, families: Vec::new(), bytes: 0 }
    }

    /// Returns the snapshot with which the set was created.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns true if it has no key and no range.
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// Moves the reads to a later snapshot, at which all keys were seen unchanged.
    pub fn move_to(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
    }

    /// Adds a key that was read at the snapshot.
    ///
    /// # Errors
    /// `TooLarge`: the set would be above [`READ_SET_BYTES_MAX`].
    pub fn add(&mut self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        let nth = self.of_family(family);
        if self.families[nth].keys.contains(key) {
            return Ok(());
        }
        self.book(key.len() + KEY_BYTES)?;
        self.families[nth].keys.insert(key.into());
        Ok(())
    }

    /// Adds an empty range that begins at a key, for a scan at the snapshot;
    /// [`ReadSet::extend_range`] follows the scan.
    ///
    /// # Errors
    /// As [`ReadSet::add`].
    pub fn add_range(&mut self, family: &ColumnFamily, start: &[u8]) -> Result<RangeId> {
        self.book(2 * start.len() + KEY_BYTES)?;
        let family = self.of_family(family);
        let ranges = &mut self.families[family].ranges;
        ranges.push(RangeRead::empty_at(start));
        Ok(RangeId { family, range: ranges.len() - 1 })
    }

    /// Makes a range longer, up to a key that is not in it; `None`: without an end.
    ///
    /// # Errors
    /// As [`ReadSet::add`].
    pub fn extend_range(&mut self, id: RangeId, end: Option<&[u8]>) -> Result<()> {
        let range = self.families.get_mut(id.family).and_then(|reads| reads.ranges.get_mut(id.range));
        let grown = range.ok_or_else(|| Error::invalid("the range is of another read set"))?.extend(end);
        self.book(grown)
    }

    /// Returns the place of a family, which is added if it is new.
    fn of_family(&mut self, family: &ColumnFamily) -> usize {
        let nth = self.families.iter().position(|reads| reads.family.id() == family.id());
        nth.unwrap_or_else(|| {
            let (keys, ranges) = (BTreeSet::new(), Vec::new());
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

    /// Enters the writer's lock by `enter`, and keeps it if no key has changed. The pins are to be
    /// dropped after the lock.
    ///
    /// # Errors
    /// Those of `enter`, and of [`ReadSet::check`]; `Busy`.
    pub(super) fn enter_unchanged<'a>(
        &'a self,
        writes: &'a WritePath,
        mut enter: impl FnMut() -> Result<Entered<'a>>,
    ) -> Result<(Entered<'a>, Pins<'a>)> {
        // A write that must wait checks nothing before.
        if let needs @ Entered::Needs(_) = enter()? {
            return Ok((needs, Pins::default()));
        }
        let mut pins = Pins::default();
        for _ in 0..ATTEMPTS {
            pins = self.check(&writes.tree, &pins)?;
            let entered = enter()?;
            match &entered {
                Entered::Open(writer) if !self.still_holds(&pins, writes, writer)? => {}
                _ => return Ok((entered, pins)),
            }
        }
        let why = "other writes came after each check of the keys that the transaction has read: repeat it, \
                   or read fewer keys";
        Err(Error::new(ErrorKind::Busy, why))
    }

    /// Returns if all keys are unchanged at one moment during the call.
    ///
    /// # Errors
    /// Those of [`ReadSet::check`]; `Busy`, `Poisoned`.
    pub(crate) fn check_now(&self, writes: &WritePath) -> Result<()> {
        let enter = || writes.context.check_open().map(|()| Entered::Open(writes.memtables.lock()));
        let (entered, _pins) = self.enter_unchanged(writes, enter)?;
        drop(entered);
        Ok(())
    }

    /// The first pass, for the changes since the snapshot, or since earlier pins.
    ///
    /// # Errors
    /// `Conflict`: a key has changed. Those of reading; `NotFound` for a dropped family.
    pub(crate) fn check<'a>(&'a self, tree: &'a Tree, earlier: &Pins<'_>) -> Result<Pins<'a>> {
        let mut pins = Pins::default();
        for (nth, reads) in self.families.iter().enumerate() {
            let since = earlier.0.get(nth).map_or(self.snapshot.sequence(), |pin| pin.seq);
            let family = tree.own(&reads.family)?;
            let (read_state, seq) = pin_at(&tree.snapshots, family);
            family.check_there()?;
            let memtables = || [&read_state.active].into_iter().chain(&read_state.frozen);
            for (nth, key) in reads.keys.iter().enumerate() {
                if nth % KEYS_BETWEEN_CHECKS == 0 {
                    tree.reads.check()?;
                }
                if memtables().any(|memtable| is_changed_in(memtable, key, since))
                    || changed_in_tables(tree, &read_state, key, since)?
                {
                    return Err(conflict(tree, family, key));
                }
            }
            for range in &reads.ranges {
                let in_memory =
                    range.search_memtables(memtables(), since, &mut Looks::at_most(usize::MAX))?;
                if in_memory == Searched::Changed || range.is_changed_in_tables(tree, &read_state, since)? {
                    return Err(conflict_in(tree, family, range));
                }
            }
            pins.0.push(Pin { family, read_state, seq });
        }
        Ok(pins)
    }

    /// The second pass, under the writer's lock. Returns false if a memtable that was active at the
    /// pin has been flushed, or if there is too much to look at: the first pass must be repeated.
    ///
    /// # Errors
    /// `Conflict`; `Poisoned`: an insert failed.
    fn still_holds(&self, pins: &Pins<'_>, writes: &WritePath, writer: &Writer) -> Result<bool> {
        if pins.0.iter().all(|pin| pin.seq + 1 == writer.next_seq) {
            return Ok(true);
        }
        writes.memtables.wait_for_inserts();
        writes.context.health.check()?;
        let mut looks = Looks::at_most(LOOKS_MAX);
        for (pin, reads) in pins.0.iter().zip(&self.families) {
            let now = pin.family.read_state();
            let mut later = vec![&now.active];
            later.extend(&now.frozen);
            let Some(nth) = later.iter().position(|table| Arc::ptr_eq(table, &pin.read_state.active)) else {
                return Ok(false);
            };
            later.truncate(nth + 1);
            for key in &reads.keys {
                if !looks.take(later.len()) {
                    return Ok(false);
                }
                if later.iter().any(|memtable| is_changed_in(memtable, key, pin.seq)) {
                    return Err(conflict(&writes.tree, pin.family, key));
                }
            }
            for range in &reads.ranges {
                match range.search_memtables(later.iter().copied(), pin.seq, &mut looks)? {
                    Searched::Unchanged => {}
                    Searched::Changed => return Err(conflict_in(&writes.tree, pin.family, range)),
                    Searched::TooLong => return Ok(false),
                }
            }
        }
        Ok(true)
    }
}

/// The read states against which a set was checked, one for each of its families.
#[derive(Default)]
pub(crate) struct Pins<'a>(Vec<Pin<'a>>);

struct Pin<'a> {
    family: &'a Arc<Family>,
    read_state: Arc<ReadState>,
    /// The visible frontier: each later change is in the active memtable of the read state, or in a
    /// later one.
    seq: SeqNo,
}

/// Returns true if a memtable has a change of the key above a sequence.
fn is_changed_in(memtable: &MemTable, key: &[u8], since: SeqNo) -> bool {
    memtable.seq_range().is_some_and(|(_, max)| max > since)
        && (memtable.get(key, MAX_SEQ).is_some_and(|entry| entry.seq > since)
            || memtable.covering_range_tombstone(key, MAX_SEQ).is_some_and(|seq| seq > since))
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

fn conflict(tree: &Tree, family: &Family, key: &[u8]) -> Error {
    tree.context.stats.conflicts.add(1);
    let (key, family) = (shown_key(key), &family.name);
    Error::new(ErrorKind::Conflict, format!("another write changed {key} of family {family} since the read"))
}

fn conflict_in(tree: &Tree, family: &Family, range: &RangeRead) -> Error {
    tree.context.stats.conflicts.add(1);
    let (start, family) = (shown_key(&range.start), &family.name);
    let why = format!("another write changed the range from {start} on of family {family} since the read");
    Error::new(ErrorKind::Conflict, why)
}

#[cfg(all(test, not(loom)))]
mod tests;
