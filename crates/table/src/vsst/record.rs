//! Records: one value each, with its key.
//!
//! ```text
//! codec: u8, key length: varint, stored value length: varint, user key, sequence: 7 bytes,
//! value as stored, zeros up to the alignment of the file (less 4), checksum of all before: u32
//! ```
//!
//! The value of a compressed record is the output of [`crate::compress`]: the raw length as a
//! varint, then the codec's bytes. The whole length, padding and checksum included, is the *stored
//! length* in references: one read of that length gets the record and everything needed to verify
//! it. The checksum is masked with the uid of the file and the offset of the record; moving a
//! record changes only these four bytes.
//!
//! The stored length of a record never changes. Collection does not rewrite references, which state
//! how much to read, and the ledger takes the sum of their stored lengths for the live bytes. So a
//! copy keeps codec and padding, and an output has the finest alignment of its inputs, which fits
//! all records. The checksum is last and covers the padding, so a writer appends in one pass, and
//! every byte of a vSST is under a checksum. Key and sequence are stored although the dense keys
//! repeat them: the record proves that it is the requested one.

use crate::compress::decompress_behind;
use base::codec::{Reader, put_varint, varint_len};
use base::{Compression, Error, ErrorKind, MAX_SEQ, Result, SeqNo, Uid, checksum, limits};
use io::ReadFile;
use std::ops::Range;

/// Coarsest alignment of records.
pub const ALIGNMENT_MAX: u32 = 64;
/// Length of a sequence, in bytes.
const SEQ_LEN: usize = 7;
/// Length of the checksum, in bytes.
pub(crate) const SUM_LEN: usize = 4;
/// Maximum length of a record for which a reader allocates.
pub const RECORD_LEN_MAX: usize = limits::BLOCK_LEN_MAX;

/// Decoded head of a record, with the ranges of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) codec: Compression,
    pub(crate) key: Range<usize>,
    pub(crate) seq: SeqNo,
    /// Range of the value as stored.
    pub(crate) value: Range<usize>,
    pub(crate) raw_len: u64,
}

/// Returns the length of a record before padding and checksum.
pub(crate) fn body_len(key_len: usize, value_len: usize) -> usize {
    1 + varint_len(key_len as u64) + varint_len(value_len as u64) + key_len + SEQ_LEN + value_len
}

/// Returns the maximum length of a record of such a key and value, compressed or not.
pub fn len_max(key_len: usize, value_len: usize) -> usize {
    body_len(key_len, value_len) + SUM_LEN + ALIGNMENT_MAX as usize
}

/// Appends all bytes before the value.
pub(crate) fn put_head(out: &mut Vec<u8>, codec: Compression, user_key: &[u8], seq: SeqNo, value_len: usize) {
    out.push(codec as u8);
    put_varint(out, user_key.len() as u64);
    put_varint(out, value_len as u64);
    out.extend_from_slice(user_key);
    out.extend_from_slice(&seq.to_le_bytes()[..SEQ_LEN]);
}

/// Returns the power of two nearest to a 128th of this record length, at most [`ALIGNMENT_MAX`]:
/// padding then costs about half a percent, and an offset in the index six bits less.
pub(crate) fn alignment_for(record_len: u64) -> u32 {
    let target = record_len / 128;
    let mut alignment = 1u32;
    // Half-way between two powers the larger one is chosen.
    while alignment < ALIGNMENT_MAX && target * 2 >= u64::from(alignment) * 3 {
        alignment *= 2;
    }
    alignment
}

/// Decodes the head of a record and the ranges of its parts, ignoring the bytes after the value.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<RecordHead> {
    let mut reader = Reader::new(bytes);
    let codec = reader.u8()?;
    let codec = Compression::from_u8(codec).ok_or_else(|| {
        let why = format!("a value record has the unknown compression codec {codec}: use a newer release");
        Error::new(ErrorKind::Unsupported, why)
    })?;
    let key_len = reader.length(limits::KEY_LEN_MAX)?;
    let value_len = reader.length(limits::BLOCK_LEN_MAX)?;
    let key_at = bytes.len() - reader.rest().len();
    reader.take(key_len)?;
    let mut seq = [0; 8];
    seq[..SEQ_LEN].copy_from_slice(reader.take(SEQ_LEN)?);
    let value_at = bytes.len() - reader.rest().len();
    let value = reader.take(value_len)?;
    let raw_len = match codec {
        Compression::None => value_len as u64,
        _ => Reader::new(value).varint()?,
    };
    if raw_len > limits::VALUE_LEN_MAX as u64 {
        return Err(Error::corruption(format!(
            "a value record states a value of {raw_len} bytes, over the limit of {} bytes",
            limits::VALUE_LEN_MAX
        )));
    }
    Ok(RecordHead {
        codec,
        key: key_at..key_at + key_len,
        seq: u64::from_le_bytes(seq),
        value: value_at..value_at + value_len,
        raw_len,
    })
}

