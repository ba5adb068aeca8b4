//! How many bytes of records new entries hide: estimated from a sample of their keys, looked up in the older tables.
//!
//! The sum over all tables is the hidden garbage of a family: an entry hides the next older version of its key, and no
//! other. A key that no older table holds hides nothing, so a load of new keys counts as none, whatever its order.
//!
//! **Cost.** A table without older ones in its range is not looked at. Of any other at most [`LOOKUPS_MAX`] keys are
//! looked up, for at most [`TIME_NS_MAX`]: a filter answers for most keys that are new. That is some 50 ns for an entry of
//! a small table, and less than one for an entry of a table of 64 MB. The job that wrote the table pays, before it takes
//! a lock.

use crate::context::Context;
use crate::files::table_cache::TableCache;
use base::{MAX_SEQ, Result, SeqNo, ValueKind, hash};
use lsm::TableSource;
use std::sync::Arc;
use table::{Ksst, ReadCounters, Reference};
use version::{FileMeta, Version};

/// So many keys of a table are looked up at most.
const LOOKUPS_MAX: usize = 64;
/// And at least so many, if it has as many.
const LOOKUPS_MIN: usize = 16;
/// One key in so many is looked up between these bounds.
const KEYS_PER_LOOKUP: u64 = 16;
/// No key is looked up after so long.
const TIME_NS_MAX: u64 = 8_000_000;

/// Where older versions of keys may be: tables, newest first.
pub(crate) struct Older<'v> {
    version: &'v Version,
    /// Tables of level 0 that are older, newest first.
    level_0: Vec<&'v Arc<FileMeta>>,
    /// The first deeper level that is older.
    first: usize,
}

impl<'v> Older<'v> {
    /// Older than all of memory.
    pub fn than_memtables(version: &'v Version) -> Older<'v> {
        Older { version, level_0: version.files(0).iter().collect(), first: 1 }
    }

    /// Older than a table at `level`. `inputs`: the tables that it replaces.
    pub fn than_table(
        version: &'v Version,
        level: usize,
        file: &FileMeta,
        inputs: impl Fn(u64) -> bool,
    ) -> Older<'v> {
        let is_older = |f: &&Arc<FileMeta>| f.seq_range().1 < file.min_seq && !inputs(f.number);
        let level_0 =
            if level == 0 { version.files(0).iter().filter(is_older).collect() } else { Vec::new() };
        Older { version, level_0, first: level + 1 }
    }

    /// True if no older table has a key in the range of `file`.
    fn is_clear_of(&self, file: &FileMeta) -> bool {
        let (low, high) = (Some(file.smallest_user_key()), Some(file.largest_user_key()));
        let mut deeper = self.first..self.version.levels.len();
        !self.level_0.iter().any(|f| f.overlaps(file))
            && deeper.all(|level| self.version.overlap_range(level, low, high).is_empty())
    }

