//! The footer: the last 64 bytes of a table, which lead to everything else. kSSTs and vSSTs differ
//! in the magic.
//!
//! ```text
//!  0  uid of the file                16 bytes
//! 16  offset of the meta index       u64
//! 24  length of its frame            u32
//! 28  flags                          u32, 0
//! 32  length of the file             u64
//! 40  reserved                       8 bytes, 0
//! 48  checksum of all the rest       u32, masked with (uid, offset of the footer)
//! 52  format version                 u32
//! 56  magic                          "LAVAKSST" or "LAVAVSST"
//! ```
//!
//! Version and magic stay at the end in every version, so that an older release can distinguish a
//! newer file from damage.

use crate::frame::{BlockHandle, FRAME_LEN_MAX};
use base::codec::Reader;
use base::{Error, ErrorKind, Result, Uid, checksum, footer};

/// Length of a footer, in bytes.
pub const FOOTER_LEN: usize = footer::LEN;
/// The format version that this release writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// The last bytes of a kSST.
pub const MAGIC: [u8; 8] = *b"LAVAKSST";
/// The last bytes of a vSST.
pub const VSST_MAGIC: [u8; 8] = *b"LAVAVSST";

/// Kind of a file with a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Keys and small values.
    Ksst,
    /// Separated values.
    Vsst,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            FileKind::Ksst => MAGIC,
            FileKind::Vsst => VSST_MAGIC,
        }
    }

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Ksst => "key table (kSST)",
            FileKind::Vsst => "value file (vSST)",
        }
    }
}

/// Contents of a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Identity of the file.
    pub uid: Uid,
    /// Place of the meta index.
    pub meta: BlockHandle,
    /// Length of the whole file.
    pub file_len: u64,
}

impl Footer {
    /// Encodes the 64 bytes at the end of a kSST.
    pub fn encode(&self) -> [u8; FOOTER_LEN] {
        self.encode_as(FileKind::Ksst)
    }

    /// Encodes the 64 bytes at the end of a file of some kind.
    pub fn encode_as(&self, kind: FileKind) -> [u8; FOOTER_LEN] {
        let mut out = [0; FOOTER_LEN];
        out[..16].copy_from_slice(&self.uid.0);
        out[16..24].copy_from_slice(&self.meta.offset.to_le_bytes());
        out[24..28].copy_from_slice(&(self.meta.len as u32).to_le_bytes());
        out[32..40].copy_from_slice(&self.file_len.to_le_bytes());
        out[52..56].copy_from_slice(&VERSION.to_le_bytes());
        out[56..].copy_from_slice(&kind.magic());
        footer::seal(&mut out, checksum::mask(self.uid, self.file_len - FOOTER_LEN as u64));
        out
    }

    /// Decodes the last bytes of a kSST of `file_len` bytes, which must be the file `uid`.
    ///
    /// # Errors
    /// As [`Footer::decode_as`].
    pub fn decode(bytes: &[u8; FOOTER_LEN], uid: Uid, file_len: u64) -> Result<Footer> {
        Self::decode_as(FileKind::Ksst, bytes, uid, file_len)
    }

