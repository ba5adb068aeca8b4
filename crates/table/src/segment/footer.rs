//! The footer of a value segment: its last 64 bytes.
//!
//! ```text
//!  0  uid of the file                16 bytes
//! 16  length of the value            u64
//! 24  length of the file             u64
//! 32  length of the header           u32
//! 36  length of a chunk              u32, without its checksum
//! 40  number of chunks               u32
//! 44  checksum of the value          u32: of the unmasked checksums of its chunks, in a row
//! 48  checksum of all the rest       u32, masked with (uid, offset of the footer)
//! 52  format version                 u32
//! 56  magic                          "LAVASEGM"
//! ```
//!
//! As in every value file and table, version and magic stay at the end and the uid stays 64 bytes
//! before it.

use super::header::HEADER_LEN_MAX;
use super::{CHUNK_LEN_MAX, chunks_of, file_len};
use base::codec::Reader;
use base::{Error, ErrorKind, Result, Uid, checksum, footer};

/// Length of a footer, in bytes.
pub const FOOTER_LEN: usize = footer::LEN;
/// The format version that this release writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// The last bytes of a value segment.
pub const MAGIC: [u8; 8] = *b"LAVASEGM";

/// Contents of a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFooter {
    /// Identity of the file.
    pub uid: Uid,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the file, in bytes.
    pub file_len: u64,
    /// Length of the header with its checksum, in bytes.
    pub header_len: u32,
    /// Bytes of the value in a chunk.
    pub chunk_len: u32,
    /// Number of chunks.
    pub chunks: u32,
    /// Checksum of the value.
    pub checksum: u32,
}

