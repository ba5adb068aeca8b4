//! The lookup: which keys of a window are live.
//!
//! A record is live if and only if its exact internal key is a reference in a table of the version, under a name that
//! leads to the file of the record. Snapshots, memtables and tombstones do not matter: a reference that is physically
//! there may be read, and one that is not cannot come back.
//!
//! Only the reference streams of the tables are asked, and of the tables only those that use a name of the inputs. Each
//! is asked in one of two ways, whichever is cheaper for as many keys as it is asked:
//!
//! * **Merge join.** A cursor over the stream and the keys of the window move on together. Where the next key is far
//!   away, the cursor seeks.
//! * **Point lookups**, key by key: the filter ends most of them in tables that do not have the key.
//!
//! An entry is in one table only, and most are at the bottom: the tables are asked from the deepest level up, and a key
//! that was found is not asked for again.

use super::names::Names;
use super::window::{Entry, Window};
use base::key::{self, encode_into};
use base::{Error, InternalIterator, Result, ValueKind};
use std::ops::Range;
use std::sync::Arc;
use table::{IterOptions, Ksst, KsstIter, ReadCounters, Reference, Vsst};
use version::{FileMeta, TableSource, Version};

/// A point lookup is worth so many references passed by a cursor. Measured by the example `gc_speed`: see there.
const POINT_LOOKUP_COST: u64 = 24;
/// After so many references without a key that was asked, a join seeks.
const SEEK_AFTER: u32 = 32;
/// References passed, or keys joined, in one step.
const JOIN_STEP: u32 = 16 << 10;
/// Keys looked up in one step.
const POINT_STEP: usize = 1 << 10;

/// What lookups have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookupStats {
    pub(crate) point_lookups: u64,
    pub(crate) joined_references: u64,
    /// Live records under names that lead to inputs only.
    pub(crate) whole_live: u64,
    pub(crate) counters: ReadCounters,
}

/// The judging of one window.
pub(crate) struct Lookup {
    /// Tables not asked yet, the next one last.
    tables: Vec<Arc<FileMeta>>,
    asking: Option<Asking>,
}

/// One table being asked.
struct Asking {
    table: Arc<Ksst>,
    /// Keys of the window that are left to ask for.
    keys: Range<usize>,
    /// `None`: point lookups.
    cursor: Option<KsstIter>,
    /// References passed since the last match or seek.
    passed: u32,
    target: Vec<u8>,
}

/// All that judging needs to know.
pub(crate) struct Court<'a> {
    pub(crate) names: &'a Names,
    pub(crate) inputs: &'a [Arc<Vsst>],
    pub(crate) tables: &'a dyn TableSource,
}

impl Lookup {
    /// Plans the judging of `window`, which holds something.
    pub(crate) fn new(version: &Version, names: &Names, window: &Window) -> Lookup {
        let mut tables = Vec::new();
        if let (Some(first), Some(last)) = (window.entries.first(), window.entries.last()) {
            let (low, high) = (window.user_key(first), window.user_key(last));
            for level in 0..version.levels.len() {
                let files = version.overlapping(level, Some(low), Some(high));
                tables.extend(files.into_iter().filter(|f| names.used_by(f)));
            }
        }
        Lookup { tables, asking: None }
    }

    /// Does a bounded part; true when the whole window is judged.
    pub(crate) fn step(
        &mut self,
        court: &Court<'_>,
        window: &mut Window,
        stats: &mut LookupStats,
    ) -> Result<bool> {
        let Some(asking) = &mut self.asking else {
            let Some(file) = self.tables.pop() else { return Ok(true) };
            self.asking = Asking::new(court, &file, window)?;
            return Ok(false);
        };
        let table = asking.table.clone();
        let number = table.number();
        let before = asking.cursor.as_ref().map_or_else(ReadCounters::default, KsstIter::counters);
        let done = match asking.cursor {
            Some(_) => asking.join(court, window, stats),
            None => asking.ask(court, window, stats),
        };
        let done = done.map_err(|e| e.context(format!("looking up values in table {number}")))?;
        if let Some(cursor) = &asking.cursor {
            add_difference(&mut stats.counters, &cursor.counters(), &before);
        }
        if done {
            self.asking = None;
        }
        Ok(false)
    }
}

fn add_difference(sum: &mut ReadCounters, now: &ReadCounters, before: &ReadCounters) {
    sum.device_reads += now.device_reads.saturating_sub(before.device_reads);
    sum.device_read_bytes += now.device_read_bytes.saturating_sub(before.device_read_bytes);
}

impl Asking {
    /// Opens the table and chooses how to ask it; `None` if there is nothing to ask.
    fn new(court: &Court<'_>, file: &FileMeta, window: &Window) -> Result<Option<Asking>> {
        let keys =
            window.range(file.smallest_user_key(), file.largest_user_key(), file.largest_is_exclusive());
        let asked = window.entries[keys.clone()].iter().filter(|e| !e.live).count() as u64;
        if asked == 0 {
            return Ok(None);
        }
        let table = court.tables.table(file)?;
        let references = references_among(&table, file, window, &keys)?;
        let joins = references <= asked.saturating_mul(POINT_LOOKUP_COST);
        let cursor = joins.then(|| table.iter_references(IterOptions::default()));
        Ok(Some(Asking { table, keys, cursor, passed: 0, target: Vec::new() }))
    }

