//! A part: the live records of a log in one file, and the block of the file's index for each of
//! them.
//!
//! The file is the index file of a group, or a cold file. Its directory has the records at the time
//! of writing; the part has those still live. Blocks are found by their first LSNs, because the
//! rank of an LSN changes when other LSNs are removed.
//!
//! A part stores the highest sequence number of its appends. When its file is loaded, this number
//! decides whether a truncation must be applied. A truncation with a lower sequence number was
//! applied before the newest record was appended, and so before the file was written. A truncation
//! with a higher one is newer than all records of the part.

use crate::disk::directory::{Block, LogRows};
use crate::entry::{Lsn, Source};
use crate::lsn_set::LsnSet;
use base::{Error, Result, SeqNo};

/// Bits for the length of a block.
const LEN_BITS: u32 = 16;

/// A packed block: its first LSN when written, and offset and length in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    first: Lsn,
    place: u64,
}

impl Packed {
    fn of(block: &Block) -> Result<Packed> {
        let Block { first, offset, len } = *block;
        if len >= 1 << LEN_BITS || offset >= 1 << (64 - LEN_BITS) {
            return Err(Error::corruption(format!(
                "the length of {len} bytes or the offset {offset} of an index block is out of range"
            )));
        }
        Ok(Packed { first, place: offset << LEN_BITS | u64::from(len) })
    }

    fn block(&self) -> Block {
        let len = (self.place & ((1 << LEN_BITS) - 1)) as u32;
        Block { first: self.first, offset: self.place >> LEN_BITS, len }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Blocks {
    One(Packed),
    Many(Box<[Packed]>),
}

impl Blocks {
    fn all(&self) -> &[Packed] {
        match self {
            Blocks::One(block) => std::slice::from_ref(block),
            Blocks::Many(blocks) => blocks,
        }
    }
}

/// The live records of a log in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsInFile {
    source: Source,
    last_seq: SeqNo,
    set: LsnSet,
    blocks: Blocks,
}

impl RecordsInFile {
    /// Creates a part from a log's entry in the directory of a file.
    ///
    /// # Errors
    /// `Corruption` if there is no block, or a block's position is out of range.
    pub fn of(source: Source, rows: &LogRows) -> Result<RecordsInFile> {
        let blocks: Vec<Packed> = rows.blocks.iter().map(Packed::of).collect::<Result<_>>()?;
        let blocks = match blocks[..] {
            [] => return Err(Error::corruption("a log in the directory of the file has no index blocks")),
            [block] => Blocks::One(block),
            _ => Blocks::Many(blocks.into_boxed_slice()),
        };
        Ok(RecordsInFile { source, last_seq: rows.seqs.1, set: rows.lsns.clone(), blocks })
    }

    /// Returns the source with the records.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the lowest LSN of the log in the file when it was written, a lower bound of the live
    /// LSNs.
    pub fn low(&self) -> Lsn {
        self.blocks.all().first().map_or(0, |block| block.first)
    }

    /// Returns the highest sequence number of the appends.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Returns the live LSNs.
    pub fn set(&self) -> &LsnSet {
        &self.set
    }

    pub(super) fn set_mut(&mut self) -> &mut LsnSet {
        &mut self.set
    }

    /// Returns the only block that can contain an LSN.
    pub(super) fn block_of(&self, lsn: Lsn) -> Block {
        let blocks = self.blocks.all();
        blocks[blocks.partition_point(|block| block.first <= lsn).max(1) - 1].block()
    }

    /// Iterates over the live LSNs from `from` on, as runs within one block each.
    pub(super) fn pieces_from(&self, from: Lsn) -> impl Iterator<Item = (Lsn, Lsn, Block)> + '_ {
        self.set.runs_from(from).flat_map(move |run| {
            let (mut at, last) = (run.first.max(from), run.last());
            std::iter::from_fn(move || {
                if at > last {
                    return None;
                }
                let blocks = self.blocks.all();
                let next = blocks.partition_point(|block| block.first <= at);
                let first = at;
                let end = blocks.get(next).map_or(last, |block| last.min(block.first - 1));
                at = end + 1;
                Some((first, end, blocks[next.max(1) - 1].block()))
            })
        })
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let blocks = match &self.blocks {
            Blocks::One(_) => 0,
            Blocks::Many(blocks) => size_of_val(&**blocks),
        };
        self.set.memory_bytes() + blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn_set::Builder;

    #[test]
    fn every_lsn_is_in_the_block_that_it_was_written_to() {
        let mut rng = io::Rng::new(4);
        for _ in 0..100 {
            let sparse = rng.range(1, 5);
            let lsns: Vec<Lsn> = (0..rng.range(300, 3000)).filter(|_| rng.one_in(sparse)).collect();
            let (mut set, mut blocks, mut offset) = (Builder::default(), Vec::new(), rng.below(1 << 40));
            lsns.iter().for_each(|lsn| set.push(*lsn, 7).unwrap());
            for first in lsns.iter().step_by(256) {
                blocks.push(Block { first: *first, offset, len: rng.range(1, 9999) as u32 });
                offset += 10_000;
            }
            let rows = LogRows { log: 1, seqs: (3, 9), lsns: set.build(), blocks: blocks.clone() };
            let mut part = RecordsInFile::of(Source::Cold(3), &rows).unwrap();
            assert_eq!((part.last_seq(), part.source(), part.set()), (9, Source::Cold(3), &rows.lsns));
            part.set_mut().remove_below(rng.below(200));
            let mut wanted = Vec::new();
            for (i, lsn) in lsns.iter().enumerate().filter(|(_, lsn)| part.set().contains(**lsn)) {
                assert_eq!(part.block_of(*lsn), blocks[i / 256]);
                wanted.push((*lsn, blocks[i / 256]));
            }
            let pieces: Vec<_> = part.pieces_from(0).collect();
            let found = pieces.iter().flat_map(|(first, last, block)| (*first..=*last).map(|l| (l, *block)));
            assert!(found.eq(wanted));
        }
    }
}
