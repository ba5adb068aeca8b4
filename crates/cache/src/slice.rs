//! A part of a block that keeps the whole block alive, so that values are returned without a copy.

use crate::Block;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A range of a [`Block`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct BlockSlice {
    block: Block,
    start: usize,
    end: usize,
}

impl BlockSlice {
    /// Returns the bytes `range` of `block`.
    ///
    /// # Panics
    /// If the range is not inside the block. For a range from storage, use [`BlockSlice::checked`].
    pub fn new(block: Block, range: Range<usize>) -> Self {
        let (start, end, len) = (range.start, range.end, block.len());
        Self::checked(block, range)
            .unwrap_or_else(|| panic!("range {start}..{end} of a block of {len} bytes"))
    }

    /// Returns the bytes `range` of `block`, if they are inside it.
    pub fn checked(block: Block, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= block.len()).then_some(BlockSlice {
            block,
            start: range.start,
            end: range.end,
        })
    }

    /// Returns a part of this part: `range` counts from the start of the slice.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.start.checked_add(range.start)?;
        let end = self.start.checked_add(range.end)?;
        (end <= self.end).then(|| Self::checked(self.block.clone(), start..end)).flatten()
    }

    /// Returns the block.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl Deref for BlockSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // The constructors checked the range, and blocks do not change.
        &self.block[self.start..self.end]
    }
}

impl AsRef<[u8]> for BlockSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Block> for BlockSlice {
    fn from(block: Block) -> Self {
        let end = block.len();
        BlockSlice { block, start: 0, end }
    }
}

impl From<Vec<u8>> for BlockSlice {
    fn from(bytes: Vec<u8>) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl From<&[u8]> for BlockSlice {
    fn from(bytes: &[u8]) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl PartialEq for BlockSlice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for BlockSlice {}

impl fmt::Debug for BlockSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        let shown = self.get(..SHOWN).unwrap_or(self);
        write!(f, "BlockSlice({} B: \"{}\"", self.len(), shown.escape_ascii())?;
        f.write_str(if shown.len() < self.len() { "...)" } else { ")" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside_their_block() {
        let block: Block = Arc::from(&b"0123456789"[..]);
        let s = BlockSlice::new(block.clone(), 2..8);
        assert_eq!(&*s, b"234567");
        assert_eq!(&*s.slice(1..3).unwrap(), b"34");
        assert_eq!(s.slice(0..7), None, "beyond the slice, though inside the block");
        assert_eq!(s.slice(usize::MAX..usize::MAX), None);
        let backwards = Range { start: 5, end: 4 };
        assert_eq!(BlockSlice::checked(block.clone(), backwards.clone()), None);
        assert_eq!(s.slice(backwards), None);
        assert_eq!(BlockSlice::checked(block, 0..11), None);
        assert_eq!(BlockSlice::from(vec![1, 2]).as_ref(), &[1, 2]);
        assert_eq!(format!("{s:?}"), "BlockSlice(6 B: \"234567\")");
        assert!(BlockSlice::default().is_empty());
    }
}
