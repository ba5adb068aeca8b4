//! Finds the records of a vSST without its index: for repair.
//!
//! Records are contiguous from offset 0, and each contains its own length except the padding, which
//! follows from the alignment. So the uid of the file is enough to walk over them. After a damaged
//! record, the walk tries every offset whose bytes look like a record. The checksum, which is
//! masked with the offset, rejects bytes that only look like one.

use super::record::{self, ALIGNMENT_MAX, RECORD_LEN_MAX, SUM_LEN};
use base::{SeqNo, Uid};
use io::ReadFile;
use std::ops::Range;

/// Length of a read, in bytes, unless a record is longer.
const WINDOW_LEN: usize = 1 << 20;
/// Minimum length of the head of a record: codec, two lengths, the sequence.
const HEAD_LEN_MIN: usize = 10;
/// Number of bytes to checksum in search of records, after which the search gives up.
const SEARCH_LEN_MAX: u64 = 8 << 30;

/// An intact record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// User key.
    pub user_key: Vec<u8>,
    /// Sequence.
    pub seq: SeqNo,
    /// Offset of the record.
    pub offset: u64,
    /// Length with checksum, in bytes.
    pub stored_len: u64,
}

/// Returns all intact records in the first `len` bytes of the vSST `uid`, in file order. Skips
/// unreadable bytes and bytes that are no record. Costs one pass over the file. A crafted file may
/// have many bytes that look like records and are none; then the search gives up after checksums
/// over `SEARCH_LEN_MAX` more bytes.
pub fn find_records(file: &dyn ReadFile, uid: Uid, len: u64) -> Vec<FoundRecord> {
    let mut found = Vec::new();
    each_record(file, uid, 0..len, &mut |record| found.push(record));
    found
}

/// As [`find_records`], in a part of the vSST that begins where a record begins, or began.
pub(crate) fn each_record(
    file: &dyn ReadFile,
    uid: Uid,
    within: Range<u64>,
    take: &mut dyn FnMut(FoundRecord),
) {
    let Range { start, end } = within;
    let mut search = Search { file, uid, len: end, window: Vec::new(), start, alignment: 1 };
    let mut budget = end.saturating_sub(start).saturating_add(SEARCH_LEN_MAX);
    let mut at = start;
    while at < end && budget > 0 {
        match search.record_at(at, &mut budget) {
            Some(record) => {
                at += record.stored_len;
                take(record);
            }
            None => at += 1,
        }
    }
}

struct Search<'a> {
    file: &'a dyn ReadFile,
    uid: Uid,
    len: u64,
    window: Vec<u8>,
    start: u64,
    /// Alignment of the last record.
    alignment: u64,
}

impl Search<'_> {
    /// Returns the bytes from `at` on, at least `want` of them unless the file ends before.
    fn bytes(&mut self, at: u64, want: usize) -> &[u8] {
        let want = want.min((self.len - at) as usize);
        let have = at.checked_sub(self.start).and_then(|skip| self.window.get(skip as usize..));
        if have.is_none_or(|bytes| bytes.len() < want) {
            let n = want.max(WINDOW_LEN).min((self.len - at) as usize);
            self.window.clear();
            self.window.resize(n, 0);
            self.start = at;
            if self.file.read_at(&mut self.window, at).is_err() {
                self.read_in_pages(at);
            }
        }
        let skip = (at - self.start) as usize;
        self.window.get(skip..).unwrap_or_default()
    }

    /// Fills the window with its readable pages, and zeros, which are no record.
    fn read_in_pages(&mut self, at: u64) {
        for (offset, page) in (at..).step_by(io::PAGE).zip(self.window.chunks_mut(io::PAGE)) {
            if self.file.read_at(page, offset).is_err() {
                page.fill(0);
            }
        }
    }

    /// Returns the record at `at`. Its length is that of its parts, rounded up to the alignment of
    /// the file to which it was first written; the checksum tells which.
    fn record_at(&mut self, at: u64, budget: &mut u64) -> Option<FoundRecord> {
        let want = plausible_len(self.bytes(at, HEAD_LEN_MIN))? + ALIGNMENT_MAX as usize;
        let (uid, last) = (self.uid, self.alignment);
        let bytes = self.bytes(at, want);
        let body = record::parse_head(bytes).ok()?.value.end as u64;
        let alignments = (0..=ALIGNMENT_MAX.ilog2()).map(|n| 1u64 << n);
        for alignment in std::iter::once(last).chain(alignments) {
            let stored_len = (body + SUM_LEN as u64).next_multiple_of(alignment);
            let padding = bytes.get(body as usize..(stored_len as usize).checked_sub(SUM_LEN)?)?;
            if padding.iter().any(|&b| b != 0) {
                continue;
            }
            *budget = budget.saturating_sub(stored_len);
            let whole = bytes.get(..stored_len as usize)?;
            if record::verify(whole, uid, at).is_ok()
                && let Ok(shape) = record::parse(whole)
            {
                let user_key = whole.get(shape.key)?.to_vec();
                self.alignment = alignment;
                return Some(FoundRecord { user_key, seq: shape.seq, offset: at, stored_len });
            }
        }
        None
    }
}

/// Returns the minimum length of a record that starts with these bytes, or `None` if no record can.
fn plausible_len(head: &[u8]) -> Option<usize> {
    let mut reader = base::codec::Reader::new(head);
    let codec = reader.u8().ok()?;
    let (key_len, value_len) = (reader.varint().ok()?, reader.varint().ok()?);
    // Zeros are no record: an empty value is never separated.
    let is_zero = head.iter().take(HEAD_LEN_MIN).all(|&b| b == 0);
    let sound = codec <= 2 && key_len <= base::limits::KEY_LEN_MAX as u64 && !is_zero;
    let len = key_len.checked_add(value_len)?.checked_add((HEAD_LEN_MIN + SUM_LEN) as u64)?;
    (sound && len <= RECORD_LEN_MAX as u64).then_some(len as usize)
}
