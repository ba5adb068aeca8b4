//! The value segment: one large value in its own file, written once.
//!
//! A value that is long compared to a log group passes through neither log nor memtable. It is
//! streamed into a segment, which serves as its log and its final place, and log, memtable and
//! tables carry a reference. No job ever copies it, so each of its bytes is written to the device
//! once.
//!
//! ```text
//! header, chunk, chunk, ..., chunk, footer
//! ```
//!
//! * [`header`]: the key of the value.
//! * A chunk is up to [`CHUNK_LEN`] bytes of the value and their checksum, masked with the uid of
//!   the file and the offset of the chunk. All chunks but the last have the same length, so the
//!   place of any byte of the value is computed without an index. A range is read by reading the
//!   chunks that it overlaps, each of which is verified before any of its bytes is used.
//! * [`footer`]: the lengths, and the checksum of the value, which is the checksum of the checksums
//!   of its chunks. So each byte is hashed once, and the whole value is still verified.
//!
//! Every byte of the file is under a checksum. Memory is constant on both sides: a chunk while
//! writing, [`WINDOW_CHUNKS`] while reading. The sequence of the value is not in the file: it is
//! assigned after the file is durable. The byte map is `docs/format/segment.md`.

pub mod footer;
pub mod header;
mod reader;
pub mod reference;
mod writer;

use base::{Result, Uid};

pub use header::SegmentIdentity;
pub use reader::{SegmentCheck, SegmentReader};
pub use reference::{RecordReference, SegmentReference};
pub use writer::{FinishedSegment, SegmentWriter};

/// Bytes of the value in a chunk: long enough to keep the device busy, short enough to be hashed in
/// cache.
pub const CHUNK_LEN: usize = 256 << 10;
/// Maximum length of a chunk for which a reader allocates.
pub const CHUNK_LEN_MAX: usize = 4 << 20;
/// Number of chunks that a stream reader requests at its start.
pub const RUN_CHUNKS: usize = 4;
/// Number of chunks read in parallel for a long range: 4 MiB, enough to keep a device busy.
pub const WINDOW_CHUNKS: usize = 16;
/// Length of the checksum after a chunk, in bytes.
pub const SUM_LEN: usize = 4;

/// Returns the number of chunks of `chunk_len` bytes that hold a value, or `None` if the length is
/// 0.
fn chunks_of(raw_len: u64, chunk_len: u64) -> Option<u64> {
    (chunk_len > 0).then(|| raw_len.div_ceil(chunk_len))
}

/// Checks that bytes are the footer of the segment `uid` of `len` bytes.
pub(crate) fn check_footer(bytes: &[u8; footer::FOOTER_LEN], uid: Uid, len: u64) -> Result<()> {
    footer::SegmentFooter::decode(bytes, uid, len).map(|_| ())
}

/// Returns the length of a whole file: header, `raw_len` bytes in chunks of `chunk_len`, footer.
/// Returns `None` on overflow, or if the chunk length is 0.
pub fn file_len(header_len: u64, raw_len: u64, chunk_len: u64) -> Option<u64> {
    let sums = chunks_of(raw_len, chunk_len)?.checked_mul(SUM_LEN as u64)?;
    header_len.checked_add(raw_len)?.checked_add(sums)?.checked_add(footer::FOOTER_LEN as u64)
}
