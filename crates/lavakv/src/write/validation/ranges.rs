//! Ranges of keys that a transaction has read, and changes in them.

use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::key::encode;
use base::range_del::FragmentedRangeTombstones;
use base::{InternalIterator, MAX_SEQ, Result, SeqNo, ValueKind, key};
use memtable::MemTable;
use std::sync::Arc;
use table::{IterOptions, ReadCounters};

/// A range that was read: keys from `start` up to `end`; `None`: without an end.
#[derive(Debug)]
pub(super) struct RangeRead {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
    /// The sequence of the read.
    pub since: SeqNo,
}

/// The outcome of a bounded search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    Unchanged,
    Changed,
    /// The search passed as many entries as it may.
    TooLong,
}

impl RangeRead {
    fn is_before_end(&self, user_key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| user_key < end)
    }

    /// Searches memtables for a change above a sequence. It passes at most `looks` entries, and
    /// takes them off.
    pub fn search_memtables<'a>(
        &self,
        memtables: impl Iterator<Item = &'a Arc<MemTable>>,
        since: SeqNo,
        looks: &mut usize,
    ) -> Result<Searched> {
        for memtable in memtables {
            if memtable.seq_range().is_none_or(|(_, max)| max <= since) {
                continue;
            }
            if memtable.range_tombstone_parts().iter().any(|part| self.meets(part, since)) {
                return Ok(Searched::Changed);
            }
            match self.search(&mut memtable.iter(), since, looks)? {
                Searched::Unchanged => {}
                found => return Ok(found),
            }
        }
        Ok(Searched::Unchanged)
    }

    /// Returns true if a table has a change in the range after the read.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_changed_in_tables(&self, tree: &Tree, read_state: &ReadState) -> Result<bool> {
        let files = (0..read_state.version.levels.len()).flat_map(|level| read_state.version.files(level));
        for file in files.filter(|file| file.seq_range().1 > self.since) {
            if file.ends_before(&self.start) || !self.is_before_end(file.smallest_user_key()) {
                continue;
            }
            let table = tree.files.tables.table_from(file, &mut ReadCounters::default())?;
            if self.meets(table.range_tombstones(), self.since) {
                return Ok(true);
            }
            let mut entries = table.iter(IterOptions::default());
            if self.search(&mut entries, self.since, &mut usize::MAX.clone())? == Searched::Changed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn meets(&self, tombstones: &FragmentedRangeTombstones, since: SeqNo) -> bool {
        let all = tombstones.fragments();
        let first = all.partition_point(|fragment| fragment.end <= self.start);
        let within = all.iter().skip(first).take_while(|fragment| self.is_before_end(&fragment.start));
        within.flat_map(|fragment| fragment.seqs.first()).any(|seq| *seq > since)
    }

    fn search(
        &self,
        entries: &mut dyn InternalIterator,
        since: SeqNo,
        looks: &mut usize,
    ) -> Result<Searched> {
        entries.seek(&encode(&self.start, MAX_SEQ, ValueKind::Seek))?;
        while entries.valid() && self.is_before_end(key::user_key(entries.key())) {
            if key::seq(entries.key()) > since {
                return Ok(Searched::Changed);
            }
            if *looks == 0 {
                return Ok(Searched::TooLong);
            }
            *looks -= 1;
            entries.next()?;
        }
        Ok(Searched::Unchanged)
    }
}
