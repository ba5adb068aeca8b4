//! Columns of integers, bit-packed against their minimum.
//!
//! A column is `base: varint, width: u8, bits`: value `i` is `base` plus the `width` bits that
//! start at bit `i * width` (least significant bit first). Columns of equal values cost no bits at
//! all, so a reference to a value costs one or two bytes. Every value is reached in constant time,
//! so a binary search needs no decoding pass. Widths over 56 are rounded up to 64, so that a value
//! never spans more than eight bytes. (Frame of reference coding: Goldstein, Ramakrishnan and
//! Shaft, ICDE 1998.)

use base::codec::{Reader, put_varint};
use base::{Error, Result};

/// Returns the bits needed for values up to `span` above the base.
fn width_of(span: u64) -> u32 {
    match 64 - span.leading_zeros() {
        w @ 0..=56 => w,
        _ => 64,
    }
}

/// Smallest and largest value of a growing column, to estimate its packed size.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    low: u64,
    high: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { low: u64::MAX, high: 0 }
    }
}

impl Bounds {
    /// Adds a value. Returns true if the bounds changed.
    #[inline]
    pub fn add(&mut self, value: u64) -> bool {
        let moved = value < self.low || value > self.high;
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        moved
    }

    /// Returns the bounds of these values.
    pub fn of(values: impl Iterator<Item = u64>) -> Self {
        let mut bounds = Bounds::default();
        values.for_each(|v| {
            bounds.add(v);
        });
        bounds
    }

    /// Returns the bounds 0 and `high`.
    pub fn up_to(high: u64) -> Self {
        Bounds { low: 0, high }
    }

    /// Returns the largest value; 0 without one.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Returns the number of bits of a value.
    #[inline]
    pub fn width(&self) -> usize {
        width_of(self.high.saturating_sub(self.low)) as usize
    }
}

/// Appends the packed form of `values`.
pub fn encode(out: &mut Vec<u8>, values: impl Iterator<Item = u64> + Clone) {
    encode_within(out, Bounds::of(values.clone()), values);
}

/// [`encode`] for values with these bounds.
pub fn encode_within(out: &mut Vec<u8>, bounds: Bounds, values: impl Iterator<Item = u64>) {
    let base = if bounds.low > bounds.high { 0 } else { bounds.low };
    let width = width_of(bounds.high.saturating_sub(bounds.low));
    put_varint(out, base);
    out.push(width as u8);
    if width == 0 {
        return;
    }
    let (mut word, mut filled) = (0u64, 0);
    for v in values {
        debug_assert!(v >= bounds.low && v <= bounds.high, "{v} is not within its bounds");
        let v = v - base;
        word |= v << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= 64;
            // The remaining bits: `width - filled` bits were written, which may be all.
            word = v.checked_shr(width - filled).unwrap_or(0);
        }
    }
    let rest = word.to_le_bytes();
    out.extend_from_slice(&rest[..filled.div_ceil(8) as usize]);
}

/// Place of a packed column in its block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packed {
    base: u64,
    width: u32,
    at: usize,
}

impl Packed {
    /// Reads the head of a column of `count` values. `reader` must read the end of `block`, and
    /// stands after the column on return.
    ///
    /// # Errors
    /// `Corruption` if the column does not fit.
    pub fn parse(block: &[u8], reader: &mut Reader<'_>, count: usize) -> Result<Packed> {
        let base = reader.varint()?;
        let width = u32::from(reader.u8()?);
        if width > 56 && width != 64 {
            return Err(Error::corruption(format!(
                "a column of numbers in a block of the file has {width} bits per number, not 0 to 56 or 64"
            )));
        }
        let at = block.len().saturating_sub(reader.rest().len());
        let bits = count.checked_mul(width as usize);
        let too_long = || {
            Error::corruption(format!(
                "a block has a column of {count} numbers of {width} bits, longer than any block"
            ))
        };
        let len = bits.ok_or_else(too_long)?.div_ceil(8);
        reader.take(len)?;
        Ok(Packed { base, width, at })
    }

    /// Returns value `i`; an arbitrary number, but never a panic, if `i` is not below the count of
    /// the column.
    #[inline(always)]
    pub fn get(&self, block: &[u8], i: usize) -> u64 {
        if self.width == 0 {
            return self.base;
        }
        let bit = i.wrapping_mul(self.width as usize);
        let at = self.at.wrapping_add(bit / 8);
        let word = match block.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => word_at_end(block, at),
        };
        let value = (word >> (bit % 8)) & (u64::MAX >> (64 - self.width));
        self.base.wrapping_add(value)
    }
}

#[cold]
fn word_at_end(block: &[u8], at: usize) -> u64 {
    let rest = block.get(at..).unwrap_or_default();
    rest.iter().take(8).rev().fold(0, |word, &b| word << 8 | u64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[u64]) {
        let mut block = vec![0xaa; 3];
        encode(&mut block, values.iter().copied());
        let end = block.len();
        for pad in [0usize, 1, 20] {
            block.resize(end + pad, 0xff);
            let mut reader = Reader::new(&block[3..]);
            let column = Packed::parse(&block, &mut reader, values.len()).unwrap();
            assert_eq!(reader.rest().len(), pad);
            for (i, &v) in values.iter().enumerate() {
                assert_eq!(column.get(&block, i), v, "{i} of {values:?}");
            }
        }
    }

    #[test]
    fn every_width_round_trips() {
        let mut rng = io::Rng::new(1);
        round_trip(&[]);
        for width in 0..=64u32 {
            let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
            let values: Vec<u64> = (0..37).map(|_| rng.next_u64() & mask).collect();
            round_trip(&values);
            let base = rng.next_u64() & !mask;
            let shifted: Vec<u64> = values.iter().map(|v| v | base).collect();
            round_trip(&shifted);
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut rng = io::Rng::new(2);
        for _ in 0..20_000 {
            let mut block = vec![0; rng.below(24) as usize];
            rng.fill(&mut block);
            let count = if rng.one_in(4) { rng.next_u64() as usize } else { rng.below(40) as usize };
            if let Ok(column) = Packed::parse(&block, &mut Reader::new(&block), count) {
                column.get(&block, count.wrapping_sub(1));
                column.get(&block, usize::MAX);
            }
        }
    }
}
