//! kSSTs as the outputs of merge jobs.

use crate::merge_job::OutputTable;
use base::range_del::RangeTombstone;
use base::{KeySample, Result};
use table::{FinishedTable, KsstBuilder};
use version::{FileMeta, TableStats};

impl OutputTable for KsstBuilder {
    type Finished = FinishedTable;
    #[inline]
    fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()> {
        KsstBuilder::add(self, ikey, value)
    }
    fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()> {
        KsstBuilder::add_range_tombstone(self, tombstone)
    }
    #[inline]
    fn len_estimate(&self) -> u64 {
        KsstBuilder::len_estimate(self)
    }
    #[inline]
    fn raw_bytes(&self) -> u64 {
        KsstBuilder::raw_bytes(self)
    }
    fn finish(self) -> Result<FinishedTable> {
        KsstBuilder::finish(self)
    }
}

/// Returns the version's metadata of a new table. The caller fills in location, hidden bytes
/// and sharing.
pub fn file_meta(table: &FinishedTable) -> FileMeta {
    let p = &table.properties;
    let mut dependencies = p.dependencies.clone();
    dependencies.sort_by_key(|d| d.blob_id);
    FileMeta {
        number: p.identity.number,
        uid: p.identity.uid,
        len: table.len,
        smallest: table.smallest.clone(),
        largest: table.largest.clone(),
        min_seq: p.min_seq,
        max_seq: p.max_seq,
        entries: p.entries,
        tombstones: p.tombstones,
        range_tombstones: p.range_tombstones,
        raw_bytes: p.raw_bytes(),
        uses: dependencies.into(),
        known: known(table),
        ..FileMeta::default()
    }
}

/// In a table without references no key is sampled: its entries cannot become garbage in value
/// files.
fn known(table: &FinishedTable) -> TableStats {
    let mut notes = table.notes.clone();
    if table.properties.references == 0 {
        notes.sample = KeySample::default();
    }
    TableStats::from(notes)
}