/// Decodes the head of a whole record, and checks that its parts fill it.
pub(crate) fn parse(bytes: &[u8]) -> Result<RecordHead> {
    let shape = parse_head(bytes)?;
    let end = bytes.len().saturating_sub(SUM_LEN);
    match bytes.get(shape.value.end..end) {
        Some(padding) if padding.len() < ALIGNMENT_MAX as usize && padding.iter().all(|&b| b == 0) => {
            Ok(shape)
        }
        _ => Err(Error::corruption(
            "a value record is not filled up with zero bytes between its value and its checksum: only this \
             value is unreadable",
        )),
    }
}

/// Verifies the checksum of a record read from `offset` of the file `uid`.
pub(crate) fn verify(bytes: &[u8], uid: Uid, offset: u64) -> Result<()> {
    match bytes.split_last_chunk::<SUM_LEN>() {
        Some((body, sum)) => checksum::verify(body, uid, offset, u32::from_le_bytes(*sum)),
        None => {
            let why = format!("a value record has {} bytes, but its checksum has {SUM_LEN}", bytes.len());
            Err(Error::corruption(why).at_offset(offset))
        }
    }
}

/// A record read without its file's index: key, sequence and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooseRecord {
    /// User key.
    pub user_key: Vec<u8>,
    /// Sequence.
    pub seq: SeqNo,
    /// Value.
    pub value: Vec<u8>,
}

/// Reads and verifies a record of a file that may be unfinished: for recovery of a value log file.
///
/// # Errors
/// `Corruption`, with file and offset, if the record is missing or damaged; the errors of the file.
pub fn read_loose(file: &dyn ReadFile, uid: Uid, offset: u64, stored_len: u64) -> Result<LooseRecord> {
    let here = |e: Error| e.at_offset(offset).at_file(file.path());
    let end = offset.checked_add(stored_len).filter(|_| stored_len <= RECORD_LEN_MAX as u64);
    if end.is_none_or(|end| file.readable_len().is_ok_and(|len| len < end)) {
        let why = format!(
            "a value record of {stored_len} bytes is over {RECORD_LEN_MAX}, or ends past the file's end"
        );
        return Err(here(Error::corruption(why)));
    }
    let mut bytes = vec![0; stored_len as usize];
    file.read_at(&mut bytes, offset).map_err(here)?;
    open_loose(&bytes, uid, offset).map_err(here)
}

/// Verifies a record that belongs at `offset` of the file `uid`, from any source.
///
/// # Errors
/// `Corruption` if the bytes are not exactly that record; `Unsupported` for a codec of a later
/// release.
pub fn open_loose(bytes: &[u8], uid: Uid, offset: u64) -> Result<LooseRecord> {
    verify(bytes, uid, offset)?;
    let shape = parse(bytes)?;
    let payload = bytes.get(shape.value).unwrap_or_default();
    let value = match shape.codec {
        Compression::None => payload.to_vec(),
        codec => decompress_behind(&[], codec, payload)?.to_vec(),
    };
    let user_key = bytes.get(shape.key).unwrap_or_default().to_vec();
    Ok(LooseRecord { user_key, seq: shape.seq, value })
}

/// A verified record, as it is in its file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// User key.
    pub user_key: &'a [u8],
    /// Sequence.
    pub seq: SeqNo,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Codec of the value.
    pub codec: Compression,
    /// All bytes of the record, with the checksum masked for its original place.
    pub stored: &'a [u8],
    /// Alignment of the original file.
    pub alignment: u32,
    /// Mask of the checksum.
    pub(crate) mask: u32,
}

impl<'a> Record<'a> {
    /// Verifies and parses a whole record.
    pub(crate) fn open(stored: &'a [u8], uid: Uid, offset: u64, alignment: u32) -> Result<Record<'a>> {
        verify(stored, uid, offset)?;
        let shape = parse(stored)?;
        let user_key = stored.get(shape.key).unwrap_or_default();
        debug_assert!(shape.seq <= MAX_SEQ, "7 bytes are 56 bits");
        let mask = checksum::mask(uid, offset);
        let RecordHead { codec, seq, raw_len, .. } = shape;
        Ok(Record { user_key, seq, raw_len, codec, stored, alignment, mask })
    }
}
