//! Unexposed garbage of a column family: an estimate, and bounds that hold at every moment.
//!
//! A referenced record is unexposed garbage if a table or memtable has a newer version of its key,
//! or a newer tombstone. An entry supersedes only the next older version of its key.
//!
//! **Upper bound.** At most as many records of a table are superseded as there are newer entries in
//! its range. These are entries of memtables, of newer overlapping tables, and older versions
//! inside the table. They are assumed to supersede the longest records that the table references
//! ([`base::table_notes`]). A newer range tombstone in the range may supersede all of them. The
//! same holds for a table without notes, which was written before the open and is not read yet.
//!
//! **Lower bound.** The versions that compactions kept and counted for snapshots
//! (`tree::retained`).
//!
//! **Estimate.** The key samples of tables and memtables in memory ([`crate::tree::overwrites`]).
//! All of it is computed from a pinned read state, without a lock and without I/O.

use crate::tree::family::ReadState;
use crate::tree::overwrites::OlderTables;
use crate::tree::unexposed_garbage::UnexposedGarbage;
use base::hash::key_hash;
use base::range_del::FragmentedRangeTombstones;
use base::table_notes::Sizes;
use base::{InternalIterator, KeySample, Result, SeqNo, key};
use memtable::MemTable;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Maximum number of entries for which all keys of a memtable are read.
const KEYS_MAX: u64 = 4096;
/// Number of keys read after each sample point in a longer memtable.
const KEYS_PER_PLACE: u64 = 2048;
const PLACES: usize = 16;

/// Upper bound of superseded records, and lower bound of live data, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// Upper bound of superseded records in vSSTs.
    pub records_max: u64,
    /// Lower bound of live keys and values in tables.
    pub live_min: u64,
}

/// The entries of a memtable, as far as they supersede entries of tables.
struct InMemory {
    keys: Keys,
    /// Smallest and largest user key.
    ends: Option<(Vec<u8>, Vec<u8>)>,
    /// Number of point entries.
    entries: u64,
    ranges: Arc<FragmentedRangeTombstones>,
    seqs: (SeqNo, SeqNo),
    /// Estimated bytes of records that it supersedes.
    hides: u64,
}

/// Distinct user keys of a memtable.
#[derive(Default)]
struct Keys {
    /// All keys, ascending; `None`: too many.
    all: Option<Vec<Vec<u8>>>,
    sample: KeySample,
    /// Numbers of keys and entries in the sample.
    seen: u64,
    walked: u64,
}

/// The estimate for one read state. See the module.
pub(super) struct UnexposedEstimate<'r> {
    read_state: &'r ReadState,
    /// Memtables, newest first.
    memory: Vec<InMemory>,
    /// Every table with the estimated bytes that it supersedes.
    tables: Vec<(&'r FileMeta, u64)>,
}

