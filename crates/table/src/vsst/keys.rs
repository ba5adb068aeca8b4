//! A cursor over the dense partitions: every key with its lengths, in key order, without the
//! values.
//!
//! Garbage collection reads the partitions once from start to end, so the cursor bypasses the
//! cache, and reads runs of [`WINDOW_LEN`] bytes.

use super::dense::DenseCursor;
use super::reader::Vsst;
use super::record::RECORD_LEN_MAX;
use crate::file::{BlockKind, ReadWindow};
use crate::frame::BlockHandle;
use crate::index::IndexShape;
use crate::options::ReadCounters;
use base::{Error, Result, SeqNo};
use cache::Block;
use std::sync::Arc;

/// Length of a read, in bytes.
const WINDOW_LEN: u64 = 512 << 10;

/// A record according to the dense partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry<'a> {
    /// User key.
    pub user_key: &'a [u8],
    /// Sequence.
    pub seq: SeqNo,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the record, in bytes.
    pub stored_len: u64,
    /// Offset of the record.
    pub offset: u64,
}

/// Returns the place of a partition, from the index of partitions.
pub(crate) fn partition_handle(shape: &IndexShape<2>, block: &[u8], partition: usize) -> BlockHandle {
    BlockHandle { offset: shape.column(block, 0, partition), len: shape.column(block, 1, partition) }
}

/// A cursor over all keys of a vSST. It reads in large runs, past the cache.
#[derive(Debug)]
pub struct VsstKeys {
    vsst: Arc<Vsst>,
    index: Block,
    shape: IndexShape<2>,
    /// Index of the partition to load next.
    partition: usize,
    cursor: DenseCursor,
    valid: bool,
    window: ReadWindow,
    counters: ReadCounters,
    /// True if a partition could not be loaded.
    is_stuck: bool,
    /// True if keys were skipped, so that records are missing before the next.
    is_torn: bool,
}

impl VsstKeys {
    pub(crate) fn new(vsst: Arc<Vsst>) -> Result<VsstKeys> {
        let mut keys = VsstKeys::before_first(vsst)?;
        keys.next()?;
        Ok(keys)
    }

    /// Returns a cursor before the first key.
    pub(crate) fn before_first(vsst: Arc<Vsst>) -> Result<VsstKeys> {
        let mut counters = ReadCounters::default();
        let (index, shape) = vsst.dense_index.read(&vsst.file, &mut counters)?;
        Ok(VsstKeys {
            vsst,
            index,
            shape,
            partition: 0,
            cursor: DenseCursor::default(),
            valid: false,
            window: ReadWindow::default(),
            counters,
            is_stuck: false,
            is_torn: false,
        })
    }

    /// Moves to the next partition after an error, and skips the remaining keys of the current one.
    ///
    /// # Errors
    /// The errors of [`VsstKeys::next`].
    pub(crate) fn pass(&mut self) -> Result<()> {
        self.partition += usize::from(std::mem::take(&mut self.is_stuck));
        (self.cursor, self.is_torn) = (DenseCursor::default(), true);
        self.next()
    }

    /// Returns true while the cursor is on a key. A new cursor is on the first.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Moves to the next key; not valid after the last, nor after an error.
    ///
    /// # Errors
    /// `Corruption` if a partition is damaged, and the errors of the file.
    #[allow(clippy::should_implement_trait, reason = "a cursor, as InternalIterator is")]
    pub fn next(&mut self) -> Result<()> {
        self.valid = false;
        loop {
            if self.advance()? {
                self.check_place()?;
                self.valid = true;
                return Ok(());
            }
            if self.partition == self.shape.rows() {
                return Ok(());
            }
            self.is_stuck = true;
            self.load()?;
            self.is_stuck = false;
        }
    }

    fn advance(&mut self) -> Result<bool> {
        let Some(last) = self.partition.checked_sub(1) else { return Ok(false) };
        let advanced = self.cursor.advance();
        advanced.map_err(|e| self.vsst.file.locate(e, self.handle(last).offset))
    }

    fn load(&mut self) -> Result<()> {
        let handle = self.handle(self.partition);
        let last = self.handle(self.shape.rows().saturating_sub(1));
        let here = |e| self.vsst.file.locate(e, handle.offset);
        let span = || {
            let limit = handle.offset.saturating_add(WINDOW_LEN);
            (handle.offset, last.end().min(limit))
        };
        let block = self.window.block(&self.vsst.file, handle, BlockKind::Dense, &mut self.counters, span)?;
        let expected = self.cursor.next_offset_units();
        self.cursor.load(block).map_err(here)?;
        let is_torn = std::mem::take(&mut self.is_torn);
        if self.cursor.next_offset_units() != expected && !is_torn && !self.vsst.properties.segment {
            let alignment = u64::from(self.vsst.alignment());
            return Err(here(Error::corruption(format!(
                "a block of the key list (dense keys) does not begin with the record after the block \
                 before it: at byte {} instead of {}",
                self.cursor.next_offset_units().saturating_mul(alignment),
                expected.saturating_mul(alignment)
            ))));
        }
        self.partition += 1;
        Ok(())
    }

    /// Checks that the record lies among the records, and is at most as long as a record can be:
    /// readers allocate by this length.
    fn check_place(&self) -> Result<()> {
        let here = |e| self.vsst.file.locate(e, self.handle(self.partition.saturating_sub(1)).offset);
        let len = self.cursor.row.units.saturating_mul(u64::from(self.vsst.alignment()));
        if len > RECORD_LEN_MAX as u64 {
            return Err(here(Error::corruption(format!(
                "the key list (dense keys) has a record of {len} bytes, over the limit of {RECORD_LEN_MAX} \
                 bytes"
            ))));
        }
        let end = self.cursor.next_offset_units().checked_mul(u64::from(self.vsst.alignment()));
        if end.is_some_and(|end| end <= self.vsst.properties.record_bytes) {
            return Ok(());
        }
        Err(here(Error::corruption(format!(
            "the key list (dense keys) leads to byte {}, past the end of the last record at byte {}",
            end.unwrap_or(u64::MAX),
            self.vsst.properties.record_bytes
        ))))
    }

    fn handle(&self, partition: usize) -> BlockHandle {
        partition_handle(&self.shape, &self.index, partition)
    }

    /// Returns the current key.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn entry(&self) -> KeyEntry<'_> {
        assert!(self.valid, "the cursor stands on no key");
        let alignment = u64::from(self.vsst.alignment());
        let row = self.cursor.row;
        KeyEntry {
            user_key: &self.cursor.user_key,
            seq: row.seq,
            raw_len: row.raw_len,
            stored_len: row.units * alignment,
            offset: row.offset_units * alignment,
        }
    }

    /// Returns the handles of the partitions, for verification and listings.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = BlockHandle> + '_ {
        (0..self.shape.rows()).map(|p| self.handle(p))
    }

    /// Returns the separator after a partition: the user key in `out`, and the trailer.
    pub(crate) fn separator(&self, partition: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(&self.index, partition, out)
    }

    /// Returns the index of the current partition.
    pub(crate) fn partition(&self) -> usize {
        self.partition.saturating_sub(1)
    }

    /// Returns the counters of the reads so far.
    pub fn counters(&self) -> &ReadCounters {
        &self.counters
    }
}
