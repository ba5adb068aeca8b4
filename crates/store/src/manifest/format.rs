//! The bytes of a manifest and of `CURRENT`. The byte map is in `docs/format/manifest.md`.
//!
//! A manifest is a header of 64 bytes and records. Each record has its length, a checksum, its edit
//! number, and the number of the last edit that was durable when it was written. The checksum
//! covers all other bytes of the record, and is masked with the manifest's uid and the record's
//! offset. The first record is the snapshot of the state at its edit number. A longer snapshot than
//! a record may be is split into several records ([`pieces`]). Every other record is the edit that
//! leads from the state before it to the state of its number.
//!
//! The *durable* number serves to distinguish torn from damaged records. An invalid record was
//! either torn by a crash before any component relied on it, or damaged later. An intact record
//! behind it that confirms its number proves damage. `confirmed` searches at every later offset,
//! because the length of a damaged record cannot be trusted.

use crate::format::{Feature, StoreFormat};
use crate::names::{self, FileKind};
use crate::numbers::NUMBER_MAX;
use base::checksum::{self, checksum_of, mask};
use base::codec::{Reader, put_u32, put_u64};
use base::{Error, Result, Uid};

const MAGIC: &[u8; 8] = b"LAVAMFST";
/// The version of a manifest whose snapshot is one record, written wherever that suffices.
const FORMAT_VERSION: u32 = 1;
/// The version of a manifest whose snapshot is in pieces.
const FORMAT_VERSION_PIECES: u32 = 2;
/// The version whose header carries the format of the store: of all formats that allow it.
const FORMAT_VERSION_NUMBERED: u32 = 3;
/// Length of the header. It and the position of the checksum are the same in every future version.
pub const HEADER_LEN: usize = 64;
/// Length, checksum, edit number, durable edit number.
pub const RECORD_HEADER_LEN: usize = 24;
/// Maximum length of a payload, for writers and readers.
pub(super) const PAYLOAD_LEN_MAX: usize = 1 << 30;

/// Minimum budget for the search of a confirming record, bytes: a fraction of a second.
const SEARCH_LEN_MAX: usize = 256 << 20;

/// The header of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identity of the store.
    pub store: Uid,
    /// Identity of this manifest.
    pub manifest: Uid,
    /// File number, which is in the name.
    pub number: u64,
    /// Number of records of the snapshot.
    pub pieces: u32,
    /// The format of the store.
    pub format: StoreFormat,
}

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(MAGIC);
        let is_numbered = self.format.allows(Feature::FormatNumber);
        put_u32(
            &mut out,
            match (is_numbered, self.pieces) {
                (true, _) => FORMAT_VERSION_NUMBERED,
                (false, 0..=1) => FORMAT_VERSION,
                (false, _) => FORMAT_VERSION_PIECES,
            },
        );
        put_u32(&mut out, if is_numbered { self.format.number() } else { 0 });
        out.extend_from_slice(&self.store.0);
        out.extend_from_slice(&self.manifest.0);
        put_u64(&mut out, self.number);
        put_u32(&mut out, if is_numbered || self.pieces > 1 { self.pieces } else { 0 });
        let sum = checksum::stored(&out, self.manifest, 0);
        put_u32(&mut out, sum);
        out
    }

    /// Decodes the header at the front of a manifest.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported`.
    pub fn decode(bytes: &[u8]) -> Result<Header> {
        let mut r = Reader::new(bytes);
        let body = Reader::new(bytes).take(HEADER_LEN - 4)?;
        let magic: [u8; 8] = r.array()?;
        let version = r.u32()?;
        let format = r.u32()?;
        let (store, manifest, number) = (Uid(r.array()?), Uid(r.array()?), r.u64()?);
        let pieces = r.u32()?;
        if magic != *MAGIC {
            return Err(Error::corruption(
                "this is not a manifest: its magic number (the first 8 bytes) is wrong",
            )
            .at_offset(0));
        }
        // Only an intact header proves a newer version.
        checksum::verify(body, manifest, 0, r.u32()?)?;
        let (format, fits) = match version {
            FORMAT_VERSION => (StoreFormat::OLDEST, format == 0 && pieces == 0),
            FORMAT_VERSION_PIECES => (StoreFormat::OLDEST, format == 0 && pieces > 1),
            FORMAT_VERSION_NUMBERED if format > 0 => {
                let format = StoreFormat::from_number(format)?;
                (format, format.allows(Feature::FormatNumber) && pieces > 0)
            }
            0 | FORMAT_VERSION_NUMBERED => (StoreFormat::OLDEST, false),
            _ => return Err(crate::field::newer(format!("manifest format version {version}"))),
        };
        if !fits || number > NUMBER_MAX {
            return Err(Error::corruption(format!(
                "the format, number or piece count in the manifest's header is out of range: header \
                 version {version}, number {number}, {pieces} pieces"
            ))
            .at_offset(0));
        }
        Ok(Header { store, manifest, number, pieces: pieces.max(1), format })
    }
}