impl<'r> UnexposedEstimate<'r> {
    pub fn of(read_state: &'r ReadState) -> Result<UnexposedEstimate<'r>> {
        let version = &read_state.version;
        let memtables = [&read_state.active].into_iter().chain(&read_state.frozen);
        let all = memtables.map(|memtable| InMemory::of(version, memtable)).collect::<Result<Vec<_>>>()?;
        let mut memory: Vec<InMemory> = all.into_iter().flatten().collect();
        let hides: Vec<u64> = (0..memory.len())
            .map(|nth| {
                let (newer, behind) = memory.split_at(nth + 1);
                newer.last().map_or(0, |memtable| memtable.hides(read_state, behind))
            })
            .collect();
        memory.iter_mut().zip(hides).for_each(|(memtable, bytes)| memtable.hides = bytes);
        let hides = |level: usize, (nth, file): (usize, &'r Arc<FileMeta>)| {
            let by_notes = || {
                OlderTables::than_table(version, level, file, |_| false).hidden_by(file, file.known.notes()?)
            };
            let hides = file.known.hides().or_else(by_notes);
            (&**file, UnexposedGarbage::likely_bytes_of(version, level, nth, hides))
        };
        let levels = version.levels.iter().enumerate();
        let tables = levels.flat_map(|(level, files)| files.iter().enumerate().map(move |f| hides(level, f)));
        Ok(UnexposedEstimate { read_state, memory, tables: tables.collect() })
    }

    /// Returns the estimate, without versions kept for snapshots.
    pub fn likely(&self) -> u64 {
        let tables = self.tables.iter().map(|(_, bytes)| *bytes);
        tables.chain(self.memory.iter().map(|memtable| memtable.hides)).fold(0, u64::saturating_add)
    }

    /// Returns the estimated part of it that a reader at `snapshot` still sees. A table with
    /// entries before and after the snapshot counts by the position of the snapshot in its range of
    /// sequence numbers.
    pub fn likely_for(&self, snapshot: SeqNo) -> u64 {
        let stored = |file: &FileMeta| file.uses.sums().stored_bytes as f64;
        let (all, old) = self.tables.iter().fold((0.0, 0.0), |(all, old), (file, _)| {
            (all + stored(file), old + stored(file) * older_part(file.seq_range(), snapshot))
        });
        let mut sum = 0.0;
        for (file, hides) in &self.tables {
            let newer = 1.0 - older_part(file.seq_range(), snapshot);
            if newer > 0.0 && all > stored(file) {
                let own = stored(file) * (1.0 - newer);
                let seen = (old - own).max(0.0) / (all - stored(file));
                sum += *hides as f64 * newer * seen;
            }
        }
        let seen = old / all.max(1.0);
        let newer = |memtable: &InMemory| 1.0 - older_part(memtable.seqs, snapshot);
        sum += self.memory.iter().map(|memtable| memtable.hides as f64 * newer(memtable) * seen).sum::<f64>();
        sum as u64
    }

    /// Returns the bounds. With `snapshot`: only of records that a reader there still sees, because
    /// the superseding entry is newer, and that compactions have not encountered.
    pub fn bounds(&self, snapshot: Option<SeqNo>) -> Bounds {
        let version = &self.read_state.version;
        let hides = |seqs: (SeqNo, SeqNo)| snapshot.is_none_or(|at| seqs.1 > at);
        let memory: Vec<&InMemory> = self.memory.iter().filter(|memtable| hides(memtable.seqs)).collect();
        let mut above: u64 = memory.iter().fold(0, |sum, memtable| sum.saturating_add(memtable.most()));
        let mut bounds = Bounds::default();
        // Tables of level 0 overlap, newest first: each may supersede entries of the following
        // ones.
        let level_0 = version.files(0).chunks(1).map(|file| (0, file));
        let deeper = version.levels.iter().enumerate().skip(1).map(|(level, files)| (level, &files[..]));
        for (nth, (level, files)) in level_0.chain(deeper).enumerate() {
            let (mut records, mut values, mut inside) = (Most::default(), Most::default(), 0u64);
            for file in files.iter().filter(|file| snapshot.is_none_or(|at| file.seq_range().0 <= at)) {
                let newest = version.files(0).get(..nth).unwrap_or(version.files(0));
                let newer = newest
                    .iter()
                    .filter(|f| f.overlaps(file))
                    .chain((1..level).flat_map(|upper| overlapping(version, upper, file)));
                let mut stones = Stones::of(file, snapshot.is_none());
                inside = inside.saturating_add(stones.count);
                newer.filter(|f| hides(f.seq_range())).for_each(|f| stones.add_table(f));
                memory.iter().for_each(|memtable| stones.add_memtable(memtable, file));
                let notes = file.known.notes();
                records.add(file.uses.sums().stored_bytes, notes.map(|notes| &notes.records), &stones);
                if let Some(notes) = notes {
                    bounds.live_min = bounds.live_min.saturating_add(notes.values.bytes());
                    values.add(notes.values.bytes(), Some(&notes.values), &stones);
                }
            }
            let hiding = above.saturating_add(inside);
            bounds.records_max = bounds.records_max.saturating_add(records.bytes(hiding));
            bounds.live_min = bounds.live_min.saturating_sub(values.bytes(hiding));
            let own = files.iter().filter(|file| hides(file.seq_range())).map(|file| file.entries);
            above = own.fold(above, u64::saturating_add);
        }
        bounds.records_max = bounds.records_max.min(self.read_state.ledger.referenced_bytes());
        bounds
    }
}

/// Returns the tables of a version with their levels.
fn tables(version: &Version) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> {
    version.levels.iter().enumerate().flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
}

fn overlapping<'v>(version: &'v Version, level: usize, file: &FileMeta) -> &'v [Arc<FileMeta>] {
    let (low, high) = (file.smallest_user_key(), file.largest_user_key());
    version.files(level).get(version.overlap_range(level, Some(low), Some(high))).unwrap_or_default()
}

