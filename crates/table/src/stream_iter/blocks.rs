//! Navigation through the blocks of one stream: index partition, row, and the loaded block.

use super::runs::{BlockRow, Runs};
use crate::cursor::BlockCursor;
use crate::file::BlockKind;
use crate::frame::BlockHandle;
use crate::options::{IterOptions, SeekTarget};
use crate::readahead::ScanBounds;
use crate::reader::Ksst;
use crate::source::{Extent, FetchedBlocks, Source};
use crate::stream::{Partition, Stream};
use crate::waits::Go;
use base::key::{self, encode_into};
use base::{Error, Gap, MAX_SEQ, Result, ValueKind};
use std::sync::Arc;

/// The block to load.
#[derive(Clone, Copy)]
pub(super) enum Load<'k> {
    /// The block in which a seek begins.
    At(SeekTarget<'k>),
    /// The block of a row, or the first or last block of a partition; the flag is true if the scan
    /// goes backward.
    To(Go, bool),
}

/// A position among the blocks of a stream, with a cursor in one of them.
pub(super) struct Blocks<C> {
    table: Arc<Ksst>,
    role: BlockKind,
    runs: Runs,
    partition: Option<usize>,
    /// The partition requested last, loaded or not; `None` if the index is known to be wrong.
    asked: Option<usize>,
    index: Partition,
    row: usize,
    /// The block that the cursor has loaded.
    loaded: Option<BlockHandle>,
    cursor: C,
}

fn stream_of(table: &Ksst, role: BlockKind) -> &Stream {
    let stream = if role == BlockKind::References { &table.references } else { &table.inline };
    stream.as_ref().expect("an iterator is made only over a stream that is there")
}

impl<C: BlockCursor> Blocks<C> {
    pub fn new(
        table: Arc<Ksst>,
        role: BlockKind,
        options: IterOptions,
        borders: Option<Arc<ScanBounds>>,
    ) -> Self {
        Blocks {
            runs: Runs::new(&table.file, role, options, borders),
            table,
            role,
            partition: None,
            asked: None,
            index: Partition::default(),
            row: 0,
            loaded: None,
            cursor: C::default(),
        }
    }

    fn partitions(&self) -> usize {
        stream_of(&self.table, self.role).partitions()
    }

    /// Returns the cursor in the loaded block.
    #[inline]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }

    /// Returns the loaded block.
    pub fn loaded(&self) -> Option<BlockHandle> {
        self.loaded
    }

    /// Returns the bytes of the file that were read ahead.
    pub fn held_bytes(&self) -> u64 {
        self.runs.held_bytes()
    }

    /// Loads a block. Returns false if all blocks end before the target of a seek.
    pub fn load<S: Source>(&mut self, load: Load<'_>, source: &mut S) -> Result<bool, S::Stop> {
        match load {
            Load::At(place) => return self.open_at(place, source),
            Load::To(Go::Row(row), backward) => self.open_block(row, backward, source)?,
            Load::To(Go::Partition(p), backward) => {
                self.open_partition(p, source)?;
                let row = if backward { self.index.shape.rows().saturating_sub(1) } else { 0 };
                self.open_block(row, backward, source)?;
            }
        }
        Ok(true)
    }

    /// Returns the step to the block after the current one; `None`: it is the last.
    pub fn following(&self) -> Option<Go> {
        let p = self.partition.unwrap_or(0);
        if self.row + 1 < self.index.shape.rows() {
            Some(Go::Row(self.row + 1))
        } else if p + 1 < self.partitions() {
            Some(Go::Partition(p + 1))
        } else {
            None
        }
    }

    /// Returns the step to the block before the current one; `None`: it is the first.
    pub fn preceding(&self) -> Option<Go> {
        let p = self.partition.unwrap_or(0);
        match self.row.checked_sub(1) {
            Some(row) => Some(Go::Row(row)),
            None => p.checked_sub(1).map(Go::Partition),
        }
    }

    /// Loads an index partition, unless it is the current one.
    fn open_partition<S: Source>(&mut self, p: usize, source: &mut S) -> Result<(), S::Stop> {
        if self.partition == Some(p) {
            return Ok(());
        }
        (self.partition, self.asked) = (None, Some(p));
        let stream = stream_of(&self.table, self.role);
        self.index = stream.partition_to_keep(&self.table.file, p, self.runs.caching(), source)?;
        self.partition = Some(p);
        Ok(())
    }

    /// Loads the data block of a row of the current partition, unless the cursor has it.
    fn open_block<S: Source>(&mut self, row: usize, backward: bool, source: &mut S) -> Result<(), S::Stop> {
        let handle = self.index.handle(row);
        self.row = row;
        if self.loaded == Some(handle) {
            return Ok(());
        }
        self.loaded = None;
        let (table, partition) = (&self.table, self.partition.unwrap_or(0));
        let stream = stream_of(table, self.role);
        let at = BlockRow { stream, partition, index: &self.index, row, backward };
        let block = self.runs.block(&table.file, at, source)?;
        self.cursor.load(block, table.global_seq).map_err(|e| table.file.locate(e, handle.offset))?;
        self.loaded = Some(handle);
        Ok(())
    }

