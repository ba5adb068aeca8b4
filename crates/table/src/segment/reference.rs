//! References of log and memtable to a value outside of them.
//!
//! ```text
//! file number varint | uid 16 bytes | raw length varint | length of the file varint | checksum of the value u32
//! ```
//!
//! A reference is the value of an entry of kind `PlacedReference`. Unlike a [`crate::Reference`] it
//! names the file itself, with its identity: the manifest does not know the segment before the
//! memtable is flushed. At flush it becomes a reference whose blob id is the file number and whose
//! stored length is that of the file.

use crate::Reference;
use base::codec::{Reader, put_u32, put_varint};
use base::{Error, Result, Uid};

/// Maximum length of the encoding, in bytes.
pub const ENCODED_LEN_MAX: usize = 30 + 16 + 4;

/// A reference to a value segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentReference {
    /// Number of the file.
    pub file: u64,
    /// Identity of the file.
    pub uid: Uid,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the file, in bytes.
    pub stored_len: u64,
    /// Checksum of the value (see [`super::footer::SegmentFooter::checksum`]).
    pub checksum: u32,
}

impl SegmentReference {
    /// Returns the encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENCODED_LEN_MAX);
        put_varint(&mut out, self.file);
        out.extend_from_slice(&self.uid.0);
        put_varint(&mut out, self.raw_len);
        put_varint(&mut out, self.stored_len);
        put_u32(&mut out, self.checksum);
        out
    }

    /// Decodes the value of an entry of kind `PlacedReference`.
    ///
    /// # Errors
    /// `Corruption` if the bytes are not exactly one reference.
    pub fn decode(bytes: &[u8]) -> Result<SegmentReference> {
        let mut r = Reader::new(bytes);
        let reference = SegmentReference {
            file: r.varint()?,
            uid: Uid(r.array()?),
            raw_len: r.varint()?,
            stored_len: r.varint()?,
            checksum: r.u32()?,
        };
        if reference.file == 0 {
            return Err(Error::corruption("a reference to a large value names no file (file number 0)"));
        }
        match r.rest().len() {
            0 => Ok(reference),
            n => Err(Error::corruption(format!(
                "a reference to a large value is followed by {n} surplus bytes"
            ))),
        }
    }

    /// Returns the reference that a table stores in its place.
    pub fn in_table(&self) -> Reference {
        Reference { blob_id: self.file, raw_len: self.raw_len, stored_len: self.stored_len }
    }
}

/// A reference of the log to a value in a value log file, where records are in order of arrival
/// (see [`crate::VsstBuilder::in_order_of_arrival`]).
///
/// ```text
/// 0 u8 | file number varint | uid 16 bytes | offset varint | raw length varint | stored length varint | synced varint
/// ```
///
/// The first byte distinguishes it from a [`SegmentReference`], whose file number is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordReference {
    /// Number of the file.
    pub file: u64,
    /// Identity of the file.
    pub uid: Uid,
    /// Offset of the record.
    pub offset: u64,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the record, in bytes.
    pub stored_len: u64,
    /// Number of bytes of the file that were durable when the value was logged; none of them may be
    /// missing after a crash.
    pub synced_bytes: u64,
}

impl RecordReference {
    /// Maximum length of the encoding, in bytes.
    pub const ENCODED_LEN_MAX: usize = 1 + 16 + 5 * 10;

    /// Returns true if these bytes encode this kind of reference.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.first() == Some(&0)
    }

    /// Returns the encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::ENCODED_LEN_MAX);
        out.push(0);
        put_varint(&mut out, self.file);
        out.extend_from_slice(&self.uid.0);
        for n in [self.offset, self.raw_len, self.stored_len, self.synced_bytes] {
            put_varint(&mut out, n);
        }
        out
    }

    /// Decodes the value of an entry of kind `PlacedReference`.
    ///
    /// # Errors
    /// `Corruption` if the bytes are not exactly one such reference.
    pub fn decode(bytes: &[u8]) -> Result<RecordReference> {
        let mut r = Reader::new(bytes);
        if r.u8()? != 0 {
            return Err(Error::corruption("a reference to a value record does not begin with the byte 0"));
        }
        let reference = RecordReference {
            file: r.varint()?,
            uid: Uid(r.array()?),
            offset: r.varint()?,
            raw_len: r.varint()?,
            stored_len: r.varint()?,
            synced_bytes: r.varint()?,
        };
        match r.rest().len() {
            0 => Ok(reference),
            n => Err(Error::corruption(format!(
                "a reference to a value record is followed by {n} surplus bytes"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_reference_kinds_are_distinguished() {
        let uid = Uid::from_words(3, 4);
        let r =
            RecordReference { file: 9, uid, offset: 1 << 33, raw_len: 5, stored_len: 64, synced_bytes: 1 };
        let bytes = r.encode();
        assert!(RecordReference::is_one(&bytes));
        assert_eq!(RecordReference::decode(&bytes).unwrap(), r);
        assert!(SegmentReference::decode(&bytes).unwrap_err().is_corruption());
        for cut in 0..bytes.len() {
            assert!(RecordReference::decode(&bytes[..cut]).unwrap_err().is_corruption());
        }
        let segment = SegmentReference { file: 1, uid, raw_len: 1, stored_len: 2, checksum: 3 }.encode();
        assert!(!RecordReference::is_one(&segment) && RecordReference::decode(&segment).is_err());
    }

    #[test]
    fn round_trips_and_refuses_damage() {
        for file in [1, 1 << 40, u64::MAX] {
            let uid = Uid::from_words(3, 4);
            let r =
                SegmentReference { file, uid, raw_len: 1 << 30, stored_len: u64::MAX, checksum: 0xdead_beef };
            let bytes = r.encode();
            assert!(bytes.len() <= ENCODED_LEN_MAX);
            assert_eq!(SegmentReference::decode(&bytes).unwrap(), r);
            for cut in 0..bytes.len() {
                assert!(SegmentReference::decode(&bytes[..cut]).unwrap_err().is_corruption());
            }
            assert!(SegmentReference::decode(&[&bytes[..], &[0]].concat()).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn invalid_references_are_refused() {
        let uid = Uid::from_words(1, 2);
        let segment = SegmentReference { file: 0, uid, raw_len: 1, stored_len: 2, checksum: 3 };
        let e = SegmentReference::decode(&segment.encode()).unwrap_err();
        assert_eq!(e.message(), "a reference to a large value names no file (file number 0)");
        let record = RecordReference { file: 7, uid, offset: 0, raw_len: 1, stored_len: 2, synced_bytes: 3 };
        let e = RecordReference::decode(&[&record.encode()[..], &[0]].concat()).unwrap_err();
        assert_eq!(e.message(), "a reference to a value record is followed by 1 surplus bytes");
    }
}
