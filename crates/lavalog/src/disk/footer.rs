//! The footer: the last 64 bytes of each file of the engine.
//!
//! ```text
//!  0  uid of the file                16 bytes
//! 16  length of the file             u64
//! 24  offset of the directory        u64
//! 32  length of the directory        u64, its checksum included
//! 40  rows                           u64: records of an index or cold file, logs of a checkpoint
//! 48  checksum of all the rest       u32, masked with (uid, offset of the footer)
//! 52  format version                 u32
//! 56  magic                          by the kind of the file
//! ```
//!
//! The directory ends at the footer. As in all table and value files, the version and the magic are
//! the last bytes, and the uid begins 64 bytes before the end.

use super::SUM_LEN;
use base::codec::Reader;
use base::{Error, ErrorKind, Result, Uid, checksum, footer};

/// Length of a footer, bytes.
pub const FOOTER_LEN: usize = footer::LEN;
/// Version that this release writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Kind of a file of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Index of one log group.
    Index,
    /// Names, trim points, truncations and metadata of all logs.
    Checkpoint,
    /// Records that outlived their log group.
    Cold,
}

impl FileKind {
    /// Returns the number of the kind in the manifest and in file names.
    pub fn number(self) -> u8 {
        match self {
            FileKind::Index => 1,
            FileKind::Checkpoint => 2,
            FileKind::Cold => 3,
        }
    }

    /// Returns the last bytes of a file of this kind.
    pub fn magic(self) -> [u8; 8] {
        match self {
            FileKind::Index => *b"LAVALIDX",
            FileKind::Checkpoint => *b"LAVALCKP",
            FileKind::Cold => *b"LAVALCLD",
        }
    }

    /// Returns the name of the kind in messages.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Index => "log index file",
            FileKind::Checkpoint => "log checkpoint",
            FileKind::Cold => "cold log file",
        }
    }
}

/// A decoded footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Kind of the file.
    pub kind: FileKind,
    /// Identity of the file.
    pub uid: Uid,
    /// Length of the file, bytes.
    pub file_len: u64,
    /// Offset of the directory.
    pub directory_offset: u64,
    /// Length of the directory with its checksum, bytes.
    pub directory_len: u64,
    /// Number of records in an index or cold file, or of logs in a checkpoint.
    pub rows: u64,
}

impl Footer {
    /// Encodes the footer.
    pub fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut out = [0; FOOTER_LEN];
        out[..16].copy_from_slice(&self.uid.0);
        let numbers = [self.file_len, self.directory_offset, self.directory_len, self.rows];
        for (at, n) in (16..).step_by(8).zip(numbers) {
            out[at..at + 8].copy_from_slice(&n.to_le_bytes());
        }
        out[52..56].copy_from_slice(&VERSION.to_le_bytes());
        out[56..].copy_from_slice(&self.kind.magic());
        let at = self.file_len.saturating_sub(FOOTER_LEN as u64);
        footer::seal(&mut out, checksum::mask(self.uid, at));
        out
    }

    /// Decodes the footer of the file `uid` of this kind, which has `len` bytes.
    ///
    /// # Errors
    /// `Unsupported` for a newer version; `Corruption` for any other defect.
    pub fn decode(kind: FileKind, bytes: &[u8; FOOTER_LEN], uid: Uid, len: u64) -> Result<Footer> {
        let at = len.saturating_sub(FOOTER_LEN as u64);
        let bad = |why: String| Error::corruption(why).at_offset(at);
        let mut reader = Reader::new(bytes);
        let footer = Footer {
            kind,
            uid: Uid(reader.array()?),
            file_len: reader.u64()?,
            directory_offset: reader.u64()?,
            directory_len: reader.u64()?,
            rows: reader.u64()?,
        };
        reader.take(8)?;
        if reader.rest() != kind.magic() {
            let name = kind.name();
            return Err(bad(format!(
                "the file is no {name}: the magic number in its last bytes is missing, so the file was cut or damaged"
            )));
        }
        match footer::judge(bytes, checksum::mask(footer.uid, at), VERSION) {
            footer::FooterState::Sound => {}
            footer::FooterState::Newer(version) => {
                let why = format!(
                    "the {} has format version {version}; this release reads up to {VERSION}: use a newer release",
                    kind.name()
                );
                return Err(Error::new(ErrorKind::Unsupported, why).at_offset(at));
            }
            footer::FooterState::Damaged => {
                return Err(bad(format!(
                    "the footer at the end of the {} is damaged, or the file was cut",
                    kind.name()
                )));
            }
        }
        if footer.uid != uid {
            let why = format!(
                "the file has the identity {:?}, expected was {uid:?}: files were swapped",
                footer.uid
            );
            return Err(bad(why));
        }
        let directory_end = footer.directory_offset.checked_add(footer.directory_len);
        if footer.file_len != len || directory_end != Some(at) || footer.directory_len < SUM_LEN as u64 {
            return Err(bad(format!(
                "the file has {len} bytes, but by its footer it has {} bytes, with a directory of {} bytes at offset {}",
                footer.file_len, footer.directory_len, footer.directory_offset
            )));
        }
        Ok(footer)
    }
}
