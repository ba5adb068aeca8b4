//! The meta index: lists the blocks of a table other than data blocks, index partitions and filter
//! partitions.
//!
//! ```text
//! section count: varint; for each: tag: u8, offset: varint, frame length: varint
//! ```
//!
//! A reader skips unknown tags below 128, and rejects a table with an unknown tag from 128 on.

use crate::frame::{BlockHandle, FRAME_LEN_MAX};
use base::codec::{Reader, put_varint};
use base::{Error, ErrorKind, Result};

/// Properties; exactly one.
pub const PROPERTIES: u8 = 1;
/// Top index of the reference stream; absent if there is no such stream.
pub const TOP_REFERENCES: u8 = 2;
/// Top index of the inline stream; absent if there is no such stream.
pub const TOP_INLINE: u8 = 3;
/// Range tombstones, sorted within the block; there may be several such sections.
pub const RANGE_TOMBSTONES: u8 = 4;
/// kSST: sizes of entries and fingerprints of some keys ([`base::TableNotes`]); only in long tables
/// with references.
pub const NOTES: u8 = 5;
/// vSST: the root of the directory; exactly one.
pub const DIRECTORY: u8 = 6;
/// vSST: the index of the dense partitions; exactly one.
pub const DENSE_INDEX: u8 = 7;

/// A block listed in the meta index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Kind of the block.
    pub tag: u8,
    /// Place of the block.
    pub handle: BlockHandle,
}

/// Encodes the meta index.
pub fn encode(sections: &[Section]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, sections.len() as u64);
    for s in sections {
        out.push(s.tag);
        put_varint(&mut out, s.handle.offset);
        put_varint(&mut out, s.handle.len);
    }
    out
}

/// Decodes the meta index.
///
/// # Errors
/// `Corruption` if it is malformed, `Unsupported` if an unknown section must not be skipped.
pub fn decode(bytes: &[u8]) -> Result<Vec<Section>> {
    let mut reader = Reader::new(bytes);
    // A section takes at least three bytes.
    let count = reader.length(bytes.len() / 3)?;
    let mut sections = Vec::with_capacity(count);
    for _ in 0..count {
        let tag = reader.u8()?;
        let offset = reader.varint()?;
        let len = reader.length(FRAME_LEN_MAX)? as u64;
        if tag >= 128 {
            let why = format!("the meta index has a section of the unknown kind {tag}: use a newer release");
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        sections.push(Section { tag, handle: BlockHandle { offset, len } });
    }
    if !reader.is_empty() {
        let surplus = reader.rest().len();
        return Err(Error::corruption(format!(
            "the meta index (list of the parts) of the file is followed by {surplus} surplus bytes"
        )));
    }
    let once = |tag| sections.iter().filter(|s| s.tag == tag).count();
    if once(PROPERTIES) != 1 || once(TOP_REFERENCES) > 1 || once(TOP_INLINE) > 1 {
        return Err(Error::corruption(format!(
            "the meta index of the file lists {} properties blocks instead of 1, or {} or {} top indexes \
             of a kind instead of 0 or 1",
            once(PROPERTIES),
            once(TOP_REFERENCES),
            once(TOP_INLINE)
        )));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_mandatory_sections_are_refused() {
        let handle = BlockHandle { offset: 1 << 40, len: 70 };
        let mut all = vec![Section { tag: PROPERTIES, handle }, Section { tag: RANGE_TOMBSTONES, handle }];
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        all.push(Section { tag: 100, handle });
        assert_eq!(decode(&encode(&all)).unwrap(), all, "known or not, it may be skipped");
        all.push(Section { tag: 128, handle });
        assert_eq!(decode(&encode(&all)).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(decode(&encode(&[])).unwrap_err().is_corruption());
        let mut rng = io::Rng::new(52);
        for _ in 0..3000 {
            let mut bytes = encode(&all[..3]);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
            let _ = decode(&bytes);
        }
    }
}
