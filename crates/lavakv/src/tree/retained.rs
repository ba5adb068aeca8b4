//! Old versions that tables retain only because of snapshots.
//!
//! A job writes a version hidden by a newer one, or by a range tombstone, if a snapshot still reads
//! it. Only that job sees both, so it counts them as it writes the table. All versions of a user
//! key follow each other, newest first, in one file.
//!
//! The counts are in memory, by table, and in the table's properties for a later process. Snapshots
//! end with the process; the versions retained for them do not. Tables from earlier processes are
//! read when the store is idle (`work::jobs::retained`) and before a `compact_range`. While no
//! snapshot is held nothing is counted, at no cost.
//!
//! A count records the range of the job's snapshots that read the versions. They are retained as
//! long as one of these snapshots is held. After that they are hidden garbage, which the next
//! compaction drops.

use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::sync::{Mutex, lock, rank};
use base::{HashMap, HashSet, Result, SeqNo, ValueKind, key};
use lsm::OutputTable;
use std::sync::Arc;
use table::{FinishedTable, KsstBuilder, Reference, Retained, UnsyncedTable};
use version::FamilyId;

/// Most groups of versions that a table records.
const GROUPS_MAX: usize = 256;

/// Retained versions of all tables that have any.
#[derive(Debug, Default)]
pub(crate) struct RetainedVersions(Mutex<Counts, rank::RetainedVersions>);

#[derive(Debug, Default)]
struct Counts {
    by_table: HashMap<u64, Vec<Retained>>,
    /// Families whose tables from earlier processes were read.
    read: HashSet<FamilyId>,
}

impl RetainedVersions {
    /// Records the counts of a table.
    pub fn note(&self, table: u64, retained: Vec<Retained>) {
        if !retained.is_empty() {
            lock(&self.0).by_table.insert(table, retained);
        }
    }

    /// Drops the counts of a removed table.
    pub fn forget(&self, table: u64) {
        lock(&self.0).by_table.remove(&table);
    }

    /// Returns the counts of these tables.
    pub fn of(&self, tables: impl Iterator<Item = u64>) -> Vec<Retained> {
        let by_table = &lock(&self.0).by_table;
        if by_table.is_empty() {
            return Vec::new();
        }
        tables.filter_map(|table| by_table.get(&table)).flatten().copied().collect()
    }

    /// True if none of `snapshots`, ascending, reads some retained versions of the table.
    pub fn has_released(&self, table: u64, snapshots: &[SeqNo]) -> bool {
        let counts = lock(&self.0);
        let retained = counts.by_table.get(&table);
        retained.is_some_and(|all| all.iter().any(|group| !group.is_read_at(snapshots)))
    }

    /// True if the counts of all tables of the family are known.
    pub fn is_read(&self, family: FamilyId) -> bool {
        lock(&self.0).read.contains(&family)
    }

    /// Records that the counts of all tables of the family are known.
    pub fn set_read(&self, family: FamilyId) {
        lock(&self.0).read.insert(family);
    }
}

/// Snapshots and range tombstones for the counts of one job.
#[derive(Debug)]
pub(crate) struct Counting {
    /// The snapshots held at the start of the job, ascending.
    snapshots: Vec<SeqNo>,
    tombstones: Vec<Arc<FragmentedRangeTombstones>>,
    /// Receives the counts of finished tables.
    all: Arc<RetainedVersions>,
}

impl Counting {
    /// `for_job`: the sequences that the job must keep readable, the visible frontier last. Returns
    /// `None` if no snapshot is held.
    pub fn new(
        all: &Arc<RetainedVersions>,
        for_job: &[SeqNo],
        tombstones: &[Arc<FragmentedRangeTombstones>],
    ) -> Option<Arc<Counting>> {
        let (_, snapshots) = for_job.split_last()?;
        let tombstones = tombstones.iter().filter(|t| !t.is_empty()).cloned().collect();
        let counting = || Counting { snapshots: snapshots.to_vec(), tombstones, all: all.clone() };
        (!snapshots.is_empty()).then(|| Arc::new(counting()))
    }

    /// Returns the oldest and the newest snapshot that read version `seq` of a key. `newer`: the
    /// next newer version of the key. Returns `None` if neither that nor a tombstone hides `seq`
    /// from later readers.
    fn between(&self, user_key: &[u8], seq: SeqNo, newer: Option<SeqNo>) -> Option<(SeqNo, SeqNo)> {
        let from = self.snapshots.partition_point(|&s| s < seq);
        // The job kept the version, so the first snapshot from its sequence on reads it. Anything
        // that hides it is newer than that snapshot. For versions with a zeroed sequence nothing
        // else tells older tombstones apart.
        let first = *self.snapshots.get(from)?;
        let covered =
            |at| self.tombstones.iter().any(|t| t.covering(user_key, at).is_some_and(|by| by > first));
        if newer.is_none() && !covered(base::MAX_SEQ) {
            return None;
        }
        let to = newer.map_or(self.snapshots.len(), |newer| self.snapshots.partition_point(|&s| s < newer));
        let seeing = self.snapshots.get(from..to)?;
        // From some snapshot on, a tombstone hides the version from all snapshots.
        let seeing = seeing.get(..seeing.partition_point(|&at| !covered(at)))?;
        Some((*seeing.first()?, *seeing.last()?))
    }
}