/// A record as stored in the file.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Edit number.
    pub edit: u64,
    /// The last edit that was durable when the record was written.
    pub durable: u64,
    /// The bytes of the edit.
    pub payload: &'a [u8],
}

impl RawRecord<'_> {
    /// Returns the length in the file, bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty: each has a header")]
    pub fn len(&self) -> usize {
        RECORD_HEADER_LEN + self.payload.len()
    }
}

/// Encodes a record for `offset` of the manifest.
pub fn encode_record(manifest: Uid, offset: u64, edit: u64, durable: u64, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= PAYLOAD_LEN_MAX, "an edit of {} bytes", payload.len());
    let mut out = Vec::with_capacity(RECORD_HEADER_LEN + payload.len());
    put_u32(&mut out, payload.len() as u32);
    put_u32(&mut out, 0);
    put_u64(&mut out, edit);
    put_u64(&mut out, durable);
    out.extend_from_slice(payload);
    let sum = record_checksum(manifest, offset, &out[..4], &out[8..]);
    out[4..8].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Splits a snapshot into pieces of at most `len_max` bytes. A piece ends at the end of a change
/// where possible, so that each can be read by itself if another is damaged. Only a longer change
/// is split.
pub fn pieces(snapshot: &[u8], len_max: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = snapshot;
    while rest.len() > len_max {
        let mut r = Reader::new(rest);
        let mut end = 0;
        while r.varint().and_then(|_| r.bytes()).is_ok() && rest.len() - r.rest().len() <= len_max {
            end = rest.len() - r.rest().len();
        }
        let (piece, after) = rest.split_at(if end == 0 { len_max } else { end });
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn record_checksum(manifest: Uid, offset: u64, length: &[u8], rest: &[u8]) -> u32 {
    checksum_of(&[length, rest]) ^ mask(manifest, offset)
}

/// Returns the record at `offset` if it is intact.
///
/// # Errors
/// `Corruption` with the offset.
pub fn read_record(manifest: Uid, bytes: &[u8], offset: usize) -> Result<RawRecord<'_>> {
    let at = |e: Error| e.at_offset(offset as u64);
    let mut r = Reader::new(bytes.get(offset..).unwrap_or_default());
    let length = r.take(4).map_err(at)?;
    let len = Reader::new(length).u32()? as usize;
    let stored = r.u32().map_err(at)?;
    if len > PAYLOAD_LEN_MAX {
        return Err(at(Error::corruption(format!(
            "the record length {len} in the manifest is out of range: at most {PAYLOAD_LEN_MAX} bytes"
        ))));
    }
    let rest = r.take(RECORD_HEADER_LEN - 8 + len).map_err(at)?;
    if record_checksum(manifest, offset as u64, length, rest) != stored {
        return Err(at(Error::corruption(format!(
            "the checksum of a manifest record does not match its {len} bytes"
        ))));
    }
    let mut fields = Reader::new(rest);
    Ok(RawRecord { edit: fields.u64()?, durable: fields.u64()?, payload: fields.rest() })
}

/// Returns true if some intact record at or behind `from` was written when `edit` was known to be
/// durable.
///
/// It tests every offset, but computes a checksum only if the numbers fit such a record: edits
/// follow each other, and none is shorter than its header. If the length of a manifest is not known
/// (see `io::FileSystem::scan_extent_tail`), leftovers of other files behind its end may look like
/// records, by accident or on purpose. There are at most as many as a file grows by at a time, and
/// all are searched. A crafted file can be longer. Once the checksums have covered
/// [`SEARCH_LEN_MAX`], or sixteen times the file, the answer is true, which refuses the file.
pub(super) fn confirmed(manifest: Uid, bytes: &[u8], from: usize, edit: u64) -> bool {
    let mut budget = bytes.len().saturating_mul(16).max(SEARCH_LEN_MAX);
    for offset in from..bytes.len().saturating_sub(RECORD_HEADER_LEN - 1) {
        let mut r = Reader::new(&bytes[offset..]);
        let (Ok(len), Ok(_), Ok(number), Ok(durable)) = (r.u32(), r.u32(), r.u64(), r.u64()) else {
            return false;
        };
        let fits = r.rest().len() >= len as usize;
        let number_max =
            edit.saturating_add(((offset + 1 - from) / RECORD_HEADER_LEN) as u64).min(NUMBER_MAX);
        if !fits || durable < edit || number <= durable || number > number_max {
            continue;
        }
        if read_record(manifest, bytes, offset).is_ok() {
            return true;
        }
        match budget.checked_sub(RECORD_HEADER_LEN + len as usize) {
            Some(left) => budget = left,
            None => return true,
        }
    }
    false
}

/// The contents of `CURRENT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// The file number of the manifest.
    pub manifest: u64,
    /// The identity in its header, so that a file swapped in under the name is noticed.
    pub uid: Uid,
    /// An edit that was durable in the manifest when `CURRENT` was written: its snapshot, or after
    /// a clean close its last edit.
    pub edit: u64,
}