/// Returns the part of the entries in this range of sequence numbers that a reader at the snapshot
/// sees.
fn older_part((low, high): (SeqNo, SeqNo), snapshot: SeqNo) -> f64 {
    match snapshot {
        _ if snapshot >= high => 1.0,
        _ if snapshot < low => 0.0,
        _ => (snapshot - low) as f64 / (high - low) as f64,
    }
}

/// Upper bound of the number of superseded entries in a table.
#[derive(Clone, Copy)]
struct Stones {
    count: u64,
    /// True if all entries may be superseded, whatever the count.
    all: bool,
}

impl Stones {
    /// Counts superseding entries of the table itself, if `counts`.
    fn of(file: &FileMeta, counts: bool) -> Stones {
        match file.known.notes() {
            _ if !counts => Stones { count: 0, all: false },
            Some(notes) => Stones {
                count: file.entries.saturating_sub(notes.keys),
                all: file.range_tombstones > 0 && file.entries > 0,
            },
            None => Stones { count: 0, all: file.entries > 0 },
        }
    }

    fn add_table(&mut self, newer: &FileMeta) {
        self.count = self.count.saturating_add(newer.entries);
        self.all |= newer.range_tombstones > 0;
    }

    fn add_memtable(&mut self, newer: &InMemory, file: &FileMeta) {
        self.count = self.count.saturating_add(newer.most_in(file));
        self.all |= newer.has_range_in(file);
    }
}

/// Upper bound of the superseded bytes in a level.
#[derive(Default)]
struct Most {
    /// Bytes of tables whose entries may all be superseded.
    all: u64,
    /// Bytes of other tables, as a sum of their own bounds.
    each: u64,
    /// Entry sizes of these other tables.
    sizes: Sizes,
}

impl Most {
    /// Adds a table with so many bytes.
    fn add(&mut self, bytes: u64, sizes: Option<&Sizes>, stones: &Stones) {
        match sizes {
            _ if stones.count == 0 && !stones.all => {}
            Some(sizes) if !stones.all => {
                self.each = self.each.saturating_add(sizes.largest(stones.count));
                self.sizes.merge(sizes);
            }
            _ => self.all = self.all.saturating_add(bytes),
        }
    }

    /// Returns the upper bound, if at most `count` entries are newer than the level or superseding
    /// inside it.
    fn bytes(&self, count: u64) -> u64 {
        self.all.saturating_add(self.each.min(self.sizes.largest(count)))
    }
}

impl InMemory {
    /// Returns `None` for an empty memtable.
    fn of(version: &Version, memtable: &Arc<MemTable>) -> Result<Option<InMemory>> {
        let Some(seqs) = memtable.seq_range() else { return Ok(None) };
        let ranges = memtable.range_tombstones();
        // The memtable grows concurrently: the number of entries is read first, and later entries
        // are ignored.
        let entries = memtable.point_entries() as u64;
        let keys = keys_of(memtable, version, entries <= KEYS_MAX)?;
        Ok(Some(InMemory { keys, ends: ends_of(memtable)?, entries, ranges, seqs, hides: 0 }))
    }

    /// Returns the estimated bytes of records that it supersedes. `behind`: the memtables between
    /// it and the tables.
    fn hides(&self, read_state: &ReadState, behind: &[InMemory]) -> u64 {
        let (version, ledger) = (&read_state.version, &read_state.ledger);
        let ranges = covered_bytes(version, &self.ranges);
        let Some((low, high)) = &self.ends else { return ranges };
        let keys =
            u128::from(self.entries) * u128::from(self.keys.seen) / u128::from(self.keys.walked.max(1));
        let keys = keys as u64;
        let behind: Vec<&KeySample> = behind.iter().map(|memtable| &memtable.keys.sample).collect();
        let older = OlderTables::than_memtables(version);
        let hides = older.hidden_by_keys((low, high), (keys, &self.keys.sample), &behind);
        let mean = || ledger.referenced_bytes() / ledger.references().max(1);
        ranges.saturating_add(hides.map_or_else(|| keys.saturating_mul(mean()), |hides| hides.record_bytes))
    }