    /// Decodes the last bytes of a file of `file_len` bytes, which must be the file `uid`.
    ///
    /// # Errors
    /// `Unsupported` for a newer version; `Corruption` for all other faults.
    pub fn decode_as(kind: FileKind, bytes: &[u8; FOOTER_LEN], uid: Uid, file_len: u64) -> Result<Footer> {
        let name = kind.name();
        let at = file_len.saturating_sub(FOOTER_LEN as u64);
        let bad = |why: String| Error::corruption(why).at_offset(at);
        let mut reader = Reader::new(bytes);
        let stored_uid = Uid(reader.array()?);
        let meta = BlockHandle { offset: reader.u64()?, len: u64::from(reader.u32()?) };
        let flags = reader.u32()?;
        let stored_len = reader.u64()?;
        reader.take(8)?;
        reader.take(8)?;
        if reader.rest() != kind.magic() {
            return Err(bad(format!(
                "the file is no {name}: it lacks the magic number at its end, so it was cut off, \
                 overwritten or exchanged; other files are not affected"
            )));
        }
        match footer::judge(bytes, checksum::mask(stored_uid, at), VERSION) {
            footer::FooterState::Sound => {}
            footer::FooterState::Newer(version) => {
                let why = format!(
                    "the {name} has format version {version}, but this release reads up to {VERSION}: use \
                     a newer release"
                );
                return Err(Error::new(ErrorKind::Unsupported, why).at_offset(at));
            }
            footer::FooterState::Damaged => {
                return Err(bad(format!(
                    "the checksum of the footer of the {name} does not match: it was overwritten or cut \
                     off, and the file is unreadable; other files are not affected"
                )));
            }
        }
        if stored_uid != uid {
            return Err(bad(format!(
                "this {name} has the id {stored_uid:?}, but the store lists {uid:?} under its name: files \
                 were swapped"
            )));
        }
        if flags != 0 {
            let why = format!("the footer of the {name} has unknown flags {flags:#x}: use a newer release");
            return Err(Error::new(ErrorKind::Unsupported, why).at_offset(at));
        }
        if stored_len != file_len || meta.len > FRAME_LEN_MAX as u64 || meta.end() != at {
            return Err(bad(format!(
                "the file has {file_len} bytes and its footer begins at byte {at}, but the footer states \
                 {stored_len} bytes, and an end of the meta index before it at byte {}",
                meta.end()
            )));
        }
        Ok(Footer { uid, meta, file_len })
    }
}

/// Returns the identity in a file's footer, unchecked: for listings of files without their
/// manifest.
///
/// # Errors
/// `Corruption` if the file is shorter than a footer; the errors of reading.
pub fn uid_of(file: &dyn io::ReadFile) -> Result<Uid> {
    let len = file.len()?;
    let at = len.checked_sub(FOOTER_LEN as u64);
    let at = at.ok_or_else(|| {
        let why =
            format!("the file has {len} bytes, fewer than a footer of {FOOTER_LEN} bytes: it was cut off");
        Error::corruption(why).at_file(file.path())
    })?;
    let mut uid = [0; 16];
    file.read_at(&mut uid, at)?;
    Ok(Uid(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_flip_is_detected() {
        let uid = Uid::from_words(5, 6);
        let footer = Footer { uid, meta: BlockHandle { offset: 900, len: 36 }, file_len: 1000 };
        let mut bytes = footer.encode();
        assert_eq!(Footer::decode(&bytes, uid, 1000).unwrap(), footer);
        for i in 0..FOOTER_LEN * 8 {
            bytes[i / 8] ^= 1 << (i % 8);
            let e = Footer::decode(&bytes, uid, 1000).unwrap_err();
            assert!(e.is_corruption() || e.kind() == ErrorKind::Unsupported, "bit {i}: {e}");
            bytes[i / 8] ^= 1 << (i % 8);
        }
        assert!(Footer::decode(&bytes, Uid::from_words(5, 7), 1000).unwrap_err().is_corruption());
        assert!(Footer::decode(&bytes, uid, 1001).unwrap_err().is_corruption());
    }

    #[test]
    fn a_newer_version_is_unsupported() {
        let uid = Uid::from_words(5, 6);
        let footer = Footer { uid, meta: BlockHandle { offset: 900, len: 36 }, file_len: 1000 };
        let mut bytes = footer.encode();
        bytes[52] = 2;
        footer::seal(&mut bytes, checksum::mask(uid, 936));
        assert_eq!(Footer::decode(&bytes, uid, 1000).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    /// Both footers have a valid checksum.
    #[test]
    fn encodings_that_no_release_writes_are_refused() {
        let uid = Uid::from_words(5, 6);
        let short = Footer { uid, meta: BlockHandle { offset: 900, len: 30 }, file_len: 1000 };
        let e = Footer::decode(&short.encode(), uid, 1000).unwrap_err();
        let told = "the file has 1000 bytes and its footer begins at byte 936, but the footer states 1000 \
                    bytes, and an end of the meta index before it at byte 930";
        assert_eq!((e.message(), e.offset()), (told, Some(936)));
        let mut bytes = Footer { meta: BlockHandle { offset: 900, len: 36 }, ..short }.encode();
        bytes[28] = 1;
        footer::seal(&mut bytes, checksum::mask(uid, 936));
        let e = Footer::decode(&bytes, uid, 1000).unwrap_err();
        let told = "the footer of the key table (kSST) has unknown flags 0x1: use a newer release";
        assert_eq!((e.kind(), e.message()), (ErrorKind::Unsupported, told));
    }
}
