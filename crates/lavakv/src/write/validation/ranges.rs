//! Ranges of keys that a transaction has read, and changes in them.

use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::key::encode;
use base::range_del::FragmentedRangeTombstones;
use base::{InternalIterator, MAX_SEQ, Result, SeqNo, ValueKind, key};
use memtable::MemTable;
use std::sync::Arc;
use table::{IterOptions, ReadCounters};

/// Read-ahead of a search in a table, which does not fill the cache.
const READAHEAD_BYTES: usize = 256 << 10;

/// A range that was read: keys from `start` up to `end`; `None`: without an end.
#[derive(Debug)]
pub(super) struct RangeRead {
    pub start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// The length of the longest end so far.
    end_len_max: usize,
}

/// The outcome of a bounded search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    Unchanged,
    Changed,
    /// The search passed as many entries as it may.
    TooLong,
}

/// The number of lookups that a search may still make.
pub(super) struct Looks(usize);

impl Looks {
    pub fn at_most(count: usize) -> Looks {
        Looks(count)
    }

    /// Takes some lookups; false if there are too few.
    pub fn take(&mut self, count: usize) -> bool {
        let left = self.0.checked_sub(count);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl RangeRead {
    pub fn empty_at(start: &[u8]) -> RangeRead {
        RangeRead { start: start.to_vec(), end: Some(start.to_vec()), end_len_max: start.len() }
    }

    /// Sets the end. Returns the bytes by which it is longer than any end before.
    pub fn extend(&mut self, end: Option<&[u8]>) -> usize {
        let len = end.map_or(0, <[u8]>::len);
        let grown = len.saturating_sub(self.end_len_max);
        self.end_len_max += grown;
        self.end = end.map(<[u8]>::to_vec);
        grown
    }

    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    fn is_before_end(&self, user_key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| user_key < end)
    }

    /// Searches memtables for a change above a sequence.
    pub fn search_memtables<'a>(
        &self,
        memtables: impl Iterator<Item = &'a Arc<MemTable>>,
        since: SeqNo,
        looks: &mut Looks,
    ) -> Result<Searched> {
        if self.is_empty() {
            return Ok(Searched::Unchanged);
        }
        for memtable in memtables {
            if memtable.seq_range().is_none_or(|(_, max)| max <= since) {
                continue;
            }
            let mut found = Searched::Unchanged;
            for part in memtable.range_tombstone_parts() {
                if found == Searched::Unchanged {
                    found = self.search_tombstones(&part, since, looks);
                }
            }
            if found == Searched::Unchanged {
                found = self.search(&mut memtable.iter(), since, looks)?;
            }
            if found != Searched::Unchanged {
                return Ok(found);
            }
        }
        Ok(Searched::Unchanged)
    }

    /// Returns true if a table has a change in the range above a sequence.
    ///
    /// # Errors
    /// Those of reading; `Closed`.
    pub fn is_changed_in_tables(&self, tree: &Tree, read_state: &ReadState, since: SeqNo) -> Result<bool> {
        let version = &read_state.version;
        let files = (0..version.levels.len()).flat_map(|level| version.files(level));
        for file in files.filter(|file| !self.is_empty() && file.seq_range().1 > since) {
            if file.ends_before(&self.start) || !self.is_before_end(file.smallest_user_key()) {
                continue;
            }
            tree.reads.check()?;
            let table = tree.files.tables.table_from(file, &mut ReadCounters::default())?;
            let options = IterOptions { fill_cache: false, readahead_bytes: READAHEAD_BYTES };
            let looks = &mut Looks::at_most(usize::MAX);
            let is_changed = self.search_tombstones(table.range_tombstones(), since, looks)
                == Searched::Changed
                || self.search(&mut table.iter(options), since, looks)? == Searched::Changed;
            if is_changed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn search_tombstones(
        &self,
        tombstones: &FragmentedRangeTombstones,
        since: SeqNo,
        looks: &mut Looks,
    ) -> Searched {
        let all = tombstones.fragments();
        let first = all.partition_point(|fragment| fragment.end <= self.start);
        for fragment in all.iter().skip(first).take_while(|fragment| self.is_before_end(&fragment.start)) {
            if fragment.seqs.first().is_some_and(|seq| *seq > since) {
                return Searched::Changed;
            }
            if !looks.take(1) {
                return Searched::TooLong;
            }
        }
        Searched::Unchanged
    }

    fn search(
        &self,
        entries: &mut dyn InternalIterator,
        since: SeqNo,
        looks: &mut Looks,
    ) -> Result<Searched> {
        entries.seek(&encode(&self.start, MAX_SEQ, ValueKind::Seek))?;
        while entries.valid() && self.is_before_end(key::user_key(entries.key())) {
            if key::seq(entries.key()) > since {
                return Ok(Searched::Changed);
            }
            if !looks.take(1) {
                return Ok(Searched::TooLong);
            }
            entries.next()?;
        }
        // The seek counts as well.
        Ok(if looks.take(1) { Searched::Unchanged } else { Searched::TooLong })
    }
}