/// Limits the groups that a table records: the last one absorbs the surplus.
fn bounded(mut groups: Vec<Retained>) -> Vec<Retained> {
    while groups.len() > GROUPS_MAX
        && let (Some(more), Some(last)) = (groups.pop(), groups.last_mut())
    {
        *last = Retained {
            first: last.first.min(more.first),
            last: last.last.max(more.last),
            table_bytes: last.table_bytes.saturating_add(more.table_bytes),
            record_bytes: last.record_bytes.saturating_add(more.record_bytes),
        };
    }
    groups
}

/// Time at which a new table becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableSync {
    /// At its end.
    AtOnce,
    /// Later: the job syncs several tables together.
    Shared,
}

/// A finished table.
pub(crate) struct WrittenTable {
    pub table: FinishedTable,
    /// The pending sync; `None` if it is done.
    unsynced: Option<UnsyncedTable>,
}

impl WrittenTable {
    /// Takes the pending sync, which must precede the edit that names the table.
    pub fn take_unsynced(&mut self) -> Option<UnsyncedTable> {
        self.unsynced.take()
    }
}

/// A table builder that counts retained versions.
pub(crate) struct CountedTable {
    table: KsstBuilder,
    sync: TableSync,
    number: u64,
    counting: Option<Arc<Counting>>,
    /// User key and sequence of the previous entry.
    last_key: Vec<u8>,
    last_seq: SeqNo,
    kept: Vec<Retained>,
}

impl CountedTable {
    pub fn new(
        table: KsstBuilder,
        sync: TableSync,
        number: u64,
        counting: Option<Arc<Counting>>,
    ) -> CountedTable {
        CountedTable { table, sync, number, counting, last_key: Vec::new(), last_seq: 0, kept: Vec::new() }
    }

    fn count(&mut self, counting: &Counting, ikey: &[u8], value: &[u8]) -> Result<()> {
        let (user_key, trailer) = key::split(ikey);
        let (seq, kind) = (trailer >> 8, ValueKind::from_u8(trailer as u8));
        // `last_seq` is 0 before the first entry. The key alone does not tell, since user keys may
        // be empty.
        let newer = (self.last_seq > 0 && self.last_key == user_key).then_some(self.last_seq);
        if let Some((first, last)) = counting.between(user_key, seq, newer) {
            let record_bytes = match kind {
                Some(ValueKind::Reference) => Reference::decode(value)?.stored_len,
                _ => 0,
            };
            let table_bytes = (ikey.len() + value.len()) as u64;
            match self.kept.iter_mut().find(|k| (k.first, k.last) == (first, last)) {
                Some(kept) => {
                    kept.table_bytes += table_bytes;
                    kept.record_bytes = kept.record_bytes.saturating_add(record_bytes);
                }
                None => self.kept.push(Retained { first, last, table_bytes, record_bytes }),
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(user_key);
        self.last_seq = seq;
        Ok(())
    }
}

impl OutputTable for CountedTable {
    type Finished = WrittenTable;

    #[inline]
    fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()> {
        if let Some(counting) = self.counting.clone() {
            self.count(&counting, ikey, value)?;
        }
        self.table.add(ikey, value)
    }

    fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()> {
        self.table.add_range_tombstone(tombstone)
    }

    #[inline]
    fn len_estimate(&self) -> u64 {
        self.table.len_estimate()
    }

    #[inline]
    fn raw_bytes(&self) -> u64 {
        self.table.raw_bytes()
    }

    fn finish(mut self) -> Result<WrittenTable> {
        self.table.set_retained(bounded(self.kept.clone()));
        let written = match self.sync {
            TableSync::AtOnce => WrittenTable { table: self.table.finish()?, unsynced: None },
            TableSync::Shared => {
                let (table, unsynced) = self.table.finish_unsynced()?;
                WrittenTable { table, unsynced: Some(unsynced) }
            }
        };
        if let Some(counting) = self.counting {
            counting.all.note(self.number, self.kept);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_version_is_attributed_to_snapshots_that_see_it() {
        let all = Arc::new(RetainedVersions::default());
        let tombstone = |start: &[u8], end: &[u8], seq| {
            let all = [RangeTombstone { start: start.to_vec(), end: end.to_vec(), seq }];
            Arc::new(FragmentedRangeTombstones::new(&all))
        };
        let tombstones = [tombstone(b"b", b"c", 25), tombstone(b"c", b"d", 5)];
        assert!(Counting::new(&all, &[50], &tombstones).is_none(), "no snapshot, nothing to count");
        let counting = Counting::new(&all, &[10, 20, 30, 50], &tombstones).unwrap();
        for (key, seq, newer, expected) in [
            (b"a", 5, None, None),
            (b"a", 5, Some(40), Some((10, 30))),
            (b"a", 10, Some(20), Some((10, 10))),
            (b"a", 11, Some(20), None),
            (b"a", 11, Some(21), Some((20, 20))),
            (b"a", 31, Some(40), None),
            // A tombstone hides it from sequence 25 on.
            (b"b", 5, None, Some((10, 20))),
            (b"b", 15, Some(40), Some((20, 20))),
            (b"b", 26, None, None),
            // With a zeroed sequence: the first snapshot reads it, so it is newer than one
            // tombstone and older than the other.
            (b"b", 0, None, Some((10, 20))),
            (b"c", 0, None, None),
            (b"c", 0, Some(40), Some((10, 30))),
            (b"b", 26, Some(40), Some((30, 30))),
        ] {
            assert_eq!(counting.between(key, seq, newer), expected, "{key:?} {seq} {newer:?}");
        }
    }
}
