//! The lookup: decides which keys of a window are live.
//!
//! A record is live if and only if a table of the version references it. The reference must have
//! its exact internal key and a blob id that resolves to the record's file. Snapshots, memtables
//! and tombstones do not matter: a reference that exists may be read, and one that does not exist
//! cannot come back.
//!
//! The lookup reads only the reference streams, and only of tables that may use a blob id of the
//! inputs: the version knows the first and last blob id of each table. It searches each table in
//! the way that is cheapest for the number of keys:
//!
//! * **Merge join.** A cursor over the stream and the keys of the window advance together, through
//!   the cache. If the next key is far away, the cursor seeks.
//! * **Point lookups**, of several keys at a time: the filter ends most of them in tables without
//!   the key, and the others read their blocks together (`points`).
//! * **Scan.** If point lookups find nothing in the cache, each costs a read from the device;
//!   reading the whole stream in long runs past the cache is then cheaper over a wide range.
//!
//! An entry is in one table only, and most are at the bottom. So the tables are searched from the
//! deepest level up, and a key that was found is not looked up again.

use super::GcEnv;
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

/// Approximate maximum time of a step.
const STEP_NS: u64 = 1_500_000;
/// Cost of starting a table.
const TABLE_NS: u64 = 2000;
/// Number of references without a wanted key after which a join seeks.
pub(super) const SEEK_AFTER_JOINING: u32 = 32;
/// The same for a scan, which would lose its read-ahead.
const SEEK_AFTER_SCANNING: u32 = 32 << 10;
/// Length of a read of a scan, in bytes.
const SCAN_BYTES: usize = 256 << 10;
/// Number of point lookups made together. After each batch the choice of a scan is reconsidered.
const TOGETHER: usize = 64;

/// Minimum number of references of a walk for timing.
const TIMED_REFERENCES_MIN: u64 = 1 << 10;

/// Cost of lookups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookupStats {
    pub(crate) point_lookups: u64,
    pub(crate) joined_references: u64,
    /// Number of live records under blob ids that resolve to inputs only.
    pub(crate) whole_live: u64,
    pub(crate) counters: ReadCounters,
    pub(crate) pace: Pace,
}

/// The lookup of one window.
pub(crate) struct Lookup {
    /// Tables not searched yet, the next one last.
    tables: Vec<Arc<FileMeta>>,
    asking: Option<Asking>,
}

/// The search of one table.
struct Asking {
    table: Arc<Ksst>,
    /// Keys of the window that are left to look up.
    keys: Range<usize>,
    /// Number of references among the keys; `of_keys` is the number of keys.
    references: u64,
    of_keys: u64,
    way: Way,
    points: Points,
}

/// Method of searching a table.
enum Way {
    Points,
    Cursor(Box<Walk>),
}

/// A cursor that advances with the keys.
struct Walk {
    cursor: KsstIter,
    /// Number of references without a wanted key after which it seeks.
    seek_after: u32,
    /// Number of references passed since the last match or seek.
    passed: u32,
    target: Vec<u8>,
}

/// Inputs of a lookup.
pub(crate) struct LookupContext<'a> {
    pub(crate) names: &'a Names,
    pub(crate) inputs: &'a [Arc<Vsst>],
    pub(crate) world: &'a dyn GcEnv,
    pub(crate) lookups: Lookups,
}

impl Lookup {
    /// Plans the lookup of `window`, which must not be empty. `tables` are all that may use blob
    /// ids of the inputs, from level 0 down.
    pub(crate) fn new(tables: &[Arc<FileMeta>], window: &Window) -> Lookup {
        let ends = (window.entries.first(), window.entries.last());
        let (Some(first), Some(last)) = ends else { panic!("an empty window is judged") };
        let (low, high) = (window.user_key(first), window.user_key(last));
        let meets = |f: &&Arc<FileMeta>| !f.ends_before(low) && !f.starts_after(high);
        Lookup { tables: tables.iter().filter(meets).cloned().collect(), asking: None }
    }

    /// Does a bounded part. Returns true when the whole window is judged.
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
            let done = done.map_err(|e| {
                e.context(format!("garbage collection, looking up values in key table (kSST) {number}"))
            });
            if done? {
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
    /// Opens the table and chooses the method; `None` if no key is to be looked up.
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
            // The keys are so dense that a cursor passes references faster than it could seek.
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

    /// Switches to a scan if that is cheaper than point lookups of the remaining keys. (Some of
    /// them may be found already; those of other tables are not counted separately either.)
    fn reconsider(&mut self, stats: &LookupStats) {
        let (left, all) = (self.keys.len() as u128, self.of_keys.max(1).max(self.keys.len() as u64) as u128);
        let references = (u128::from(self.references) * left / all) as u64;
        if stats.pace.prefers_passing(references, self.keys.len() as u64) {
            self.walk(SCAN_BYTES, SEEK_AFTER_SCANNING);
        }
    }

    /// Makes some point lookups. Returns true when all are done.
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

    /// Makes the next batch of point lookups.
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
    /// Makes a part of a merge join. Returns true when it is complete.
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

/// Judges entry `at` by a reference: the entry is live if the reference resolves to its file.
fn judge(
    context: &LookupContext<'_>,
    window: &mut Window,
    at: usize,
    reference: &Reference,
    stats: &mut LookupStats,
) -> Result<()> {
    let entry = window.entries[at];
    let lead = context.names.input_of(reference.blob_id, window.user_key(&entry), entry.seq);
    // The reference resolves elsewhere: the value was rewritten into another file, and the record
    // here is garbage.
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
        "the value record of key \"{}\" has {} bytes, but a key table refers to {} bytes: garbage \
         collection leaves the file unchanged",
        window.user_key(entry).escape_ascii(),
        entry.stored_len,
        reference.stored_len
    );
    Error::corruption(why).at_file(context.inputs[entry.input as usize].file().path()).at_offset(entry.offset)
}

/// Returns the approximate number of references of the table between the first and the last key.
fn references_among(table: &Ksst, file: &FileMeta, window: &Window, keys: &Range<usize>) -> Result<u64> {
    let all = table.properties().references;
    // The window has keys on both sides of the table, so all its references count.
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