    /// The tables that may hold a key, newest first.
    fn of_key(&self, user_key: &[u8]) -> impl Iterator<Item = &'v Arc<FileMeta>> {
        let (version, deeper) = (self.version, self.first..self.version.levels.len());
        let newest = self.level_0.iter().copied().filter(move |f| f.covers(user_key));
        newest.chain(deeper.filter_map(move |level| version.file_at(level, user_key)))
    }

    /// Bytes of the record that the newest of these versions of a key refers to; 0: there is none.
    fn record_bytes(&self, tables: &TableCache, user_key: &[u8]) -> Result<u64> {
        let key_hash = hash::key_hash(user_key);
        for file in self.of_key(user_key) {
            let table: Arc<Ksst> = tables.table(file)?;
            let found = table.get(user_key, MAX_SEQ, key_hash, &mut ReadCounters::default())?;
            let deleted = table.range_tombstones().covering(user_key, MAX_SEQ);
            match found {
                Some(entry) if deleted.is_none_or(|by: SeqNo| by < entry.seq) => {
                    let is_reference = entry.kind == ValueKind::Reference;
                    return if is_reference {
                        Ok(Reference::decode(&entry.value)?.stored_len)
                    } else {
                        Ok(0)
                    };
                }
                None if deleted.is_none() => {}
                _ => return Ok(0),
            }
        }
        Ok(0)
    }

    /// Bytes of records that `keys` user keys hide, of which `sample` are some, evenly spaced. `None`: a table cannot be read.
    pub fn hidden_by(
        &self,
        (context, tables): (&Context, &TableCache),
        keys: u64,
        sample: &[Vec<u8>],
    ) -> Option<u64> {
        let wanted = (keys / KEYS_PER_LOOKUP).clamp(LOOKUPS_MIN as u64, LOOKUPS_MAX as u64) as usize;
        let since_ns = context.now_ns();
        let (mut looked_up, mut bytes) = (0u64, 0u64);
        for nth in scattered(sample.len()).take(wanted) {
            if looked_up > 0 && context.now_ns().saturating_sub(since_ns) > TIME_NS_MAX {
                break;
            }
            bytes = bytes.saturating_add(self.record_bytes(tables, sample.get(nth)?).ok()?);
            looked_up += 1;
        }
        let hidden = u128::from(bytes) * u128::from(keys) / u128::from(looked_up.max(1));
        Some(u64::try_from(hidden).unwrap_or(u64::MAX))
    }
}

/// All numbers below `count`, such that the first of them are spread over the whole range.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    let bits = count.next_power_of_two().trailing_zeros();
    let reversed = move |n: usize| if bits == 0 { 0 } else { n.reverse_bits() >> (usize::BITS - bits) };
    (0..1usize << bits).map(reversed).filter(move |n| *n < count)
}

/// Notes of a table just written what its point entries hide, if its `sample` says so.
pub(crate) fn note(context: (&Context, &TableCache), older: &Older<'_>, file: &FileMeta, sample: &[Vec<u8>]) {
    if older.is_clear_of(file) {
        return file.known.note_hides(0);
    }
    let keys = file.known.notes().map_or(file.entries, |notes| notes.keys);
    if let Some(bytes) = older.hidden_by(context, keys, sample) {
        file.known.note_hides(bytes);
    }
}

/// Tables that an open reads whole have so many bytes together at most.
const READ_BYTES_MAX: u64 = 4 << 20;
/// An open begins no further table after so long.
const READ_NS_MAX: u64 = 30_000_000;

/// Notes what tables from before this process hide, as far as few bytes must be read for it. What stays unknown is estimated
/// from the descriptions of the tables ([`super::hiding`]). Called before readers see the versions.
pub(crate) fn learn<'v>(context: &Context, tables: &TableCache, versions: impl Iterator<Item = &'v Version>) {
    let (since_ns, mut left) = (context.now_ns(), READ_BYTES_MAX);
    for version in versions.filter(|version| !version.vssts.is_empty()) {
        let deepest = version.deepest_level().unwrap_or(0);
        let files = version.levels.iter().enumerate().take(deepest.max(1));
        for (level, file) in files.flat_map(|(level, files)| files.iter().map(move |file| (level, file))) {
            let older = Older::than_table(version, level, file, |_| false);
            if older.is_clear_of(file) {
                file.known.note_hides(0);
                continue;
            }
            if file.len > left || context.now_ns().saturating_sub(since_ns) > READ_NS_MAX {
                continue;
            }
            left -= file.len;
            // A table that cannot be read is reported by whoever needs it.
            let Ok((notes, sample)) = tables.table(file).and_then(|table| table.notes()) else { continue };
            file.known.note(notes);
            note((context, tables), &older, file, &sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scattered;

    #[test]
    fn lookups_are_spread_over_the_sample() {
        for count in [0, 1, 2, 3, 100, 256, 257] {
            let mut all: Vec<usize> = scattered(count).collect();
            let few = &all[..count.min(8)];
            let widest = few.iter().filter(|n| **n >= count / 2).count();
            assert!(widest >= few.len() / 3, "{few:?} of {count}");
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }
}
