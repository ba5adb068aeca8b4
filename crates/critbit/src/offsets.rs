//! Offsets of the records of a block, in units of the file's alignment.
//!
//! ```text
//! head: u8   bits 0-6: count - 1; bit 7: which of the two that follow
//!
//! 0: line         base: zigzag varint, stride: varint, width: u8, count numbers of width bits
//!                 offset i = base + (stride * i >> 8) + number i
//! 1: Elias-Fano   base: varint, width: u8, upper length: u8, count low parts of width bits, upper bytes
//!                 offset i = base + (high i << width | low i), where high i is the place of the i-th 1 of the upper
//!                 bytes - i (bits of a byte: least significant first)
//! ```
//!
//! Numbers of `width` bits (0 to 56, or 64) are packed, the least significant bit first. Sums wrap
//! around.
//!
//! Records in key order have ascending offsets: Elias-Fano takes 2 + log2(mean record length in
//! units) bits for each, for any lengths (Elias 1974, Fano 1971). Records of similar length are
//! close to a line, and those of one length are on it and cost nothing: the shorter of the two
//! encodings is used. The stride is in 1/256 of a unit, so rounding moves a record by less than one
//! unit over a whole block. Offsets in any order are a line of stride 0.

use crate::block::BLOCK_KEYS_MAX;
use crate::pack;
use base::codec::{Reader, put_varint, varint_len};
use base::{Error, Result};

const ELIAS_FANO: u8 = 0x80;
/// Fraction bits of the stride.
const STRIDE_SHIFT: u32 = 8;
/// Strides are below this, so that no product with an ordinal overflows.
const STRIDE_END: u64 = 1 << 56;
/// The widest low part: it fits in eight bytes.
const LOW_WIDTH_MAX: u32 = 56;

/// Appends offsets that ascend (equal neighbors are allowed).
///
/// # Panics
/// If there are none, more than [`BLOCK_KEYS_MAX`], or they do not ascend.
pub fn encode_ascending(values: &[u64], out: &mut Vec<u8>) {
    assert!(values.is_sorted(), "offsets ascend");
    let head = head(values);
    let stairs = EliasFano::of(values);
    let (first, last) = (values[0], values[values.len() - 1]);
    let steps = (values.len() - 1).max(1) as u128;
    let stride = (u128::from(last - first) << STRIDE_SHIFT).div_ceil(steps);
    let line = u64::try_from(stride).ok().filter(|&s| s < STRIDE_END).and_then(|s| Line::of(values, s));
    match line {
        Some(line) if line.encoded_len(values.len()) <= stairs.encoded_len(values.len()) => {
            out.push(head);
            line.put(values, out);
        }
        _ => {
            out.push(head | ELIAS_FANO);
            stairs.put(values, out);
        }
    }
}

/// Appends offsets in any order.
///
/// # Panics
/// If there are none, or more than [`BLOCK_KEYS_MAX`].
pub fn encode_any(values: &[u64], out: &mut Vec<u8>) {
    out.push(head(values));
    let line = Line::of(values, 0).expect("without a slope no distance overflows");
    line.put(values, out);
}

fn head(values: &[u64]) -> u8 {
    assert!((1..=BLOCK_KEYS_MAX).contains(&values.len()), "1 to {BLOCK_KEYS_MAX} offsets");
    (values.len() - 1) as u8
}

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!("record offsets in the index of a value file: {what}"))
}

fn zigzag(v: u64) -> u64 {
    let v = v as i64;
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> u64 {
    (v >> 1) ^ (v & 1).wrapping_neg()
}

/// Offsets as distances above a line.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// A negative base wraps around.
    base: u64,
    stride: u64,
    width: u32,
}

impl Line {
    /// Returns the highest line of this slope below all values; `None` if the distances do not fit
    /// in 64 bits.
    fn of(values: &[u64], stride: u64) -> Option<Line> {
        let above = |(i, &v): (usize, &u64)| i128::from(v) - i128::from(rise(stride, i));
        let distances = || values.iter().enumerate().map(above);
        let (low, high) = (distances().min()?, distances().max()?);
        let width = pack::width_of(u64::try_from(high - low).ok()?);
        Some(Line { base: low as u64, stride, width })
    }

    fn encoded_len(&self, count: usize) -> usize {
        varint_len(zigzag(self.base)) + varint_len(self.stride) + 1 + pack::len(count, self.width)
    }

    fn put(&self, values: &[u64], out: &mut Vec<u8>) {
        put_varint(out, zigzag(self.base));
        put_varint(out, self.stride);
        out.push(self.width as u8);
        let above = |(i, &v): (usize, &u64)| v.wrapping_sub(self.at(i));
        pack::put(out, self.width, values.iter().enumerate().map(above));
    }

