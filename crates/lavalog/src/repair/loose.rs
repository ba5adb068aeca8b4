//! Reads the records of a cold file without its index, knowing only its identity. Each record
//! contains its log and LSN under its checksum.
//!
//! Records are adjacent from the first byte of the file. After a damaged record, the next one is
//! searched byte by byte. A candidate that decodes as the head of a record is real if the checksum,
//! masked with the file's identity and the offset, holds. Intact rows would make the search
//! unnecessary, but rows may be damaged.

use crate::cold;
use crate::disk::SUM_LEN;
use crate::entry::Entry;
use base::{Error, MAX_SEQ, Result, Uid, checksum};
use io::{PAGE, ReadFile};

/// Maximum bytes to checksum while searching one file after damage.
const SEARCH_BYTES_MAX: u64 = 4 << 30;
/// Bytes per read request.
const READ_LEN: u64 = 1 << 20;

/// A buffered window of a file. Unreadable bytes are zeros.
struct Window<'f> {
    file: &'f dyn ReadFile,
    end: u64,
    from: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns `len` bytes at `at`, or fewer at the end.
    fn get(&mut self, at: u64, len: u64) -> &[u8] {
        let len = len.min(self.end.saturating_sub(at));
        let has = self.from <= at && at + len <= self.from + self.bytes.len() as u64;
        if !has {
            self.from = at;
            self.bytes.resize(len.max(READ_LEN).min(self.end - at) as usize, 0);
            if self.file.read_at(&mut self.bytes, at).is_err() {
                for (at, piece) in (at..).step_by(PAGE).zip(self.bytes.chunks_mut(PAGE)) {
                    if self.file.read_at(piece, at).is_err() {
                        piece.fill(0);
                    }
                }
            }
        }
        let begin = (at - self.from) as usize;
        self.bytes.get(begin..begin + len as usize).unwrap_or_default()
    }
}

/// Calls `take` for all records of the cold file `uid` before `end`. Returns the offset at which
/// each damaged range begins, including bytes after the last record.
///
/// # Errors
/// The errors of `take`.
pub(super) fn each_record(
    file: &dyn ReadFile,
    uid: Uid,
    end: u64,
    take: &mut dyn FnMut(&Entry, &[u8]) -> Result<()>,
) -> Result<Vec<u64>> {
    let mut window = Window { file, end, from: 0, bytes: Vec::new() };
    let (mut at, mut tried, mut bad, mut damage) = (0, 0, None, Vec::new());
    while at < end && tried < SEARCH_BYTES_MAX {
        let Some((entry, head)) = head_at(window.get(at, cold::HEAD_LEN_MAX as u64), at, end) else {
            bad.get_or_insert(at);
            at += 1;
            continue;
        };
        let len = cold::stored_len(entry.log, entry.lsn, entry.seq, entry.len);
        let frame = window.get(at, len);
        let holds = frame
            .split_last_chunk::<SUM_LEN>()
            .filter(|(payload, sum)| checksum::verify(payload, uid, at, u32::from_le_bytes(**sum)).is_ok());
        let Some(bytes) = holds.and_then(|(payload, _)| payload.get(head..)) else {
            tried += len;
            bad.get_or_insert(at);
            at += 1;
            continue;
        };
        damage.extend(bad.take());
        take(&entry, bytes)?;
        at += len;
    }
    damage.extend(bad);
    Ok(damage)
}

/// Decodes a candidate head of a record that ends before `end`. Returns its entry and the length of
/// the head.
fn head_at(bytes: &[u8], at: u64, end: u64) -> Option<(Entry, usize)> {
    let entry = cold::decode_head(bytes, at).ok()?;
    let len = cold::stored_len(entry.log, entry.lsn, entry.seq, entry.len);
    let head = len.checked_sub(u64::from(entry.len) + SUM_LEN as u64)?;
    let fits = at.checked_add(len).is_some_and(|of| of <= end);
    (fits && (1..=MAX_SEQ).contains(&entry.seq)).then_some((entry, head as usize))
}

/// Returns the error for damage among the records of a cold file.
pub(super) fn damaged(file: &dyn ReadFile, at: u64) -> Error {
    Error::corruption("the bytes at this offset of the cold file are no record")
        .at_file(file.path())
        .at_offset(at)
}
