//! Common parts of the engine's files: frames with checksums, a footer, and rows with record
//! positions.
//!
//! Three kinds of files are written sequentially and once: the index of a group
//! ([`crate::index_file`]), a cold file ([`crate::cold`]) and a checkpoint ([`crate::checkpoint`]).
//! A manifest edit names a file only when it is complete and durable. Byte maps:
//! `docs/format/lavalog.md`.
//!
//! * [`footer`]: the last 64 bytes, with the kind of the file and the position of its directory.
//! * [`output`], [`input`]: writing and reading frames. A *frame* is a payload and its checksum,
//!   masked with the uid of the file and the offset of the frame (see [`base::checksum`]). Frames
//!   leave no gaps, so a checksum covers every byte.
//! * [`rows`]: blocks of up to 256 rows of one log, stored by column.
//! * [`directory`]: the LSNs and blocks of each log in a file.
//! * [`indexed`]: rows and directory together, the end of index files and cold files.
//! * `prefetched`: reads the ends of many files at once.
//! * `recorded`: opens a file at its recorded length, without bytes appended later.
//!
//! Invariant of the readers: a stored number sizes an allocation only after a check against the
//! length of its file or frame.

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

/// Length of the checksum at the end of a frame, bytes.
pub const SUM_LEN: usize = 4;