    /// A part of a merge join; true when it is complete.
    fn join(&mut self, court: &Court<'_>, window: &mut Window, stats: &mut LookupStats) -> Result<bool> {
        let cursor = self.cursor.as_mut().expect("a join has a cursor");
        let mut budget = JOIN_STEP;
        loop {
            while self.keys.start < self.keys.end && window.entries[self.keys.start].live {
                self.keys.start += 1;
            }
            if self.keys.is_empty() {
                return Ok(true);
            }
            if budget == 0 {
                return Ok(false);
            }
            budget -= 1;
            let entry = window.entries[self.keys.start];
            let wanted = window.user_key(&entry);
            if !cursor.valid() || self.passed >= SEEK_AFTER {
                self.target.clear();
                encode_into(&mut self.target, wanted, entry.seq, ValueKind::Seek);
                cursor.seek(&self.target)?;
                self.passed = 0;
                if !cursor.valid() {
                    return Ok(true);
                }
            }
            let (found, trailer) = key::split(cursor.key());
            match found.cmp(wanted).then_with(|| entry.seq.cmp(&(trailer >> 8))) {
                std::cmp::Ordering::Less => {
                    stats.joined_references += 1;
                    self.passed += 1;
                    cursor.next()?;
                    if !cursor.valid() {
                        return Ok(true);
                    }
                }
                std::cmp::Ordering::Equal => {
                    let reference = Reference::decode(cursor.value())?;
                    judge(court, window, self.keys.start, &reference, stats)?;
                    self.keys.start += 1;
                    self.passed = 0;
                }
                std::cmp::Ordering::Greater => {
                    self.keys.start += 1;
                    self.passed = 0;
                }
            }
        }
    }

    /// Some point lookups; true when all were done.
    fn ask(&mut self, court: &Court<'_>, window: &mut Window, stats: &mut LookupStats) -> Result<bool> {
        let mut left = POINT_STEP;
        while self.keys.start < self.keys.end {
            let at = self.keys.start;
            let entry = window.entries[at];
            if !entry.live {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                stats.point_lookups += 1;
                let wanted = window.user_key(&entry);
                let found = self.table.get_reference(wanted, entry.seq, entry.hash, &mut stats.counters)?;
                if let Some(reference) = found {
                    judge(court, window, at, &reference, stats)?;
                }
            }
            self.keys.start += 1;
        }
        Ok(true)
    }
}

/// A reference to entry `at` was found: the entry is live if the reference leads to its file.
fn judge(
    court: &Court<'_>,
    window: &mut Window,
    at: usize,
    reference: &Reference,
    stats: &mut LookupStats,
) -> Result<()> {
    let entry = window.entries[at];
    let lead = court.names.input_of(reference.blob_id, window.user_key(&entry), entry.seq);
    // A reference elsewhere: the value was rewritten into another file, and the record here is garbage.
    let Some((_, whole)) = lead.filter(|(input, _)| *input == entry.input) else { return Ok(()) };
    if reference.stored_len != u64::from(entry.stored_len) {
        return Err(disagreement(court, window, &entry, reference));
    }
    window.entries[at].live = true;
    stats.whole_live += u64::from(whole);
    Ok(())
}

#[cold]
fn disagreement(court: &Court<'_>, window: &Window, entry: &Entry, reference: &Reference) -> Error {
    let why = format!(
        "the record of key \"{}\" has {} bytes, but a table references {}: verify the store",
        window.user_key(entry).escape_ascii(),
        entry.stored_len,
        reference.stored_len
    );
    Error::corruption(why).at_file(court.inputs[entry.input as usize].file().path()).at_offset(entry.offset)
}

/// About how many references of the table lie between the first and the last of the keys asked.
fn references_among(table: &Ksst, file: &FileMeta, window: &Window, keys: &Range<usize>) -> Result<u64> {
    let all = table.properties().references;
    // Keys of the window on both sides of the table: all of it.
    let (Some(first), Some(last)) = (window.entries.get(keys.start), window.entries.get(keys.end - 1)) else {
        return Ok(all);
    };
    if keys.start > 0 && keys.end < window.len() {
        return Ok(all);
    }
    let bound = |e: &Entry| key::encode(window.user_key(e), e.seq, ValueKind::Seek);
    let bytes = table.offset_of(&bound(last))?.saturating_sub(table.offset_of(&bound(first))?);
    // `offset_of` is exact to a block: one more.
    let total = table.offset_of(&file.largest)?.max(1);
    let part = u128::from(all) * u128::from(bytes.min(total)) / u128::from(total);
    Ok(u64::try_from(part).unwrap_or(all).saturating_add(64).min(all))
}
