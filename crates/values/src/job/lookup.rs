//! The lookup: which keys of a window are live.
//!
//! A record is live if and only if its exact internal key is a reference in a table of the version, under a name that
//! leads to the file of the record. Snapshots, memtables and tombstones do not matter: a reference that is physically
//! there may be read, and one that is not cannot come back.
//!
//! Only the reference streams of the tables are asked, and of the tables only those that may use a name of the inputs: the
//! version knows between which names those of a table lie. Each is asked in the way that is cheapest for as many keys as it is asked:
//!
//! * **Merge join.** A cursor over the stream and the keys of the window move on together, through the cache. Where the
//!   next key is far away, the cursor seeks.
//! * **Point lookups**, of some keys at a time: the filter ends most of them in tables that do not have the key, and what the others
//!   have to read they read together (`points`).
//! * **Scan.** Where point lookups find nothing in the cache, each costs a read from the device; reading the whole
//!   stream in long runs past the cache is then cheaper over a wide range.
//!
//! An entry is in one table only, and most are at the bottom: the tables are asked from the deepest level up, and a key
//! that was found is not asked for again.

use super::GcWorld;
use super::names::Names;
use super::pace::{DEVICE_READ_NS, POINT_NS, Pace, REFERENCE_NS, Stopwatch};
use super::points::Points;
use super::window::{Entry, Window};
use crate::pick::Lookups;
use base::key::{self, encode_into};
use base::{Error, InternalIterator, Result, ValueKind};
use std::ops::Range;
use std::sync::Arc;
use table::{IterOptions, Ksst, KsstIter, ReadCounters, Reference, Vsst};
use version::FileMeta;

/// About what a step may take.
const STEP_NS: u64 = 1_500_000;
/// Turning to a table.
const TABLE_NS: u64 = 2000;
/// After so many references without a key that was asked, a join seeks.
pub(super) const SEEK_AFTER_JOINING: u32 = 32;
/// The same for a scan, which would drop what it has read ahead.
const SEEK_AFTER_SCANNING: u32 = 32 << 10;
/// Bytes that a scan reads at once.
const SCAN_BYTES: usize = 256 << 10;
/// So many point lookups are made together. After each of these it is asked anew whether a scan is cheaper.
const TOGETHER: usize = 64;

/// A shorter walk says little about what a reference costs.
const TIMED_REFERENCES_MIN: u64 = 1 << 10;

/// What lookups have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookupStats {
    pub(crate) point_lookups: u64,
    pub(crate) joined_references: u64,
    /// Live records under names that lead to inputs only.
    pub(crate) whole_live: u64,
    pub(crate) counters: ReadCounters,
    pub(crate) pace: Pace,
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
    /// References among so many keys.
    references: u64,
    of_keys: u64,
    way: Way,
    points: Points,
}

/// How a table is asked.
enum Way {
    Points,
    Cursor(Box<Walk>),
}

/// A cursor that moves on with the keys.
struct Walk {
    cursor: KsstIter,
    /// After so many references without a key it seeks.
    seek_after: u32,
    /// References passed since the last match or seek.
    passed: u32,
    target: Vec<u8>,
}

/// All that judging needs to know.
pub(crate) struct LookupContext<'a> {
    pub(crate) names: &'a Names,
    pub(crate) inputs: &'a [Arc<Vsst>],
    pub(crate) world: &'a dyn GcWorld,
    pub(crate) lookups: Lookups,
}

impl Lookup {
    /// Plans the judging of `window`, which holds something. `tables` are all that may use names of the inputs, from level
    /// 0 down.
    pub(crate) fn new(tables: &[Arc<FileMeta>], window: &Window) -> Lookup {
        let ends = (window.entries.first(), window.entries.last());
        let (Some(first), Some(last)) = ends else { panic!("an empty window is judged") };
        let (low, high) = (window.user_key(first), window.user_key(last));
        let meets = |f: &&Arc<FileMeta>| !f.ends_before(low) && !f.starts_after(high);
        Lookup { tables: tables.iter().filter(meets).cloned().collect(), asking: None }
    }

