//! Index blocks: separators between blocks, with a few columns of numbers for each.
//!
//! The index of a stream has two levels. A *partition* has a row for each data block, with its
//! offset and length. The *top* has a row for each partition, with the places of its index block,
//! its filter and its data. A partition is small enough to be cached by itself; the top stays in
//! memory while the table is open.
//!
//! ```text
//! rows: varint, flags: u8 (0x01: trailers), prefix length: varint, prefix shared by all separators,
//! ends of the suffixes (packed), columns (packed) ..., [trailers: u64 each], suffixes
//! ```
//!
//! Row `i` covers the keys after separator `i-1`, up to and including separator `i`. A separator is
//! an internal key. Between two user keys it is a shortened user key with trailer 0, which sorts
//! after every real entry of it. Inside one user key it is the last internal key before the cut. So
//! the first entry at or after a target, if it has the target's user key, is always in the first
//! row whose separator is not before the target. A point lookup therefore reads one block and never
//! its neighbor. There is no prefix compression within the suffixes: a search bisects them in
//! place.

use crate::cursor::before;
use crate::packed::{self, Packed};
use crate::prefix::shared_len;
use base::codec::{Reader, put_u64, put_varint};
use base::{Error, Result};

const HAS_TRAILERS: u8 = 0x01;

/// Ordered separators in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Separators {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    trailers: Vec<u64>,
}

impl Separators {
    /// Returns the number of separators.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no separators.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends a separator, whose user key `write` appends to the buffer.
    pub fn push_with(&mut self, trailer: u64, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.trailers.push(trailer);
    }

    /// Returns the user key and trailer of separator `i`.
    ///
    /// # Panics
    /// If the separator does not exist.
    pub fn get(&self, i: usize) -> (&[u8], u64) {
        let start = i.checked_sub(1).map_or(0, |i| self.ends[i]);
        (&self.bytes[start..self.ends[i]], self.trailers[i])
    }
}

/// Appends an index block over the separators `rows`. Each of `columns` must have a value for each
/// of these rows.
pub fn encode(out: &mut Vec<u8>, separators: &Separators, rows: std::ops::Range<usize>, columns: &[&[u64]]) {
    assert!(columns.iter().all(|c| c.len() == rows.len()), "a column of a wrong length");
    let (first, last) = match rows.clone().next().zip(rows.clone().next_back()) {
        Some((first, last)) => (separators.get(first).0, separators.get(last).0),
        None => (&[][..], &[][..]),
    };
    let prefix_len = shared_len(first, last);
    let has_trailers = rows.clone().any(|i| separators.get(i).1 != 0);
    put_varint(out, rows.len() as u64);
    out.push(if has_trailers { HAS_TRAILERS } else { 0 });
    put_varint(out, prefix_len as u64);
    out.extend_from_slice(&first[..prefix_len]);
    let ends = rows.clone().scan(0, |end, i| {
        *end += (separators.get(i).0.len() - prefix_len) as u64;
        Some(*end)
    });
    packed::encode(out, ends);
    columns.iter().for_each(|c| packed::encode(out, c.iter().copied()));
    if has_trailers {
        rows.clone().for_each(|i| put_u64(out, separators.get(i).1));
    }
    rows.for_each(|i| out.extend_from_slice(&separators.get(i).0[prefix_len..]));
}

/// Offsets of the parts of an index block with `N` columns.
#[derive(Clone, Copy, Debug)]
pub struct IndexShape<const N: usize> {
    rows: usize,
    prefix: usize,
    prefix_end: usize,
    ends: Packed,
    columns: [Packed; N],
    trailers: Option<usize>,
    suffixes: usize,
}

impl<const N: usize> Default for IndexShape<N> {
    fn default() -> Self {
        IndexShape {
            rows: 0,
            prefix: 0,
            prefix_end: 0,
            ends: Packed::default(),
            columns: [Packed::default(); N],
            trailers: None,
            suffixes: 0,
        }
    }
}

impl<const N: usize> IndexShape<N> {
    /// Reads the head of the index block that starts at `start` of `block`.
    ///
    /// # Errors
    /// `Corruption` if the head does not fit the layout.
    pub fn parse(block: &[u8], start: usize) -> Result<Self> {
        let at = |reader: &Reader<'_>| block.len().saturating_sub(reader.rest().len());
        let mut reader = Reader::new(block.get(start..).unwrap_or_default());
        // Separators and offsets of rows differ, so each row takes more than a byte; this bounds
        // all loops over rows.
        let rows = reader.length(block.len())?;
        let flags = reader.u8()?;
        if flags & !HAS_TRAILERS != 0 {
            return Err(Error::corruption(format!(
                "an index block of the file has the unknown flags {flags:#x}, so the keys below it are \
                 unreadable"
            )));
        }
        let prefix_len = reader.length(block.len())?;
        let prefix = at(&reader);
        reader.take(prefix_len)?;
        let prefix_end = at(&reader);
        let ends = Packed::parse(block, &mut reader, rows)?;
        let mut columns = [Packed::default(); N];
        for column in &mut columns {
            *column = Packed::parse(block, &mut reader, rows)?;
        }
        let trailers = at(&reader);
        if flags & HAS_TRAILERS != 0 {
            reader.take(rows.saturating_mul(8))?;
        }
        let trailers = (flags & HAS_TRAILERS != 0).then_some(trailers);
        Ok(IndexShape { rows, prefix, prefix_end, ends, columns, trailers, suffixes: at(&reader) })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number in a column of a row.
    #[inline]
    pub fn column(&self, block: &[u8], column: usize, row: usize) -> u64 {
        self.columns.get(column).map_or(0, |c| c.get(block, row))
    }

    #[inline(always)]
    fn suffix<'a>(&self, block: &'a [u8], row: usize) -> &'a [u8] {
        let start = if row == 0 { 0 } else { self.ends.get(block, row - 1) as usize };
        let end = self.ends.get(block, row) as usize;
        let (start, end) = (self.suffixes.wrapping_add(start), self.suffixes.wrapping_add(end));
        block.get(start..end).unwrap_or_default()
    }

    #[inline]
    fn trailer(&self, block: &[u8], row: usize) -> u64 {
        let Some(start) = self.trailers else { return 0 };
        let bytes = block.get(start + 8 * row..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    }

    fn prefix<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(self.prefix..self.prefix_end).unwrap_or_default()
    }

    /// Assembles the user key of a separator in `out`, and returns its trailer.
    pub fn separator(&self, block: &[u8], row: usize, out: &mut Vec<u8>) -> u64 {
        out.clear();
        out.extend_from_slice(self.prefix(block));
        out.extend_from_slice(self.suffix(block, row));
        self.trailer(block, row)
    }

    /// Returns the first row whose separator is not before the internal key; [`IndexShape::rows`]
    /// if there is none.
    pub fn search(&self, block: &[u8], user_key: &[u8], trailer: u64) -> usize {
        let prefix = self.prefix(block);
        let Some(rest) = user_key.strip_prefix(prefix) else {
            return if user_key < prefix { 0 } else { self.rows };
        };
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.suffix(block, middle), self.trailer(block, middle), rest, trailer) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests;