impl SegmentFooter {
    /// Encodes the 64 bytes at the end of the file.
    pub fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut out = [0; FOOTER_LEN];
        out[..16].copy_from_slice(&self.uid.0);
        out[16..24].copy_from_slice(&self.raw_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.file_len.to_le_bytes());
        for (at, n) in [(32, self.header_len), (36, self.chunk_len), (40, self.chunks), (44, self.checksum)] {
            out[at..at + 4].copy_from_slice(&n.to_le_bytes());
        }
        out[52..56].copy_from_slice(&VERSION.to_le_bytes());
        out[56..].copy_from_slice(&MAGIC);
        footer::seal(&mut out, checksum::mask(self.uid, self.file_len - FOOTER_LEN as u64));
        out
    }

    /// Decodes the last bytes of a file of `len` bytes, which must be the file `uid`.
    ///
    /// # Errors
    /// `Unsupported` for a newer version; `Corruption` for all other faults.
    pub fn decode(bytes: &[u8; FOOTER_LEN], uid: Uid, len: u64) -> Result<SegmentFooter> {
        let at = len.saturating_sub(FOOTER_LEN as u64);
        let bad = |why: String| Error::corruption(why).at_offset(at);
        let mut reader = Reader::new(bytes);
        let footer = SegmentFooter {
            uid: Uid(reader.array()?),
            raw_len: reader.u64()?,
            file_len: reader.u64()?,
            header_len: reader.u32()?,
            chunk_len: reader.u32()?,
            chunks: reader.u32()?,
            checksum: reader.u32()?,
        };
        reader.take(8)?;
        if reader.rest() != MAGIC {
            return Err(bad(
                "the file is no value segment (one large value): it lacks the magic number at its end, so \
                 it was cut off or overwritten; other values are not affected"
                    .into(),
            ));
        }
        match footer::judge(bytes, checksum::mask(footer.uid, at), VERSION) {
            footer::FooterState::Sound => {}
            footer::FooterState::Newer(version) => {
                let why = format!(
                    "the value segment has format version {version}, but this release reads up to \
                     {VERSION}: use a newer release"
                );
                return Err(Error::new(ErrorKind::Unsupported, why).at_offset(at));
            }
            footer::FooterState::Damaged => {
                let why = "the checksum of the footer of the value segment does not match: it was \
                           overwritten or cut off, and the value is unreadable; others are not affected";
                return Err(bad(why.into()));
            }
        }
        if footer.uid != uid {
            let why = format!(
                "this value segment has the id {:?}, but the store lists {uid:?} under its name: files \
                 were swapped",
                footer.uid
            );
            return Err(bad(why));
        }
        footer.check_lengths(len).map_err(|e| e.at_offset(at))?;
        Ok(footer)
    }

    /// Checks that all lengths fit a file of `len` bytes.
    fn check_lengths(&self, len: u64) -> Result<()> {
        let (header_len, chunk_len) = (u64::from(self.header_len), u64::from(self.chunk_len));
        let expected = file_len(header_len, self.raw_len, chunk_len);
        let chunks = chunks_of(self.raw_len, chunk_len);
        let sizes_fit = self.header_len as usize <= HEADER_LEN_MAX
            && (1..=CHUNK_LEN_MAX).contains(&(self.chunk_len as usize));
        if sizes_fit && expected == Some(len) && self.file_len == len && chunks == Some(self.chunks.into()) {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "the file has {len} bytes, but its footer states {} bytes, for a value of {} bytes in {} \
             chunks of {} bytes: the value is unreadable",
            self.file_len, self.raw_len, self.chunks, self.chunk_len
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> SegmentFooter {
        let uid = Uid::from_words(5, 6);
        let len = file_len(40, 1000, 300).unwrap();
        SegmentFooter {
            uid,
            raw_len: 1000,
            file_len: len,
            header_len: 40,
            chunk_len: 300,
            chunks: 4,
            checksum: 9,
        }
    }

    #[test]
    fn every_bit_flip_is_detected() {
        let footer = footer();
        let (uid, len) = (footer.uid, footer.file_len);
        assert_eq!(len, 40 + 1000 + 4 * 4 + 64);
        let mut bytes = footer.encode();
        assert_eq!(SegmentFooter::decode(&bytes, uid, len).unwrap(), footer);
        for i in 0..FOOTER_LEN * 8 {
            bytes[i / 8] ^= 1 << (i % 8);
            let e = SegmentFooter::decode(&bytes, uid, len).unwrap_err();
            assert!(e.is_corruption() || e.kind() == ErrorKind::Unsupported, "bit {i}: {e}");
            bytes[i / 8] ^= 1 << (i % 8);
        }
        assert!(SegmentFooter::decode(&bytes, Uid::from_words(5, 7), len).unwrap_err().is_corruption());
        assert!(SegmentFooter::decode(&bytes, uid, len + 1).unwrap_err().is_corruption());
    }

    #[test]
    fn a_newer_version_is_unsupported() {
        let mut bytes = footer().encode();
        bytes[52] = 2;
        footer::seal(&mut bytes, checksum::mask(footer().uid, footer().file_len - FOOTER_LEN as u64));
        let e = SegmentFooter::decode(&bytes, footer().uid, footer().file_len).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn inconsistent_lengths_are_refused_despite_a_valid_checksum() {
        let good = footer();
        for bad in [
            SegmentFooter { raw_len: 1001, ..good },
            SegmentFooter { raw_len: u64::MAX, ..good },
            SegmentFooter { header_len: 41, ..good },
            SegmentFooter { header_len: u32::MAX, ..good },
            SegmentFooter { chunk_len: 0, ..good },
            SegmentFooter { raw_len: 0, chunk_len: 0, chunks: 0, ..good },
            SegmentFooter { chunk_len: 249, ..good },
            SegmentFooter { chunk_len: u32::MAX, ..good },
            SegmentFooter { chunks: 3, ..good },
        ] {
            let e = SegmentFooter::decode(&bad.encode(), good.uid, good.file_len).unwrap_err();
            assert!(e.is_corruption() && e.offset().is_some(), "{e}");
        }
    }
}