    /// Does a bounded part; true when the whole window is judged.
    pub(crate) fn step(
        &mut self,
        context: &LookupContext<'_>,
        window: &mut Window,
        stats: &mut LookupStats,
    ) -> Result<bool> {
        let mut budget = STEP_NS;
        while budget > 0 {
            let Some(asking) = &mut self.asking else {
                let Some(file) = self.tables.pop() else { return Ok(true) };
                self.asking = Asking::new(context, &file, window, stats)?;
                budget = budget.saturating_sub(TABLE_NS);
                continue;
            };
            let done = match &mut asking.way {
                Way::Cursor(walk) => {
                    let before = walk.cursor.counters();
                    let watch = Stopwatch::start(context.world.now_ns(), before.device_reads);
                    let passed = stats.joined_references;
                    let done = walk.join(context, window, &mut asking.keys, &mut budget, stats);
                    let after = walk.cursor.counters();
                    let passed = stats.joined_references - passed;
                    if passed >= TIMED_REFERENCES_MIN {
                        let ns =
                            watch.stop(context.world.now_ns(), after.device_reads, passed * REFERENCE_NS);
                        stats.pace.reference.observe(passed, ns);
                    }
                    add_difference(&mut stats.counters, &after, &before);
                    done
                }
                Way::Points => asking.ask(context, window, &mut budget, stats),
            };
            let number = asking.table.number();
            if done.map_err(|e| e.context(format!("looking up values in table {number}")))? {
                self.asking = None;
            }
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
    fn new(
        context: &LookupContext<'_>,
        file: &FileMeta,
        window: &Window,
        stats: &LookupStats,
    ) -> Result<Option<Asking>> {
        let keys =
            window.range(file.smallest_user_key(), file.largest_user_key(), file.largest_is_exclusive());
        let of_keys = window.entries[keys.clone()].iter().filter(|e| !e.live).count() as u64;
        if of_keys == 0 {
            return Ok(None);
        }
        let table = context.world.table(file)?;
        let references = references_among(&table, file, window, &keys)?;
        let (way, points) = (Way::Points, Points::default());
        let mut asking = Asking { table, keys, references, of_keys, way, points };
        match context.lookups {
            Lookups::Points => {}
            Lookups::Join => asking.walk(0, SEEK_AFTER_JOINING),
            // Dense enough that a cursor passes faster than it could seek.
            Lookups::Cheaper if references <= of_keys.saturating_mul(u64::from(SEEK_AFTER_JOINING)) => {
                asking.walk(0, SEEK_AFTER_JOINING);
            }
            Lookups::Cheaper => asking.reconsider(stats),
        }
        Ok(Some(asking))
    }

    fn walk(&mut self, readahead_bytes: usize, seek_after: u32) {
        let options = IterOptions { readahead_bytes, ..IterOptions::default() };
        let cursor = self.table.iter_references(options);
        self.way = Way::Cursor(Box::new(Walk { cursor, seek_after, passed: 0, target: Vec::new() }));
    }

    /// Goes over to a scan if that is cheaper than point lookups of the keys that are left. (Some of them may be found
    /// already; those of other tables are not counted apart either.)
    fn reconsider(&mut self, stats: &LookupStats) {
        let (left, all) = (self.keys.len() as u128, self.of_keys.max(1).max(self.keys.len() as u64) as u128);
        let references = (u128::from(self.references) * left / all) as u64;
        if stats.pace.prefers_passing(references, self.keys.len() as u64) {
            self.walk(SCAN_BYTES, SEEK_AFTER_SCANNING);
        }
    }

    /// Some point lookups; true when all were done.
    fn ask(
        &mut self,
        context: &LookupContext<'_>,
        window: &mut Window,
        budget: &mut u64,
        stats: &mut LookupStats,
    ) -> Result<bool> {
        while self.keys.start < self.keys.end {
            let (asked, reads) = (stats.point_lookups, stats.counters.device_reads);
            let watch = Stopwatch::start(context.world.now_ns(), reads);
            self.ask_some(context, window, stats)?;
            let (asked, reads) = (stats.point_lookups - asked, stats.counters.device_reads - reads);
            let estimate = asked * POINT_NS;
            let ns = watch.stop(context.world.now_ns(), stats.counters.device_reads, estimate);
            stats.pace.point.observe(asked, ns);
            *budget = budget.saturating_sub(estimate + reads * DEVICE_READ_NS);
            if context.lookups == Lookups::Cheaper && asked > 0 {
                self.reconsider(stats);
            }
            if *budget == 0 || matches!(self.way, Way::Cursor(_)) {
                return Ok(self.keys.start >= self.keys.end);
            }
        }
        Ok(true)
    }

    /// The next point lookups, as many as are made together.
    fn ask_some(
        &mut self,
        context: &LookupContext<'_>,
        window: &mut Window,
        stats: &mut LookupStats,
    ) -> Result<()> {
        while self.keys.start < self.keys.end && self.points.len() < TOGETHER {
            if !window.entries[self.keys.start].live {
                self.points.add(self.keys.start);
            }
            self.keys.start += 1;
        }
        stats.point_lookups += self.points.len() as u64;
        for (at, reference) in self.points.ask(&self.table, window, context.world, &mut stats.counters)? {
            judge(context, window, at, &reference, stats)?;
        }
        Ok(())
    }
}

impl Walk {
    /// A part of a merge join; true when it is complete.
    fn join(
        &mut self,
        context: &LookupContext<'_>,
        window: &mut Window,
        keys: &mut Range<usize>,
        budget: &mut u64,
        stats: &mut LookupStats,
    ) -> Result<bool> {
        let cursor = &mut self.cursor;
        loop {
            while keys.start < keys.end && window.entries[keys.start].live {
                keys.start += 1;
            }
            if keys.start >= keys.end {
                return Ok(true);
            }
            if *budget == 0 {
                return Ok(false);
            }
            *budget = budget.saturating_sub(REFERENCE_NS);
            let entry = window.entries[keys.start];
            let wanted = window.user_key(&entry);
            if !cursor.valid() || self.passed >= self.seek_after {
                self.target.clear();
                encode_into(&mut self.target, wanted, entry.seq, ValueKind::Seek);
                cursor.seek(&self.target)?;
                self.passed = 0;
                *budget = budget.saturating_sub(POINT_NS);
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
                    judge(context, window, keys.start, &reference, stats)?;
                    keys.start += 1;
                    self.passed = 0;
                }
                std::cmp::Ordering::Greater => {
                    keys.start += 1;
                    self.passed = 0;
                }
            }
        }
    }
}

/// A reference to entry `at` was found: the entry is live if the reference leads to its file.
fn judge(
    context: &LookupContext<'_>,
    window: &mut Window,
    at: usize,
    reference: &Reference,
    stats: &mut LookupStats,
) -> Result<()> {
    let entry = window.entries[at];
    let lead = context.names.input_of(reference.blob_id, window.user_key(&entry), entry.seq);
    // A reference elsewhere: the value was rewritten into another file, and the record here is garbage.
    let Some((_, whole)) = lead.filter(|(input, _)| *input == entry.input) else { return Ok(()) };
    if reference.stored_len != u64::from(entry.stored_len) {
        return Err(disagreement(context, window, &entry, reference));
    }
    window.entries[at].live = true;
    stats.whole_live += u64::from(whole);
    Ok(())
}

#[cold]
fn disagreement(context: &LookupContext<'_>, window: &Window, entry: &Entry, reference: &Reference) -> Error {
    let why = format!(
        "the record of key \"{}\" has {} bytes, but a table references {}: verify the store",
        window.user_key(entry).escape_ascii(),
        entry.stored_len,
        reference.stored_len
    );
    Error::corruption(why).at_file(context.inputs[entry.input as usize].file().path()).at_offset(entry.offset)
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
