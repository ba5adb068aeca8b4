//! Dense partitions: keys and lengths of consecutive records, row by row.
//!
//! ```text
//! flags: u8 (0x01: rows carry offsets), rows: varint, offset of the first record: varint
//! row: shared: varint, suffix length: varint, sequence: zigzag varint, raw length: zigzag varint,
//!      stored length: zigzag varint, [offset: varint], suffix
//! ```
//!
//! A key shares its first bytes with the one before it. The three numbers are differences to the
//! previous row (to 0 in the first). Stored lengths and offsets are in units of the file's
//! alignment. In a sorted file the records are contiguous in key order, so offsets follow from
//! stored lengths. Rows of a value log file, whose records are in another order, store them.

use super::record::RECORD_LEN_MAX;
use crate::prefix::{unzigzag, varint_at, zigzag};
use base::codec::{Reader, put_varint};
use base::{Error, MAX_SEQ, Result, SeqNo, limits};
use cache::Block;

/// Size at which a partition is cut, in bytes.
pub(crate) const PARTITION_LEN: usize = 48 << 10;

const HAS_OFFSETS: u8 = 0x01;

/// One row without its key; offsets and lengths are in units of the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DenseRow {
    pub(crate) seq: SeqNo,
    pub(crate) raw_len: u64,
    pub(crate) units: u64,
    pub(crate) offset_units: u64,
}

/// Builds one partition after another.
#[derive(Debug, Default)]
pub(crate) struct DenseBuilder {
    rows: Vec<u8>,
    count: u64,
    first_offset_units: u64,
    last: DenseRow,
    /// True if rows store the offsets of their records.
    pub(crate) with_offsets: bool,
}

fn step(now: u64, before: u64) -> u64 {
    zigzag(now.wrapping_sub(before) as i64)
}

impl DenseBuilder {
    /// Appends a row; `shared` is the length of the prefix that its key shares with the last key of
    /// the file.
    pub(crate) fn push(&mut self, user_key: &[u8], shared: usize, row: DenseRow) {
        let shared = if self.count == 0 { 0 } else { shared };
        if self.count == 0 {
            self.first_offset_units = row.offset_units;
            self.last = DenseRow::default();
        }
        let out = &mut self.rows;
        put_varint(out, shared as u64);
        put_varint(out, (user_key.len() - shared) as u64);
        put_varint(out, step(row.seq, self.last.seq));
        put_varint(out, step(row.raw_len, self.last.raw_len));
        put_varint(out, step(row.units, self.last.units));
        if self.with_offsets {
            put_varint(out, row.offset_units);
        }
        out.extend_from_slice(&user_key[shared..]);
        self.last = row;
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the encoded partition, and starts a new one.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.len() + 12);
        out.push(if self.with_offsets { HAS_OFFSETS } else { 0 });
        put_varint(&mut out, self.count);
        put_varint(&mut out, self.first_offset_units);
        out.append(&mut self.rows);
        self.count = 0;
        out
    }
}

/// A position in a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct DenseCursor {
    block: Block,
    at: usize,
    rows_left: usize,
    with_offsets: bool,
    pub(crate) user_key: Vec<u8>,
    pub(crate) row: DenseRow,
}

impl DenseCursor {
    /// Takes over a partition; the cursor is before its first row.
    pub(crate) fn load(&mut self, block: Block) -> Result<()> {
        let mut reader = Reader::new(&block);
        let flags = reader.u8()?;
        if flags & !HAS_OFFSETS != 0 {
            let why = format!("a block of the key list (dense keys) has the unknown flags {flags:#x}");
            return Err(Error::corruption(why));
        }
        // A row has at least five bytes: an older version of a key has no suffix, and neither has
        // the empty key.
        self.rows_left = reader.length(block.len() / 5)?;
        let offset_units = reader.varint()?;
        self.with_offsets = flags & HAS_OFFSETS != 0;
        self.at = block.len() - reader.rest().len();
        self.block = block;
        self.user_key.clear();
        self.row = DenseRow { offset_units, ..DenseRow::default() };
        Ok(())
    }

    /// Returns the offset of the next record, if its row does not store one.
    pub(crate) fn next_offset_units(&self) -> u64 {
        self.row.offset_units.saturating_add(self.row.units)
    }

    /// Moves to the next row. Returns false after the last.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.rows_left == 0 {
            if self.at != self.block.len() {
                let surplus = self.block.len().saturating_sub(self.at);
                let why =
                    format!("a block of the key list (dense keys) has {surplus} surplus bytes at its end");
                return Err(Error::corruption(why));
            }
            return Ok(false);
        }
        self.rows_left -= 1;
        match self.decode() {
            Some(()) => Ok(true),
            None => {
                self.rows_left = 0;
                Err(Error::corruption(
                    "an entry in a block of the key list (dense keys) is cut off, or has a length or \
                     sequence over its limit",
                ))
            }
        }
    }

    #[inline]
    fn decode(&mut self) -> Option<()> {
        let (block, at) = (&self.block[..], &mut self.at);
        let shared = usize::try_from(varint_at(block, at)?).ok()?;
        let suffix_len = usize::try_from(varint_at(block, at)?).ok()?;
        let mut add = |to: u64| Some(to.wrapping_add(unzigzag(varint_at(block, at)?) as u64));
        let seq = add(self.row.seq)?;
        let raw_len = add(self.row.raw_len)?;
        let units = add(self.row.units)?;
        let offset_units = match self.with_offsets {
            true => varint_at(block, at)?,
            false => self.row.offset_units.checked_add(self.row.units)?,
        };
        let end = at.checked_add(suffix_len)?;
        let suffix = block.get(*at..end)?;
        *at = end;
        let key_len = shared.checked_add(suffix_len)?;
        let sound = shared <= self.user_key.len()
            && key_len <= limits::KEY_LEN_MAX
            && seq <= MAX_SEQ
            && raw_len <= limits::VALUE_LEN_MAX as u64
            && (1..=RECORD_LEN_MAX as u64).contains(&units);
        if !sound {
            return None;
        }
        self.user_key.truncate(shared);
        self.user_key.extend_from_slice(suffix);
        self.row = DenseRow { seq, raw_len, units, offset_units };
        Some(())
    }
}

#[cfg(test)]
mod tests;
