//! Internal keys, by which memtables, tables and iterators are sorted.
//!
//! An internal key is the user key followed by an 8-byte little-endian trailer `sequence << 8 |
//! kind`. Order: user key ascending (bytewise), then sequence **descending**, then kind descending,
//! so that the newest version of a key comes first and a seek to `(key, snapshot)` lands on the
//! newest version the snapshot sees.
//!
//! A sequence has 56 bits: at ten million writes a second it lasts 228 years, and the trailer stays
//! one word. The encoding is not prefix-free, so encoded keys are compared with [`compare`], never
//! as plain bytes.

use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::fmt;

/// Orders the writes of a store: every change of every batch has a number of its own, and later
/// ones are higher. A snapshot sees all writes up to its number. It is unrelated to the LSN of a
/// log record.
pub type SeqNo = u64;

/// The largest sequence number; as a snapshot it sees everything.
pub const MAX_SEQ: SeqNo = (1 << 56) - 1;

/// Bytes that the trailer adds to a user key.
pub const TRAILER_LEN: usize = 8;

/// Kind of an entry. The numbers are part of every format and never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// A tombstone: hides every older entry of the key.
    Deletion = 0,
    /// A value stored inline.
    Value = 1,
    /// An operand that a merge operator combines with older entries.
    Merge = 2,
    /// A tombstone that cancels exactly one older value and vanishes with it.
    SingleDeletion = 3,
    /// A reference to a value in a vSST.
    Reference = 4,
    /// A range tombstone: the user key is its start, the value its end (exclusive).
    RangeDeletion = 5,
    /// Place of a value that was written to a file before the log: a large value in its segment
    /// (log and memtable), or a placed one in a value log file (log only).
    PlacedReference = 6,
    /// WAL only: the batch that follows is prepared under a transaction id.
    Prepare = 8,
    /// WAL only: a prepared transaction commits.
    Commit = 9,
    /// WAL only: a prepared transaction rolls back.
    Rollback = 10,
    /// Sorts before every real kind of the same sequence; used only in seek targets.
    Seek = 255,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::Deletion => "deletion",
            ValueKind::Value => "value",
            ValueKind::Merge => "merge",
            ValueKind::SingleDeletion => "single deletion",
            ValueKind::Reference => "reference",
            ValueKind::RangeDeletion => "range deletion",
            ValueKind::PlacedReference => "placed reference",
            ValueKind::Prepare => "prepare",
            ValueKind::Commit => "commit",
            ValueKind::Rollback => "rollback",
            ValueKind::Seek => "seek",
        })
    }
}

impl ValueKind {
    /// Returns the kind with this number, if it may be stored.
    #[inline]
    pub fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            0 => ValueKind::Deletion,
            1 => ValueKind::Value,
            2 => ValueKind::Merge,
            3 => ValueKind::SingleDeletion,
            4 => ValueKind::Reference,
            5 => ValueKind::RangeDeletion,
            6 => ValueKind::PlacedReference,
            8 => ValueKind::Prepare,
            9 => ValueKind::Commit,
            10 => ValueKind::Rollback,
            _ => return None,
        })
    }

    /// Returns true for point and single-delete tombstones.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        matches!(self, ValueKind::Deletion | ValueKind::SingleDeletion)
    }
}

/// Returns the trailer word of an internal key.
#[inline]
pub fn pack_trailer(seq: SeqNo, kind: ValueKind) -> u64 {
    debug_assert!(seq <= MAX_SEQ, "sequence {seq} over 56 bits");
    seq << 8 | kind as u64
}

/// Compares two **encoded** internal keys (each at least [`TRAILER_LEN`] bytes; shorter ones sort
/// first).
#[inline]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (a_user, a_trailer) = split(a);
    let (b_user, b_trailer) = split(b);
    a_user.cmp(b_user).then_with(|| b_trailer.cmp(&a_trailer))
}

/// Splits an encoded internal key into user key and trailer word; a key too short for a trailer has
/// trailer 0.
#[inline]
pub fn split(encoded: &[u8]) -> (&[u8], u64) {
    match encoded.split_last_chunk::<TRAILER_LEN>() {
        Some((user, trailer)) => (user, u64::from_le_bytes(*trailer)),
        None => (encoded, 0),
    }
}

/// Returns the user key of an encoded internal key.
#[inline]
pub fn user_key(encoded: &[u8]) -> &[u8] {
    split(encoded).0
}

/// Returns the sequence of an encoded internal key.
#[inline]
pub fn seq(encoded: &[u8]) -> SeqNo {
    split(encoded).1 >> 8
}

/// Returns the kind of an encoded internal key; `None` if the number is not a stored kind.
pub fn kind(encoded: &[u8]) -> Option<ValueKind> {
    ValueKind::from_u8(split(encoded).1 as u8)
}

/// Appends the encoding of `(user_key, seq, kind)` to `out`.
#[inline]
pub fn encode_into(out: &mut Vec<u8>, user_key: &[u8], seq: SeqNo, kind: ValueKind) {
    out.reserve(user_key.len() + TRAILER_LEN);
    out.extend_from_slice(user_key);
    out.extend_from_slice(&pack_trailer(seq, kind).to_le_bytes());
}

/// Encodes `(user_key, seq, kind)`.
pub fn encode(user_key: &[u8], seq: SeqNo, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + TRAILER_LEN);
    encode_into(&mut out, user_key, seq, kind);
    out
}

/// Returns the target for a seek to the newest entry of `user_key` with a sequence of at most
/// `snapshot`.
pub fn seek_target(user_key: &[u8], snapshot: SeqNo) -> Vec<u8> {
    encode(user_key, snapshot, ValueKind::Seek)
}

/// A decoded internal key that borrows its user key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The user's bytes.
    pub user_key: &'a [u8],
    /// The sequence of the write.
    pub seq: SeqNo,
    /// The kind of the entry.
    pub kind: ValueKind,
}

impl<'a> InternalKey<'a> {
    /// Decodes an internal key read from storage.
    ///
    /// # Errors
    /// `Corruption` if it has no trailer or names an unknown kind.
    #[inline]
    pub fn decode(encoded: &'a [u8]) -> Result<Self> {
        if encoded.len() < TRAILER_LEN {
            let why = format!(
                "an internal key has {} bytes, fewer than its trailer of {TRAILER_LEN} bytes (sequence number \
                 and kind of entry)",
                encoded.len()
            );
            return Err(Error::corruption(why));
        }
        let (user_key, trailer) = split(encoded);
        let kind = ValueKind::from_u8(trailer as u8).ok_or_else(|| {
            Error::corruption(format!(
                "the trailer of an internal key has the unknown entry kind {}",
                trailer as u8
            ))
        })?;
        Ok(InternalKey { user_key, seq: trailer >> 8, kind })
    }
}

#[cfg(test)]
mod tests;
