//! Checksums that are bound to their place.
//!
//! A stored checksum is `checksum(payload) ^ mask(uid, offset)`: the low 32 bits of XXH3-64 of the
//! payload, combined with 32 bits that depend on the 128-bit uid of the file and the offset of the
//! payload in it. A block that is intact but stale, or that the device wrote to or read from the
//! wrong place, fails like a damaged one. Because the mask is combined by XOR, garbage collection
//! can verify a record and re-mask it for its new place without touching the payload again.

use crate::error::{Error, Result};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// 128 random bits that identify one file forever (file numbers are never reused, but files can be
/// swapped).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub [u8; 16]);

impl Uid {
    /// Returns a uid of two random words.
    pub fn from_words(a: u64, b: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&a.to_le_bytes());
        bytes[8..].copy_from_slice(&b.to_le_bytes());
        Uid(bytes)
    }

    fn words(self) -> (u64, u64) {
        let both = u128::from_le_bytes(self.0);
        (both as u64, (both >> 64) as u64)
    }
}

impl std::fmt::Debug for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Returns the checksum of a payload, not yet bound to a place.
pub fn checksum(payload: &[u8]) -> u32 {
    xxh3_64(payload) as u32
}

/// Returns the checksum of several pieces in a row, equal to [`checksum`] of their concatenation.
pub fn checksum_of(pieces: &[&[u8]]) -> u32 {
    let mut state = Xxh3Default::new();
    pieces.iter().for_each(|p| state.update(p));
    state.digest() as u32
}

/// Returns the mask of a place; XOR it with a [`checksum`] to get the stored form, and again to
/// revert.
pub fn mask(uid: Uid, offset: u64) -> u32 {
    let (a, b) = uid.words();
    mix(a ^ b.rotate_left(32) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u32
}

/// Spreads the bits of a number over all bits of the result: the last steps of SplitMix64 (Steele,
/// Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the checksum as stored for `payload` at `offset` of the file `uid`.
pub fn stored(payload: &[u8], uid: Uid, offset: u64) -> u32 {
    checksum(payload) ^ mask(uid, offset)
}

/// Checks a stored checksum.
///
/// # Errors
/// `Corruption` with the offset, if `payload` was not written at that place of that file.
pub fn verify(payload: &[u8], uid: Uid, offset: u64, stored: u32) -> Result<()> {
    if checksum(payload) ^ mask(uid, offset) == stored {
        Ok(())
    } else {
        Err(Error::corruption(format!(
            "checksum does not match: the {} bytes at this offset are damaged, stale or from another place",
            payload.len()
        ))
        .at_offset(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_bound_to_content_file_and_offset() {
        let uid = Uid::from_words(1, 2);
        let c = stored(b"payload", uid, 4096);
        assert!(verify(b"payload", uid, 4096, c).is_ok());
        assert!(verify(b"payloae", uid, 4096, c).is_err());
        assert!(verify(b"payload", uid, 8192, c).is_err());
        assert!(verify(b"payload", Uid::from_words(2, 1), 4096, c).is_err());
        let moved = c ^ mask(uid, 4096) ^ mask(uid, 8192);
        assert!(verify(b"payload", uid, 8192, moved).is_ok(), "re-masking needs no payload");
        assert_eq!(checksum(b"payload"), checksum_of(&[b"pay", b"", b"load"]));
    }
}
