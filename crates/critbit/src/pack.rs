//! Bit-packed numbers of equal width, the least significant bit first.

/// The widest number that fits in eight bytes at any bit offset; wider ones are stored in 64 bits.
const WIDTH_MAX: u32 = 56;

/// Returns the bits for numbers up to `max`: 0 to 56, or 64.
pub fn width_of(max: u64) -> u32 {
    match u64::BITS - max.leading_zeros() {
        width @ 0..=WIDTH_MAX => width,
        _ => 64,
    }
}

/// Returns whether [`width_of`] can return `width`.
pub fn is_width(width: u32) -> bool {
    width <= WIDTH_MAX || width == 64
}

/// Returns the bytes of `count` numbers of `width` bits.
pub fn len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends numbers below `2^width`; the bits that fill up the last byte are 0.
pub fn put(out: &mut Vec<u8>, width: u32, values: impl Iterator<Item = u64>) {
    let mut word: u128 = 0;
    let mut filled = 0;
    for v in values {
        debug_assert!(width == 64 || v >> width == 0);
        word |= u128::from(v) << filled;
        filled += width;
        while filled >= 8 {
            out.push(word as u8);
            word >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push(word as u8);
    }
}

/// Returns number `i`; bits behind the end of `bytes` are 0.
#[inline]
pub fn get(bytes: &[u8], width: u32, i: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let bit = i * width as usize;
    (word_at(bytes, bit / 8) >> (bit % 8)) & (u64::MAX >> (64 - width))
}

/// Returns the eight bytes from `at` on; bytes behind the end are 0.
#[inline]
pub fn word_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)),
    }
}
