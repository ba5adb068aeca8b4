//! The notes of an existing table: statistics that its builder collected.
//!
//! A long table with references stores them in a section, which costs one read. For other tables,
//! and tables from before the section, all entries are read.

use crate::file::BlockKind;
use crate::options::{IterOptions, ReadCounters};
use crate::reader::Ksst;
use crate::reference::Reference;
use crate::sections;
use base::hash::key_hash;
use base::{InternalIterator, KeySample, Result, TableNotes, ValueKind, key};
use std::sync::Arc;

/// Length of a read-ahead request, in bytes.
const READAHEAD_LEN: usize = 256 << 10;

impl Ksst {
    /// Reads the notes of the table: their section, or else all entries.
    ///
    /// # Errors
    /// `Corruption` if a block is damaged, and the errors of the file.
    pub fn notes(self: &Arc<Self>) -> Result<TableNotes> {
        let Some(section) = self.sections.iter().find(|section| section.tag == sections::NOTES) else {
            return self.walk_for_notes();
        };
        let block = self.file.read(section.handle, BlockKind::Index, &mut ReadCounters::default())?;
        TableNotes::decode(&block).map_err(|e| self.file.locate(e, section.handle.offset))
    }

    fn walk_for_notes(self: &Arc<Self>) -> Result<TableNotes> {
        let mut notes = TableNotes::default();
        let options = IterOptions { fill_cache: false, readahead_bytes: READAHEAD_LEN };
        let mut cursor = self.iter(options);
        let mut last: Option<Vec<u8>> = None;
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (user_key, trailer) = key::split(cursor.key());
            if last.as_deref() != Some(user_key) {
                notes.keys += 1;
                notes.sample.add(key_hash(user_key));
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(user_key);
            }
            let kind = ValueKind::from_u8(trailer as u8);
            let key_len = cursor.key().len() as u64;
            if kind == Some(ValueKind::Reference) {
                let reference = Reference::decode(cursor.value())?;
                notes.records.add(reference.stored_len);
                notes.values.add(key_len.saturating_add(reference.raw_len));
            } else if kind.is_none_or(|kind| !kind.is_tombstone()) {
                notes.values.add(key_len + cursor.value().len() as u64);
            }
            cursor.next()?;
        }
        notes.sample = std::mem::take(&mut notes.sample).union(KeySample::default());
        Ok(notes)
    }
}