    /// Returns the value of the line at `i`.
    fn at(&self, i: usize) -> u64 {
        self.base.wrapping_add(rise(self.stride, i))
    }
}

fn rise(stride: u64, i: usize) -> u64 {
    stride.wrapping_mul(i as u64) >> STRIDE_SHIFT
}

/// Offsets as low parts, and the unary-coded high parts.
#[derive(Clone, Copy, Debug)]
struct EliasFano {
    base: u64,
    width: u32,
    upper_len: usize,
}

impl EliasFano {
    /// Encodes ascending values.
    fn of(values: &[u64]) -> EliasFano {
        let (base, last) = (values[0], values[values.len() - 1]);
        let span = last - base;
        let width = (span / values.len() as u64).checked_ilog2().unwrap_or(0).min(LOW_WIDTH_MAX);
        let upper_len = (values.len() + (span >> width) as usize).div_ceil(8);
        EliasFano { base, width, upper_len }
    }

    fn encoded_len(&self, count: usize) -> usize {
        varint_len(self.base) + 2 + pack::len(count, self.width) + self.upper_len
    }

    fn put(&self, values: &[u64], out: &mut Vec<u8>) {
        put_varint(out, self.base);
        out.push(self.width as u8);
        out.push(u8::try_from(self.upper_len).expect("two bits for each offset, or 256 and one for each"));
        let mask = (1 << self.width) - 1;
        pack::put(out, self.width, values.iter().map(|v| (v - self.base) & mask));
        let start = out.len();
        out.resize(start + self.upper_len, 0);
        for (i, v) in values.iter().enumerate() {
            let at = ((v - self.base) >> self.width) as usize + i;
            out[start + at / 8] |= 1 << (at % 8);
        }
    }
}

/// Decoded offsets, accessed by ordinal.
#[derive(Clone, Copy, Debug)]
pub struct Offsets<'a> {
    count: usize,
    encoded_len: usize,
    packed: &'a [u8],
    shape: Shape<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Shape<'a> {
    Line(Line),
    EliasFano { base: u64, width: u32, upper: &'a [u8] },
}

impl<'a> Offsets<'a> {
    /// Decodes the offsets at the start of `bytes`; their end is at [`Offsets::encoded_len`].
    ///
    /// # Errors
    /// `Corruption` if they are malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Offsets<'a>> {
        let mut reader = Reader::new(bytes);
        let head = reader.u8()?;
        let count = usize::from(head & !ELIAS_FANO) + 1;
        let (packed, shape) = if head & ELIAS_FANO == 0 {
            let (base, stride) = (unzigzag(reader.varint()?), reader.varint()?);
            let width = u32::from(reader.u8()?);
            if !pack::is_width(width) || stride >= STRIDE_END {
                return Err(bad(&format!(
                    "{width} bits per offset, or a stride of {stride}, is not possible"
                )));
            }
            (reader.take(pack::len(count, width))?, Shape::Line(Line { base, stride, width }))
        } else {
            let base = reader.varint()?;
            let (width, upper_len) = (u32::from(reader.u8()?), usize::from(reader.u8()?));
            if width > LOW_WIDTH_MAX {
                return Err(bad(&format!(
                    "low parts of {width} bits exceed the limit of {LOW_WIDTH_MAX} bits"
                )));
            }
            let packed = reader.take(pack::len(count, width))?;
            let upper = reader.take(upper_len)?;
            if upper.iter().map(|b| b.count_ones() as usize).sum::<usize>() != count {
                return Err(bad("the number of high parts differs from the number of offsets"));
            }
            (packed, Shape::EliasFano { base, width, upper })
        };
        let encoded_len = bytes.len().saturating_sub(reader.rest().len());
        Ok(Offsets { count, encoded_len, packed, shape })
    }

    /// Returns their number, at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    /// Returns offset `i`.
    pub fn get(&self, i: usize) -> Option<u64> {
        if i >= self.count {
            return None;
        }
        match &self.shape {
            Shape::Line(line) => Some(line.at(i).wrapping_add(pack::get(self.packed, line.width, i))),
            Shape::EliasFano { base, width, upper } => {
                let high = select(upper, i)?.checked_sub(i)? as u64;
                Some(base.wrapping_add(high << width | pack::get(self.packed, *width, i)))
            }
        }
    }
}

/// Returns the place of the `i`-th 1, counted from 0.
fn select(bits: &[u8], mut i: usize) -> Option<usize> {
    for at in (0..bits.len()).step_by(8) {
        let mut word = pack::word_at(bits, at);
        let ones = word.count_ones() as usize;
        if i < ones {
            for _ in 0..i {
                word &= word - 1;
            }
            return Some(8 * at + word.trailing_zeros() as usize);
        }
        i -= ones;
    }
    None
}

#[cfg(test)]
mod tests;
