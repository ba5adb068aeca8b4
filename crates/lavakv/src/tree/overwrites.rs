//! Bytes of records that new entries hide, estimated from key samples that tables keep in memory.
//!
//! The sum over all tables is the unexposed garbage of a family: an entry hides the next older
//! version of its key, and no other. A key that is in no older table hides nothing, so a load of
//! new keys counts as none in any order.
//!
//! **Cost.** All tables sample the same keys ([`base::table_notes`]), so that samples are compared
//! without a read. At most [`HASHES_MAX`] hashes of a new table are looked up in the samples of the
//! older tables in its range. With many of these it is fewer: [`LOOKUPS_MAX`] lookups in all, or
//! about [`HASHES_MIN`] a table. The job that writes the table does it before it takes a lock, so
//! writes pay nothing.
//!
//! The estimate is unknown while the sample of an older table is not in memory; a survey reads it
//! (`work::jobs::survey`). If no key is in the range of both samples, all keys count as overwrites.

use base::{KeySample, TableNotes};
use std::sync::Arc;
use version::{FileMeta, Hides, Version};

/// Most hashes of a sample that are looked up.
const HASHES_MAX: usize = 256;
/// Hashes that are looked up with any number of tables, if the sample has as many.
const HASHES_MIN: usize = 8;
/// Most lookups in all.
const LOOKUPS_MAX: usize = 32 << 10;
const MILLION: u128 = 1_000_000;

/// Tables that may hold older versions of keys.
pub(crate) struct OlderTables<'v> {
    version: &'v Version,
    /// The older tables of level 0, newest first.
    level_0: Vec<&'v Arc<FileMeta>>,
    /// The first older level below it.
    first: usize,
}

impl<'v> OlderTables<'v> {
    /// Returns all tables, which are older than any memtable.
    pub fn than_memtables(version: &'v Version) -> OlderTables<'v> {
        OlderTables { version, level_0: version.files(0).iter().collect(), first: 1 }
    }

    /// Returns the tables that are older than a table at `level`. `inputs`: the tables that it
    /// replaces.
    pub fn than_table(
        version: &'v Version,
        level: usize,
        file: &FileMeta,
        inputs: impl Fn(u64) -> bool,
    ) -> OlderTables<'v> {
        let is_older = |f: &&Arc<FileMeta>| f.seq_range().1 < file.min_seq && !inputs(f.number);
        let level_0 =
            if level == 0 { version.files(0).iter().filter(is_older).collect() } else { Vec::new() };
        OlderTables { version, level_0, first: level + 1 }
    }

    /// Returns the tables in a range of user keys that reference values, newest first.
    pub fn tables(&self, (low, high): (&[u8], &[u8])) -> Vec<&'v Arc<FileMeta>> {
        let version = self.version;
        let in_range = |level: usize| {
            let range = version.overlap_range(level, Some(low), Some(high));
            version.files(level).get(range).unwrap_or_default().iter()
        };
        let meets = |f: &&&'v Arc<FileMeta>| !f.ends_before(low) && !f.starts_after(high);
        let newest = self.level_0.iter().filter(meets).copied();
        let deeper = (self.first..version.levels.len()).flat_map(in_range);
        newest.chain(deeper).filter(|f| f.uses.sums().references > 0).collect()
    }

    /// Returns the older versions hidden by the keys of `file`. `notes`: from its builder.
    pub fn hidden_by(&self, file: &FileMeta, notes: &TableNotes) -> Option<Hides> {
        let range = (file.smallest_user_key(), file.largest_user_key());
        self.hidden_by_keys(range, (notes.keys, &notes.sample), &[])
    }

    /// Returns the older versions hidden by the keys of a memtable in this range. `behind`: samples
    /// of the memtables between it and the tables.
    pub fn hidden_by_keys(
        &self,
        range: (&[u8], &[u8]),
        (keys, sample): (u64, &KeySample),
        behind: &[&KeySample],
    ) -> Option<Hides> {
        let tables = self.tables(range);
        if tables.is_empty() || keys == 0 {
            return Some(Hides::default());
        }
        let mut level = behind.iter().map(|sample| sample.level()).fold(sample.level(), u32::max);
        for file in &tables {
            level = level.max(file.known.notes()?.sample.level());
        }
        let most = hashes_max(tables.len());
        while sample.at(level).len() > most && sample.at(level + 1).len() >= HASHES_MIN {
            level += 1;
        }
        let mut left = sample.at(level).to_vec();
        let looked_up = left.len();
        if looked_up == 0 {
            return Some(all_of(keys, &tables));
        }
        let mut find = |older: &[u64]| {
            let before = left.len();
            left.retain(|hash| older.binary_search(hash).is_err());
            (before - left.len()) as u128
        };
        for sample in behind {
            find(sample.at(level));
        }
        let mut found = 0u128;
        let mut bytes = 0u128;
        for file in tables {
            let (notes, sums) = (file.known.notes()?, file.uses.sums());
            let here = find(notes.sample.at(level));
            found += here;
            bytes += here * u128::from(sums.stored_bytes) / u128::from(file.entries.max(1));
        }
        let part = |found: u128, of: u64| {
            let bytes = (found * u128::from(of)).checked_div(looked_up as u128)?;
            Some(u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        Some(Hides { keys_ppm: part(found * MILLION, 1)?, record_bytes: part(bytes, keys)? })
    }
}

/// Returns the number of hashes to look up in each of `tables` tables.
fn hashes_max(tables: usize) -> usize {
    (LOOKUPS_MAX / tables.max(1)).clamp(HASHES_MIN, HASHES_MAX)
}

/// Returns the estimate for keys that are all in one of the tables.
fn all_of(keys: u64, tables: &[&Arc<FileMeta>]) -> Hides {
    let sum = |of: fn(&FileMeta) -> u64| tables.iter().fold(0u64, |sum, file| sum.saturating_add(of(file)));
    let (bytes, entries) = (sum(|file| file.uses.sums().stored_bytes), sum(|file| file.entries));
    let bytes = u128::from(bytes) * u128::from(keys) / u128::from(entries.max(1));
    Hides { keys_ppm: 1_000_000, record_bytes: u64::try_from(bytes).unwrap_or(u64::MAX) }
}

#[cfg(all(test, not(loom)))]
mod tests;
