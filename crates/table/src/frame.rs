//! Frames: the form of every block in the file.
//!
//! ```text
//! payload, codec: u8, checksum of payload and codec: u32
//! ```
//!
//! The checksum is masked with the uid of the file and the offset of the frame, so a block that is
//! stale or misplaced fails like a damaged one. Frames follow each other without gaps up to the
//! footer: every byte of a table is under some checksum.

use base::codec::put_u32;
use base::{Compression, Error, ErrorKind, Result, Uid, checksum, limits};

/// Number of bytes after the payload of a frame.
pub const TRAILER_LEN: usize = 5;
/// Maximum length of a frame for which a reader allocates.
pub const FRAME_LEN_MAX: usize = limits::BLOCK_LEN_MAX + TRAILER_LEN;

/// Place of a frame: offset and length, trailer included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHandle {
    /// Offset in the file.
    pub offset: u64,
    /// Length of the frame, in bytes.
    pub len: u64,
}

impl BlockHandle {
    /// Returns the offset after the frame.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Turns the payload from `start` to the end of `buf` into a frame, with an unmasked checksum.
pub fn seal(buf: &mut Vec<u8>, start: usize, codec: Compression) {
    buf.push(codec as u8);
    let sum = checksum::checksum(&buf[start..]);
    put_u32(buf, sum);
}

/// Masks (or unmasks) the checksum of a sealed frame.
pub fn mask(frame: &mut [u8], uid: Uid, offset: u64) {
    if let Some(sum) = frame.last_chunk_mut::<4>() {
        *sum = (u32::from_le_bytes(*sum) ^ checksum::mask(uid, offset)).to_le_bytes();
    }
}

/// Verifies a frame read from `offset`. Returns its codec and payload.
///
/// # Errors
/// `Corruption` if the frame is not the one written there; `Unsupported` for an unknown codec.
pub fn open(frame: &[u8], uid: Uid, offset: u64) -> Result<(Compression, &[u8])> {
    let short = || {
        let len = frame.len();
        let why = format!(
            "the block in the file has {len} bytes, fewer than its trailer of {TRAILER_LEN} (codec and \
             checksum)"
        );
        Error::corruption(why).at_offset(offset)
    };
    let (body, sum) = frame.split_last_chunk::<4>().ok_or_else(short)?;
    checksum::verify(body, uid, offset, u32::from_le_bytes(*sum))?;
    let (&codec, payload) = body.split_last().ok_or_else(short)?;
    let codec = Compression::from_u8(codec).ok_or_else(|| {
        let why = format!("the block has the unknown compression codec {codec}: use a newer release");
        Error::new(ErrorKind::Unsupported, why).at_offset(offset)
    })?;
    Ok((codec, payload))
}

/// Checks that all codecs of a set (bit `n` for codec `n`) are known.
///
/// # Errors
/// `Unsupported` if a codec is unknown.
pub fn check_codecs(codecs: u64) -> Result<()> {
    let unknown = (0..64u8).find(|&n| codecs >> n & 1 == 1 && Compression::from_u8(n).is_none());
    match unknown {
        None => Ok(()),
        Some(n) => {
            let why =
                format!("the file has blocks of the unknown compression codec {n}: use a newer release");
            Err(Error::new(ErrorKind::Unsupported, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bound_to_their_offset_and_detect_bit_flips() {
        let uid = Uid::from_words(3, 4);
        let mut buf = b"before".to_vec();
        buf.extend_from_slice(b"payload");
        seal(&mut buf, 6, Compression::Lz4);
        let mut frame = buf[6..].to_vec();
        mask(&mut frame, uid, 99);
        assert_eq!(open(&frame, uid, 99).unwrap(), (Compression::Lz4, &b"payload"[..]));
        assert!(open(&frame, uid, 98).unwrap_err().is_corruption());
        for i in 0..frame.len() * 8 {
            frame[i / 8] ^= 1 << (i % 8);
            let e = open(&frame, uid, 99).unwrap_err();
            assert!(e.is_corruption() && e.offset() == Some(99));
            frame[i / 8] ^= 1 << (i % 8);
        }
        for len in 0..frame.len() {
            assert!(open(&frame[..len], uid, 99).is_err());
        }
    }

    #[test]
    fn an_unknown_codec_is_unsupported() {
        let uid = Uid::from_words(3, 4);
        let mut frame = b"payload".to_vec();
        frame.push(200);
        let sum = checksum::stored(&frame, uid, 99);
        frame.extend_from_slice(&sum.to_le_bytes());
        let e = open(&frame, uid, 99).unwrap_err();
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Unsupported, Some(99)));
        assert!(e.message().starts_with("the block has the unknown compression codec 200"), "{e}");
    }
}
