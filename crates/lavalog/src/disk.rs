//! What the files of logs have in common: frames under checksums, a footer, and rows that say where records are.
//!
//! Three kinds of files are written once, from front to back, and named by an edit of the manifest only when they are
//! whole and durable: the index of a group ([`crate::index_file`]), a cold file ([`crate::cold`]) and a checkpoint
//! ([`crate::checkpoint`]). Byte maps: `docs/format/lavalog.md`.
//!
//! * [`footer`]: the last 64 bytes: what file this is, and where its directory lies.
//! * [`output`], [`input`]: writing and reading frames. A *frame* is a payload and its checksum, masked with the uid of the
//!   file and the offset of the frame (see [`base::checksum`]). Frames leave no gaps, so every byte is under a checksum.
//! * [`rows`]: blocks of up to 256 rows of one log, a column at a time.
//! * [`directory`]: for each log in a file which LSNs it has there, and in which blocks.
//! * [`indexed`]: both together, as index files and cold files end with them.
//! * `prefetched`: the ends of many files, read at once.
//! * `recorded`: a file without what was appended to it.
//!
//! Invariant of the readers: no number that is read sizes an allocation before it was held against the length of the
//! file or of the frame it stands in.

pub mod directory;
pub mod footer;
pub mod indexed;
pub mod input;
pub mod output;
pub(crate) mod prefetched;
pub(crate) mod recorded;
pub mod rows;

#[cfg(test)]
#[path = "disk/tests/memory.rs"]
pub(crate) mod memory;

/// Bytes of the checksum at the end of a frame.
pub const SUM_LEN: usize = 4;