    /// Returns the number of table entries that its point entries may supersede.
    fn most(&self) -> u64 {
        self.keys.all.as_ref().map_or(self.entries, |keys| keys.len() as u64)
    }

    /// Returns the same number for one table.
    fn most_in(&self, file: &FileMeta) -> u64 {
        let (low, high) = (file.smallest_user_key(), file.largest_user_key());
        if let Some(keys) = &self.keys.all {
            let from = keys.partition_point(|k| k.as_slice() < low);
            return keys.partition_point(|k| k.as_slice() <= high).saturating_sub(from) as u64;
        }
        let meets = self
            .ends
            .as_ref()
            .is_some_and(|(first, last)| first.as_slice() <= high && low <= last.as_slice());
        if meets { self.entries } else { 0 }
    }

    fn has_range_in(&self, file: &FileMeta) -> bool {
        let (low, high) = (file.smallest_user_key(), file.largest_user_key());
        let fragments = self.ranges.fragments();
        let first = fragments.partition_point(|f| f.end.as_slice() <= low);
        fragments.get(first).is_some_and(|f| f.start.as_slice() <= high)
    }
}

/// Returns the estimated bytes of records covered by range tombstones in memory; partly covered
/// tables count by half.
fn covered_bytes(version: &Version, ranges: &FragmentedRangeTombstones) -> u64 {
    let mut sum = 0u64;
    for fragment in ranges.fragments() {
        for (_, file) in tables(version) {
            let (low, high) = (file.smallest_user_key(), file.largest_user_key());
            let is_inside = fragment.start.as_slice() <= low && high < fragment.end.as_slice();
            let is_beside = high < fragment.start.as_slice() || fragment.end.as_slice() <= low;
            let bytes = file.uses.sums().stored_bytes;
            sum = sum.saturating_add(if is_beside {
                0
            } else if is_inside {
                bytes
            } else {
                bytes / 2
            });
        }
    }
    sum
}

/// Returns the smallest and the largest user key of a memtable.
fn ends_of(memtable: &Arc<MemTable>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut iter = memtable.iter();
    iter.seek_to_first()?;
    if !iter.valid() {
        return Ok(None);
    }
    let first = key::user_key(iter.key()).to_vec();
    iter.seek_to_last()?;
    Ok(Some((first, key::user_key(iter.key()).to_vec())))
}

/// Returns all keys of a memtable, or samples at table boundaries.
fn keys_of(memtable: &Arc<MemTable>, version: &Version, is_whole: bool) -> Result<Keys> {
    let mut places = vec![Vec::new()];
    if !is_whole {
        let borders = version.levels.last().map_or(&[][..], |level| level);
        let step = (borders.len() / PLACES).max(1);
        places.extend(borders.iter().step_by(step).map(|file| file.smallest.clone()));
    }
    let (mut keys, mut iter, mut last) = (Keys::default(), memtable.iter(), None::<Vec<u8>>);
    keys.all = is_whole.then(Vec::new);
    for place in places {
        if place.is_empty() {
            iter.seek_to_first()?
        } else {
            iter.seek(&place)?
        }
        let wanted = if is_whole { u64::MAX } else { keys.seen + KEYS_PER_PLACE };
        while iter.valid() {
            let user_key = key::user_key(iter.key());
            if last.as_deref().is_none_or(|last| last < user_key) {
                if keys.seen >= wanted {
                    break;
                }
                keys.seen += 1;
                keys.sample.add(key_hash(user_key));
                keys.all.iter_mut().for_each(|all| all.push(user_key.to_vec()));
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(user_key);
            }
            keys.walked += 1;
            iter.next()?;
        }
    }
    keys.sample = std::mem::take(&mut keys.sample).union(KeySample::default());
    Ok(keys)
}