    /// Loads the block in which a seek begins. Returns false if all blocks end before it.
    fn open_at<S: Source>(&mut self, place: SeekTarget<'_>, source: &mut S) -> Result<bool, S::Stop> {
        let sought = self.sought(place);
        let p = match sought {
            Some((user_key, trailer)) => stream_of(&self.table, self.role).search(user_key, trailer),
            None if place.is_forward() => 0,
            None => self.partitions().saturating_sub(1),
        };
        if p >= self.partitions() {
            return Ok(false);
        }
        self.open_partition(p, source)?;
        let last = self.index.shape.rows().saturating_sub(1);
        let row = match sought {
            // The separator of the partition equals that of its last row; a damaged index may
            // disagree.
            Some((user_key, trailer)) => {
                self.index.shape.search(&self.index.block, user_key, trailer).min(last)
            }
            None if place.is_forward() => 0,
            None => last,
        };
        self.runs.seek_to(&self.table.file, self.index.handle(row));
        self.open_block(row, !place.is_forward(), source)?;
        Ok(true)
    }

    /// Returns the search key for the index. With a global sequence the stored trailers are
    /// meaningless, so a seek begins before all entries of the user key, or after them.
    fn sought<'k>(&self, place: SeekTarget<'k>) -> Option<(&'k [u8], u64)> {
        let (user_key, trailer) = place.target().map(key::split)?;
        let trailer = match self.table.global_seq {
            None => trailer,
            Some(_) if place.is_forward() => u64::MAX,
            Some(_) => 0,
        };
        Some((user_key, trailer))
    }

    /// Runs a movement of the cursor within its block, and adds the block to its error.
    #[inline(always)]
    pub fn within(&mut self, movement: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        match movement(&mut self.cursor) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.table.file.locate(e, self.loaded.map_or(0, |h| h.offset))),
        }
    }

    /// Rejects a step to a block that does not lie after the previous one. The blocks of a stream
    /// lie in key order; a damaged index that leads back would make a walk nearly endless.
    pub fn check_order(&mut self, before: Option<BlockHandle>, after: Option<BlockHandle>) -> Result<()> {
        match (before, after) {
            (Some(before), Some(after)) if before.end() > after.offset => {
                (self.partition, self.asked) = (None, None);
                let e = Error::corruption(format!(
                    "the index of the key table (kSST) points back to an earlier data block: from one that \
                     ends at byte {} to one at byte {}",
                    before.end(),
                    after.offset
                ));
                Err(self.table.file.locate(e, after.offset))
            }
            _ => Ok(()),
        }
    }

    /// Requests the run after the awaited block too, if the scan is long.
    pub fn want_behind(&mut self, fetched: &mut FetchedBlocks) {
        self.runs.want_behind(&self.table.file, &self.index, self.row, fetched);
    }

    /// Returns the run that was requested after the loaded block.
    pub fn ahead(&mut self) -> Option<&Extent> {
        self.runs.ahead_of(self.loaded)
    }

    /// Unloads the block, but keeps the place in the index.
    pub fn clear(&mut self) {
        self.cursor.clear();
        self.loaded = None;
    }

    /// After a failure no loaded data is trusted.
    #[cold]
    pub fn reset(&mut self) {
        self.clear();
        (self.partition, self.asked) = (None, None);
        self.runs.reset();
    }

    /// Returns the possible entries of the block or index partition at which a move failed: those
    /// between the separators around it. If a separator is inside a user key, all versions of that
    /// key are included. Without a separator before it, the range starts at the smallest possible
    /// key.
    #[cold]
    pub fn unread(&self) -> Option<Gap> {
        let p = self.asked?;
        let stream = stream_of(&self.table, self.role);
        // Number of rows of the partition, if it is the block that failed.
        let rows = self.partition.map(|_| self.index.shape.rows());
        let mut user_key = Vec::new();
        let before = match rows {
            Some(_) if self.row > 0 => {
                Some(self.index.shape.separator(&self.index.block, self.row - 1, &mut user_key))
            }
            _ if p > 0 => Some(stream.separator(p - 1, &mut user_key)),
            _ => None,
        };
        // With replaced sequences, a separator inside a user key cannot be compared with other
        // keys.
        if self.table.global_seq.is_some() && before.is_some_and(|trailer| trailer != 0) {
            return None;
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        match before {
            Some(0) => encode_into(&mut first, &user_key, 0, ValueKind::Deletion),
            _ => encode_into(&mut first, &user_key, MAX_SEQ, ValueKind::Seek),
        }
        // The separator of a partition equals that of its last row.
        match rows {
            Some(rows) if self.row + 1 < rows => {
                self.index.shape.separator(&self.index.block, self.row, &mut user_key)
            }
            _ => stream.separator(p, &mut user_key),
        };
        encode_into(&mut last, &user_key, 0, ValueKind::Deletion);
        key::compare(&first, &last).is_lt().then_some(Gap { first, last })
    }
}
