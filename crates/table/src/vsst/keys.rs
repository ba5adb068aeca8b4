//! A cursor over the dense partitions: every key with its lengths, in key order, without the values.
//!
//! Garbage collection reads it once through, so it goes past the cache, in runs of [`WINDOW_LEN`] bytes.

use super::dense::DenseCursor;
use super::reader::Vsst;
use super::record::RECORD_LEN_MAX;
use crate::file::{Role, Window};
use crate::frame::BlockHandle;
use crate::index::IndexShape;
use crate::options::ReadCounters;
use base::{Error, Result, SeqNo};
use cache::Block;
use std::sync::Arc;

/// Bytes read at once.
const WINDOW_LEN: u64 = 512 << 10;

/// What the dense partitions say of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence.
    pub seq: SeqNo,
    /// Bytes of the value.
    pub raw_len: u64,
    /// Bytes of the record.
    pub stored_len: u64,
    /// Where the record begins.
    pub offset: u64,
}

/// Where a partition lies, by the index of partitions.
pub(crate) fn partition_handle(shape: &IndexShape<2>, block: &[u8], partition: usize) -> BlockHandle {
    BlockHandle { offset: shape.column(block, 0, partition), len: shape.column(block, 1, partition) }
}

/// A cursor over all keys of a vSST. It reads in large runs, past the cache.
#[derive(Debug)]
pub struct VsstKeys {
    vsst: Arc<Vsst>,
    index: Block,
    shape: IndexShape<2>,
    /// The partition to load next.
    partition: usize,
    cursor: DenseCursor,
    valid: bool,
    window: Window,
    counters: ReadCounters,
    /// A partition could not be loaded.
    is_stuck: bool,
    /// Keys were passed over, so that records are missing before the next.
    is_torn: bool,
}

impl VsstKeys {
    pub(crate) fn new(vsst: Arc<Vsst>) -> Result<VsstKeys> {
        let mut keys = VsstKeys::before_first(vsst)?;
        keys.next()?;
        Ok(keys)
    }

    /// A cursor that stands before the first key.
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
            window: Window::default(),
            counters,
            is_stuck: false,
            is_torn: false,
        })
    }

    /// After an error: goes to the next partition, without the keys that are left in the present one.
    ///
    /// # Errors
    /// Those of [`VsstKeys::next`].
    pub(crate) fn pass(&mut self) -> Result<()> {
        self.partition += usize::from(std::mem::take(&mut self.is_stuck));
        (self.cursor, self.is_torn) = (DenseCursor::default(), true);
        self.next()
    }

    /// True while it stands on a key. A new cursor stands on the first.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Moves to the next key; not valid after the last, nor after an error.
    ///
    /// # Errors
    /// `Corruption` if a partition is damaged, and what the file reports.
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
        let block = self.window.block(&self.vsst.file, handle, Role::Dense, &mut self.counters, span)?;
        let expected = self.cursor.next_offset_units();
        self.cursor.load(block).map_err(here)?;
        let is_torn = std::mem::take(&mut self.is_torn);
        if self.cursor.next_offset_units() != expected && !is_torn && !self.vsst.properties.segment {
            return Err(here(Error::corruption(
                "a dense partition that does not go on where the last ended",
            )));
        }
        self.partition += 1;
        Ok(())
    }

    /// The record must lie among the records, and be no longer than any can be: its length sizes what it is read into.
    fn check_place(&self) -> Result<()> {
        let here = |e| self.vsst.file.locate(e, self.handle(self.partition.saturating_sub(1)).offset);
        let len = self.cursor.row.units.saturating_mul(u64::from(self.vsst.alignment()));
        if len > RECORD_LEN_MAX as u64 {
            return Err(here(Error::corruption(format!("a record of {len} bytes, which cannot be"))));
        }
        let end = self.cursor.next_offset_units().checked_mul(u64::from(self.vsst.alignment()));
        if end.is_some_and(|end| end <= self.vsst.properties.record_bytes) {
            return Ok(());
        }
        Err(here(Error::corruption("a dense key whose record lies behind the last")))
    }

    fn handle(&self, partition: usize) -> BlockHandle {
        partition_handle(&self.shape, &self.index, partition)
    }

    /// The key it stands on.
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

    /// The partitions' handles and the separators behind them, for verification and listings.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = BlockHandle> + '_ {
        (0..self.shape.rows()).map(|p| self.handle(p))
    }

    /// The separator behind a partition, in `out`, and its trailer.
    pub(crate) fn separator(&self, partition: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(&self.index, partition, out)
    }

    /// The partition it stands in.
    pub(crate) fn partition(&self) -> usize {
        self.partition.saturating_sub(1)
    }

    /// What it has read so far.
    pub fn counters(&self) -> &ReadCounters {
        &self.counters
    }
}
