//! The value segment: one large value in a file of its own, written once.
//!
//! A value that is long beside a log group passes through neither log nor memtable: it is streamed into a segment, which
//! is its log and its final place at once, and log, memtable and tables carry a reference. Nothing ever copies it, so a
//! byte of it is written to the device once.
//!
//! ```text
//! header, chunk, chunk, ..., chunk, footer
//! ```
//!
//! * [`header`]: whose value this is.
//! * A chunk is up to [`CHUNK_LEN`] bytes of the value and their checksum, masked with the uid of the file and the
//!   offset of the chunk. All chunks but the last have the same length, so the place of any byte of the value is
//!   arithmetic: no index, and a range is read by reading the chunks it touches, each of which is verified before a
//!   byte of it is seen.
//! * [`footer`]: the lengths, and the checksum of the value, which is the checksum of the checksums of its chunks (so
//!   that each byte is hashed once, and the whole is still tied together).
//!
//! Every byte of the file is under a checksum. Memory is constant on both sides: a chunk while writing,
//! [`WINDOW_CHUNKS`] while reading. The sequence of the value is not in the file: it is assigned after the file is durable.
//! The byte map is `docs/format/segment.md`.

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

/// Bytes of the value in a chunk: long enough that the device is busy with one, short enough to be hashed in cache.
pub const CHUNK_LEN: usize = 256 << 10;
/// The longest chunk that a reader allocates for.
pub const CHUNK_LEN_MAX: usize = 4 << 20;
/// Chunks that a reader of a stream asks for where it begins.
pub const RUN_CHUNKS: usize = 4;
/// Chunks that are read at the same time where a long range is read: 4 MiB, as much as a device needs to be busy.
pub const WINDOW_CHUNKS: usize = 16;
/// Bytes behind a chunk: its checksum.
pub const SUM_LEN: usize = 4;

/// How many chunks of `chunk_len` bytes hold a value. `None` if the length is 0.
fn chunks_of(raw_len: u64, chunk_len: u64) -> Option<u64> {
    (chunk_len > 0).then(|| raw_len.div_ceil(chunk_len))
}

/// Checks that bytes are the footer of the segment `uid` of `len` bytes.
pub(crate) fn check_footer(bytes: &[u8; footer::FOOTER_LEN], uid: Uid, len: u64) -> Result<()> {
    footer::Footer::decode(bytes, uid, len).map(|_| ())
}

/// The length of a whole file: header, `raw_len` bytes in chunks of `chunk_len`, footer. `None` if there is none.
pub fn file_len(header_len: u64, raw_len: u64, chunk_len: u64) -> Option<u64> {
    let sums = chunks_of(raw_len, chunk_len)?.checked_mul(SUM_LEN as u64)?;
    header_len.checked_add(raw_len)?.checked_add(sums)?.checked_add(footer::FOOTER_LEN as u64)
}
