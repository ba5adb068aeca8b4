//! Index entries of records, and the encoding of record positions.
//!
//! A record lies in a *source*: a group of the record lane, or a cold file. One number, `at`, is
//! the position of its first byte. In a cold file `at` is the file offset. In a group it is
//! `block * PAGE + pos`: `block` is the first block of the record's page, counted from the start of
//! the group; `pos` is the position within that page. So records written one after another have
//! nearby positions, which compress well.

use base::SeqNo;
use std::fmt;

/// Number of a logical log, never reused.
pub type LogId = u64;

/// Number of a record within its log, chosen by the writer.
pub type Lsn = u64;

/// Range of `at` for each block of a group: the maximum number of positions in a page.
const PAGE: u64 = io::PAGE as u64;

/// A file with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A group of the record lane, by its segment number (LTN).
    Group(u64),
    /// A cold file, by its file number.
    Cold(u64),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Group(ltn) => write!(f, "log group {ltn}"),
            Source::Cold(number) => write!(f, "cold file {number}"),
        }
    }
}

/// The index entry of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Log of the record.
    pub log: LogId,
    /// Number of the record within the log.
    pub lsn: Lsn,
    /// Sequence number of the append. Garbage collection preserves it when it copies the record.
    pub seq: SeqNo,
    /// Position of the first byte in the source. See the module.
    pub at: u64,
    /// Length of the record, bytes.
    pub len: u32,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { log, lsn, seq, at, len } = self;
        write!(f, "record {lsn} of log {log} (sequence {seq}, position {at}, {len} bytes)")
    }
}

/// Encodes a position in a group from the first block of the page and the position within the page,
/// which is below [`io::PAGE`].
pub fn at(block: u32, pos: u16) -> u64 {
    debug_assert!(u64::from(pos) < PAGE, "position {pos} of a page");
    u64::from(block) * PAGE + u64::from(pos)
}

/// Decodes a position in a group into block and position within the page: the inverse of [`at()`].
/// Returns `None` for a block number beyond any group.
pub fn page_of(at: u64) -> Option<(u32, u16)> {
    Some((u32::try_from(at / PAGE).ok()?, (at % PAGE) as u16))
}
