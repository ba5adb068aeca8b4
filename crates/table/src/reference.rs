//! References: entries of a kSST that point to a value in a vSST.
//!
//! A reference names the vSST by its logical `BlobId`. That is stable under garbage collection,
//! which moves records between files but never rewrites references. It carries two lengths: the raw
//! length of the value, so that compensated sizes are exact, and the length of the whole stored
//! record, so that garbage is computed and never counted.
//!
//! As the value of an entry of kind `Reference` it is encoded as three varints: BlobId, raw length,
//! stored length. Inside a table it is stored by column (see [`crate::reference_block`]).

use crate::prefix::varint_at;
use base::codec::varint_bytes;
use base::{Error, Result};

/// Maximum length of the encoding of a reference, in bytes.
pub const ENCODED_LEN_MAX: usize = 30;

/// An encoded reference, without an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodedReference {
    bytes: [u8; ENCODED_LEN_MAX],
    len: usize,
}

impl EncodedReference {
    #[inline(always)]
    fn put(&mut self, v: u64) {
        let place = self.bytes.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut::<2>());
        match place {
            Some([first, _]) if v < 0x80 => {
                *first = v as u8;
                self.len += 1;
            }
            Some(two) if v < 1 << 14 => {
                *two = [v as u8 | 0x80, (v >> 7) as u8];
                self.len += 2;
            }
            _ => self.put_long(v),
        }
    }

    fn put_long(&mut self, v: u64) {
        // Three varints of at most ten bytes fit.
        varint_bytes(v, |byte| {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        });
    }
}

impl std::ops::Deref for EncodedReference {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A reference to a separated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Logical name of the vSST.
    pub blob_id: u64,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the record in the vSST, with header, padding and checksum, in bytes.
    pub stored_len: u64,
}

impl Reference {
    /// Appends the encoding.
    #[inline]
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode_inline());
    }

    /// Returns the encoding: the value of an entry of kind `Reference`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENCODED_LEN_MAX);
        self.encode_into(&mut out);
        out
    }

    /// [`Reference::encode`] into an array.
    #[inline]
    pub fn encode_inline(&self) -> EncodedReference {
        let mut out = EncodedReference::default();
        out.put(self.blob_id);
        out.put(self.raw_len);
        out.put(self.stored_len);
        out
    }

    /// Decodes the value of an entry of kind `Reference`.
    ///
    /// # Errors
    /// `Corruption` if the bytes are not exactly one reference.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Reference> {
        let mut at = 0;
        let fields = (varint_at(bytes, &mut at), varint_at(bytes, &mut at), varint_at(bytes, &mut at));
        match fields {
            (Some(blob_id), Some(raw_len), Some(stored_len)) if at == bytes.len() => {
                Ok(Reference { blob_id, raw_len, stored_len })
            }
            (_, _, None) => {
                let len = bytes.len();
                Err(Error::corruption(format!(
                    "a key table's reference to a value has {len} bytes: it is cut off, or has a number \
                     over 64 bits"
                )))
            }
            _ => {
                let len = bytes.len();
                Err(Error::corruption(format!(
                    "a key table's reference to a value has {len} bytes, but its three numbers fill {at}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::codec::put_varint;

    #[test]
    fn round_trips_and_refuses_damage() {
        for blob_id in [0, 7, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 35, u64::MAX] {
            let stored_len = if blob_id == 7 { u64::MAX } else { 300 };
            let r = Reference { blob_id, raw_len: u64::MAX, stored_len };
            let bytes = r.encode();
            let mut varints = Vec::new();
            [r.blob_id, r.raw_len, r.stored_len].into_iter().for_each(|v| put_varint(&mut varints, v));
            assert_eq!(bytes, varints);
            assert!(bytes.len() <= ENCODED_LEN_MAX);
            assert_eq!(*r.encode_inline(), bytes[..]);
            assert_eq!(Reference::decode(&bytes).unwrap(), r);
            assert!(Reference::decode(&bytes[..bytes.len() - 1]).unwrap_err().is_corruption());
            assert!(Reference::decode(&[&bytes[..], &[0]].concat()).unwrap_err().is_corruption());
        }
    }
}