impl Current {
    /// Returns the text of the file.
    pub fn encode(&self) -> String {
        let name = names::manifest(self.manifest);
        let text = format!("{name}\nuid {:?}\nedit {}\n", self.uid, self.edit);
        format!("{text}checksum {:08x}\n", checksum::checksum(text.as_bytes()))
    }

    /// Decodes the text of [`Current::encode`].
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(bytes: &[u8]) -> Result<Current> {
        let damaged = || {
            Error::corruption(
                "CURRENT, which names the manifest, is damaged: its lines or its checksum are wrong",
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let mut lines = text.lines();
        let Some(FileKind::Manifest(manifest)) = lines.next().and_then(names::parse) else {
            return Err(damaged());
        };
        let uid =
            lines.next().and_then(|l| l.strip_prefix("uid ")).and_then(parse_uid).ok_or_else(damaged)?;
        let edit = lines.next().and_then(|l| l.strip_prefix("edit ")?.parse().ok()).ok_or_else(damaged)?;
        let current = Current { manifest, uid, edit };
        // Every field has exactly one spelling, the checksum included.
        if current.encode().as_bytes() != bytes || manifest > NUMBER_MAX || edit > NUMBER_MAX {
            return Err(damaged());
        }
        Ok(current)
    }
}

fn parse_uid(hex: &str) -> Option<Uid> {
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut uid = Uid::default();
    for (i, byte) in uid.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::codec::{put_bytes, put_varint};

    #[test]
    fn snapshot_pieces_end_at_change_boundaries() {
        let mut snapshot = Vec::new();
        let mut ends = vec![0];
        for len in [3usize, 40, 0, 500, 1, 2, 90, 90, 7] {
            put_varint(&mut snapshot, 300);
            put_bytes(&mut snapshot, &vec![7; len]);
            ends.push(snapshot.len());
        }
        for len_max in 1..snapshot.len() + 10 {
            let all = pieces(&snapshot, len_max);
            assert_eq!(all.concat(), snapshot);
            assert!(all.iter().all(|piece| piece.len() <= len_max && !piece.is_empty()));
            assert_eq!(all.len() == 1, len_max >= snapshot.len());
            if len_max > 510 {
                let mut at = 0;
                let mut end = |piece: &&[u8]| {
                    at += piece.len();
                    at
                };
                assert!(all.iter().map(&mut end).all(|end| ends.contains(&end)), "{len_max}");
            }
        }
        assert_eq!(pieces(&[], 10), [&[][..]]);
    }
}
