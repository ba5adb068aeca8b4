//! Device layout, in blocks.
//!
//! A block has 4,096 bytes and a 32-bit number, so a volume has at most 16 TiB. The first
//! [`HEAD_BLOCKS`] blocks hold the two superblock slots and otherwise zeros. All later blocks are
//! allocated in [`Extent`]s, to files and to the journal alike. [`crate::geometry`] describes
//! volumes of two devices.

use base::codec::{Reader, put_varint};
use base::{Error, Result};

/// Block size, in bytes.
pub const BLOCK: u64 = io::BLOCK as u64;
/// Number of blocks before the first allocatable one.
pub const HEAD_BLOCKS: u32 = 32;
/// Blocks of the two superblock slots. They are far apart, so that one misdirected or torn write
/// does not reach both.
pub const SLOTS: [u32; 2] = [1, 16];
/// Minimum size of a volume, in blocks.
pub const VOLUME_BLOCKS_MIN: u64 = 128;
/// Maximum size of a volume, in blocks. The largest block number is reserved as the mark of holes.
pub const VOLUME_BLOCKS_MAX: u64 = u32::MAX as u64;

/// `start` of a hole.
const HOLE: u32 = u32::MAX;

/// A run of blocks, or a hole in the block list of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First block.
    pub start: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl Extent {
    /// Creates a run of blocks.
    pub fn new(start: u32, blocks: u32) -> Self {
        Extent { start, blocks }
    }

    /// Creates a hole.
    pub fn hole(blocks: u32) -> Self {
        Extent { start: HOLE, blocks }
    }

    /// Returns true for a hole.
    pub fn is_hole(self) -> bool {
        self.start == HOLE
    }

    /// Returns the block after the last one; meaningless for a hole.
    pub fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.blocks)
    }

    /// Returns the device offset of the first byte.
    pub fn offset(self) -> u64 {
        u64::from(self.start) * BLOCK
    }

    /// Returns the length in bytes.
    pub fn len(self) -> u64 {
        u64::from(self.blocks) * BLOCK
    }

    /// Returns true if the extent has no blocks.
    pub fn is_empty(self) -> bool {
        self.blocks == 0
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.start));
        put_varint(out, u64::from(self.blocks));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Extent> {
        Ok(Extent { start: decode_u32(r)?, blocks: decode_u32(r)? })
    }
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_hole() {
            true => write!(f, "hole+{}", self.blocks),
            false => write!(f, "{}+{}", self.start, self.blocks),
        }
    }
}

/// Decodes a varint that must fit in 32 bits.
pub(crate) fn decode_u32(r: &mut Reader<'_>) -> Result<u32> {
    let value = r.varint()?;
    u32::try_from(value).map_err(|_| {
        Error::corruption(format!(
            "a block number or count in the journal of the volume is {value}, over 32 bits"
        ))
    })
}

/// Returns the number of blocks of a list, including holes.
pub(crate) fn blocks_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|e| u64::from(e.blocks)).sum()
}

/// Returns the number of blocks of a list, without holes.
pub(crate) fn allocated_of(extents: &[Extent]) -> u64 {
    extents.iter().filter(|e| !e.is_hole()).map(|e| u64::from(e.blocks)).sum()
}

/// Appends an extent to a list. Merges it with the last one if they are contiguous.
pub(crate) fn push(list: &mut Vec<Extent>, extent: Extent) {
    if extent.is_empty() {
        return;
    }
    if let Some(last) = list.last_mut()
        && let Some(blocks) = last.blocks.checked_add(extent.blocks)
        && (last.is_hole() == extent.is_hole())
        && (extent.is_hole() || last.end() == u64::from(extent.start))
    {
        last.blocks = blocks;
        return;
    }
    list.push(extent);
}

/// Splits a list after `blocks` blocks.
pub(crate) fn split_at(extents: &[Extent], blocks: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut left = blocks;
    for &e in extents {
        let head = left.min(u64::from(e.blocks)) as u32;
        left -= u64::from(head);
        let start = if e.is_hole() { e.start } else { e.start + head };
        push(&mut before, Extent { start: e.start, blocks: head });
        push(&mut after, Extent { start, blocks: e.blocks - head });
    }
    (before, after)
}

/// Range of a file: its device offset (`None` for a hole) and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub offset: Option<u64>,
    pub len: u64,
}

/// Returns the pieces of `[offset, offset + len)` of a file, in order. Ends early if the list does.
pub(crate) fn pieces(extents: &[Extent], offset: u64, len: u64) -> Vec<Piece> {
    let mut found = Vec::new();
    let (mut skip, mut left) = (offset, len);
    for e in extents {
        if left == 0 {
            break;
        }
        if skip >= e.len() {
            skip -= e.len();
            continue;
        }
        let n = left.min(e.len() - skip);
        found.push(Piece { offset: (!e.is_hole()).then(|| e.offset() + skip), len: n });
        left -= n;
        skip = 0;
    }
    found
}

/// Returns the bytes of `data` for each piece, with their device offset.
pub(crate) fn cut<'d>(pieces: &[Piece], mut data: &'d [u8]) -> impl Iterator<Item = (&'d [u8], Option<u64>)> {
    pieces.iter().map(move |piece| {
        let (now, later) = data.split_at(piece.len as usize);
        data = later;
        (now, piece.offset)
    })
}

/// Same as [`cut`] for buffers to fill.
pub(crate) fn cut_mut<'d>(
    pieces: &[Piece],
    mut data: &'d mut [u8],
) -> impl Iterator<Item = (&'d mut [u8], Option<u64>)> {
    pieces.iter().map(move |piece| {
        let (now, later) = std::mem::take(&mut data).split_at_mut(piece.len as usize);
        data = later;
        (now, piece.offset)
    })
}

/// Returns the number of blocks that hold `len` bytes.
pub(crate) fn blocks_for(len: u64) -> u64 {
    len.div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_lists_are_split_joined_and_looked_up() {
        let list = [Extent::new(40, 2), Extent::hole(3), Extent::new(50, 4)];
        assert_eq!((blocks_of(&list), allocated_of(&list)), (9, 6));
        for cut in 0..=10 {
            let (mut before, after) = split_at(&list, cut);
            assert_eq!(blocks_of(&before), cut.min(9));
            after.into_iter().for_each(|e| push(&mut before, e));
            assert_eq!(before, list, "cut at {cut}");
        }
        let at = |offset, len| pieces(&list, offset, len);
        let piece = |offset, len| Piece { offset, len };
        assert_eq!(at(10, 20), [piece(Some(40 * BLOCK + 10), 20)]);
        assert_eq!(
            at(BLOCK, 5 * BLOCK),
            [piece(Some(41 * BLOCK), BLOCK), piece(None, 3 * BLOCK), piece(Some(50 * BLOCK), BLOCK)]
        );
        assert_eq!(at(8 * BLOCK, 9 * BLOCK), [piece(Some(53 * BLOCK), BLOCK)], "the list ends early");
        assert_eq!(at(9 * BLOCK, 1), []);
    }
}
