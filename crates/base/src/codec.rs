//! Integers as bytes: little-endian fixed and LEB128 variable-length, and a bounds-checked
//! [`Reader`].
//!
//! All bytes from disk or network are parsed with [`Reader`]: it returns `Corruption` instead of
//! panicking. A stored number alone never sizes an allocation, since the reader returns slices of
//! the actual bytes.

use crate::error::{Error, Result};

/// Appends a LEB128 integer (1 to 10 bytes).
#[inline]
pub fn put_varint(out: &mut Vec<u8>, v: u64) {
    varint_bytes(v, |byte| out.push(byte));
}

/// Passes the bytes of a varint to `put`, one by one.
#[inline]
pub fn varint_bytes(mut v: u64, mut put: impl FnMut(u8)) {
    while v >= 0x80 {
        put(v as u8 | 0x80);
        v >>= 7;
    }
    put(v as u8);
}

/// Appends a length as a varint, then the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends 2 bytes, little-endian.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, v: u16) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends 4 bytes, little-endian.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends 8 bytes, little-endian.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Returns how many bytes [`put_varint`] writes for `v`.
#[inline]
pub fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a varint at the start of `bytes`: the value and its length, or `None` if cut short or over
/// 64 bits.
#[inline]
pub fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let second = *bytes.get(1)?;
    let mut value = u64::from(first & 0x7f) | u64::from(second & 0x7f) << 7;
    let mut at = 2;
    if second < 0x80 {
        return Some((value, at));
    }
    while at < 10 {
        let b = *bytes.get(at)?;
        if at == 9 && b > 1 {
            return None;
        }
        value |= u64::from(b & 0x7f) << (7 * at);
        at += 1;
        if b < 0x80 {
            return Some((value, at));
        }
    }
    None
}

/// A cursor over bytes that may be hostile: every read is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Returns the unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns true when everything has been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(Error::corruption(format!(
                "a field is cut off: it needs {n} bytes, but {} bytes are left",
                self.rest.len()
            ))),
        }
    }

    /// Reads the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(Error::corruption(format!(
                "a field is cut off: it needs {N} bytes, but {} bytes are left",
                self.rest.len()
            ))),
        }
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        let (value, len) = get_varint(self.rest).ok_or_else(|| {
            Error::corruption("a number of variable length (varint) is cut off, or over 64 bits")
        })?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        Ok(value)
    }

    /// Reads a varint that must fit in a `usize` and be at most `limit`.
    #[inline]
    pub fn length(&mut self, limit: usize) -> Result<usize> {
        let value = self.varint()?;
        usize::try_from(value).ok().filter(|&n| n <= limit).ok_or_else(|| {
            Error::corruption(format!(
                "a length or count field has the value {value}, over its limit of {limit} (bytes or entries)"
            ))
        })
    }

    /// Reads a varint length and that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.length(self.rest.len())?;
        self.take(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for v in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, v);
                assert_eq!(out.len(), varint_len(v));
                assert_eq!(get_varint(&out), Some((v, out.len())));
                for cut in 0..out.len() {
                    assert_eq!(get_varint(&out[..cut]), None);
                }
            }
        }
        assert_eq!(get_varint(&[0xff; 10]), None, "over 64 bits");
    }

    #[test]
    fn reader_refuses_to_run_past_the_end() {
        let mut r = Reader::new(&[5, 1, 2]);
        assert!(r.bytes().unwrap_err().is_corruption());
        let mut r = Reader::new(&[2, 1, 2, 9]);
        assert_eq!(r.bytes().unwrap(), &[1, 2]);
        assert_eq!(r.u8().unwrap(), 9);
        assert!(r.u8().is_err() && r.u64().is_err() && r.varint().is_err());
    }
}
