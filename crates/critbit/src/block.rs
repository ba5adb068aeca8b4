//! A block of the index: the blind trie of up to 128 keys.
//!
//! ```text
//! slots: u8 (keys - 1, at most 127), positions: u8 (0 for one key, else 1 to slots)
//! positions  the distinct numbers in D, ascending; the first: varint, then the distance to the one before - 1: varint
//! ranks      of each number in D among the positions, in planes: first the highest bit of all ranks, in key order,
//!            the least significant bit of a byte first, filled up with 0 to whole bytes; then the next lower bit, and
//!            so on. There are as many planes as the last rank has bits.
//! ```
//!
//! In planes a set of slots is one machine integer. `find` descends from the smallest rank of a
//! range to the smallest ranks of ever smaller ranges, so the ranks on its way ascend. So `find`
//! visits all ranks in ascending order, and checks for each whether a slot of this rank is in the
//! range. (There is at most one, since it is the smallest rank of its range.) With planes this
//! check is an AND of a few words; packed ranks would need a search through all of them. `parse`
//! and `find` together, over all blocks of a file in turn, take about 230 ns for `db_bench` keys
//! with planes. With packed ranks and a vectorized minimum they took about 400 ns.
//!
//! ```text
//! find(key):
//!     range, passed = all slots, none           the slots between keys lo..=hi; those before key lo
//!     for rank, position in positions:
//!         here = range & (slots of this rank)
//!         if here is empty:                 continue
//!         if bits(key)[position] = 1:       passed = here and all before it;  range = range - passed
//!         else:                             range = those of the range before here
//!     return number of slots passed
//! ```
//!
//! Invariant of a parsed block: each rank is below the number of positions, and no position
//! overflows. `find` stays in bounds without either, and ends after at most 127 turns.

use crate::bits::{bit_at, first_difference, tail};
use crate::pack;
use base::codec::{Reader, get_varint, put_varint};
use base::{Error, Result, SeqNo};

/// Most keys in a block.
pub const BLOCK_KEYS_MAX: usize = 128;

/// Most numbers in `D`, and so most distinct positions.
const SLOTS_MAX: usize = BLOCK_KEYS_MAX - 1;
/// Most bits of a rank.
const RANK_BITS_MAX: usize = BLOCK_KEYS_MAX.ilog2() as usize;
/// Stored positions are below this: enough for keys of 200 MB.
const POSITION_END: u64 = 1 << 31;

/// A set of slots: bit `i` for the slot between key `i` and key `i + 1`.
type Slots = u128;

/// Builds blocks, one after another.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    /// The numbers of `D`, for all keys but the last.
    differences: Vec<u32>,
    len: usize,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    positions: Vec<u32>,
}

impl BlockBuilder {
    /// Returns an empty block.
    pub fn new() -> Self {
        BlockBuilder::default()
    }

    /// Appends a key.
    ///
    /// # Panics
    /// If the block is full, or the key does not come after the one before: user keys ascend, and
    /// the sequences of one user key descend.
    pub fn push(&mut self, user_key: &[u8], seq: SeqNo) {
        assert!(!self.is_full(), "a block has {BLOCK_KEYS_MAX} keys at most");
        assert!(seq <= base::MAX_SEQ, "a sequence over 56 bits");
        if self.len > 0 {
            self.differences.push(first_difference(&self.last_key, self.last_seq, user_key, seq));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(user_key);
        self.last_seq = seq;
        self.len += 1;
    }

    /// Returns the number of keys so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no key can be added.
    pub fn is_full(&self) -> bool {
        self.len == BLOCK_KEYS_MAX
    }

    /// Returns true if there is no key yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the encoding of the block to `out`, and starts the next block.
    ///
    /// # Panics
    /// If the block is empty.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) {
        assert!(!self.is_empty(), "a block has a key");
        self.positions.clear();
        self.positions.extend_from_slice(&self.differences);
        self.positions.sort_unstable();
        self.positions.dedup();
        out.push((self.len - 1) as u8);
        out.push(self.positions.len() as u8);
        let mut next = 0;
        for &position in &self.positions {
            put_varint(out, u64::from(position - next));
            next = position + 1;
        }
        for difference in &mut self.differences {
            *difference = self.positions.partition_point(|p| p < difference) as u32;
        }
        let ranks = &self.differences;
        for bit in (0..rank_bits(self.positions.len())).rev() {
            pack::put(out, 1, ranks.iter().map(|&rank| u64::from(rank >> bit & 1)));
        }
        self.differences.clear();
        self.len = 0;
    }
}

/// Returns the bits of the last rank of `positions` positions.
fn rank_bits(positions: usize) -> usize {
    (usize::BITS - positions.saturating_sub(1).leading_zeros()) as usize
}

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!("key group (crit-bit block) in the index of a value file: {what}"))
}

/// A block, ready to be searched.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    slots: Slots,
    /// The stored bytes.
    positions: &'a [u8],
    /// Plane `i` holds bit `i` of all ranks.
    planes: [Slots; RANK_BITS_MAX],
    rank_bits: usize,
    encoded_len: usize,
}

impl<'a> Block<'a> {
    /// Decodes the block at the start of `bytes`; its end is at [`Block::encoded_len`].
    ///
    /// # Errors
    /// `Corruption` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Block<'a>> {
        let mut reader = Reader::new(bytes);
        let [slot_count, position_count] = reader.array()?.map(usize::from);
        if slot_count > SLOTS_MAX || position_count > slot_count || (slot_count > 0 && position_count == 0) {
            return Err(bad(&format!(
                "the header has {slot_count} key pairs (at most {SLOTS_MAX}) and {position_count} bit \
                 positions"
            )));
        }
        let positions = take_positions(&mut reader, position_count)?;
        let slots: Slots = (1 << slot_count) - 1;
        let rank_bits = rank_bits(position_count);
        let mut planes = [0; RANK_BITS_MAX];
        // Compares all ranks with the last one, from the highest bit down: the slots known to be
        // over it, and those equal so far.
        let last_rank = position_count.saturating_sub(1);
        let (mut over, mut equal) = (0, slots);
        for (bit, plane) in planes.iter_mut().enumerate().take(rank_bits).rev() {
            *plane = plane_of(reader.take(slot_count.div_ceil(8))?);
            over |= *plane & !slots;
            if last_rank >> bit & 1 == 1 {
                equal &= *plane;
            } else {
                over |= equal & *plane;
                equal &= !*plane;
            }
        }
        if over != 0 {
            return Err(bad("a key pair has a rank past the last bit position"));
        }
        let encoded_len = bytes.len().saturating_sub(reader.rest().len());
        Ok(Block { slots, positions, planes, rank_bits, encoded_len })
    }

    /// Returns the number of keys, at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.slots.count_ones() as usize + 1
    }

    /// Returns the bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    /// Returns the ordinal of the only key of the block that can equal this one; that of any key,
    /// if none does.
    pub fn find(&self, user_key: &[u8], seq: SeqNo) -> usize {
        let tail = tail(seq);
        let (mut range, mut passed): (Slots, Slots) = (self.slots, 0);
        // The slots of a rank agree in its two low bits and in its other bits, which change seldom.
        let [plane0, plane1, ..] = self.planes;
        let low = [!(plane0 | plane1), plane0 & !plane1, !plane0 & plane1, plane0 & plane1];
        let mut high = 0;
        let mut rest = self.positions;
        let (mut rank, mut position) = (0, 0);
        while range != 0
            && let Some((distance, len)) = get_varint(rest)
        {
            rest = rest.get(len..).unwrap_or_default();
            position += distance as u32;
            if rank % low.len() == 0 {
                high = self.agreeing(rank, range);
            }
            let here = high & low[rank % low.len()] & range;
            if here != 0 {
                let before = here.wrapping_sub(1) & !here;
                if bit_at(user_key, tail, position) {
                    passed = before << 1 | 1;
                    range &= !passed;
                } else {
                    range &= before;
                }
            }
            rank += 1;
            position += 1;
        }
        passed.count_ones() as usize
    }

    /// Returns the slots of a set whose ranks agree with this one in all but the two lowest bits.
    #[inline(always)]
    fn agreeing(&self, rank: usize, mut set: Slots) -> Slots {
        for (bit, plane) in self.planes.iter().enumerate().take(self.rank_bits).skip(2) {
            set &= if rank >> bit & 1 == 1 { *plane } else { !*plane };
        }
        set
    }
}

/// Takes the positions, checked and still encoded.
fn take_positions<'a>(reader: &mut Reader<'a>, count: usize) -> Result<&'a [u8]> {
    let bytes = reader.rest();
    // The usual case: all distances fit in a byte.
    if let Some(short) = bytes.get(..count).filter(|b| b.iter().all(|b| *b < 0x80)) {
        return reader.take(short.len());
    }
    let mut end = 0u64;
    for _ in 0..count {
        end = end.saturating_add(reader.varint()?).saturating_add(1);
    }
    if end > POSITION_END {
        return Err(bad("a bit position is past the end of the longest key"));
    }
    Ok(bytes.get(..bytes.len().saturating_sub(reader.rest().len())).unwrap_or_default())
}

#[inline(always)]
fn plane_of(bytes: &[u8]) -> Slots {
    match bytes.first_chunk::<16>() {
        Some(bytes) => Slots::from_le_bytes(*bytes),
        None => bytes.iter().rev().fold(0, |plane, &b| plane << 8 | Slots::from(b)),
    }
}

#[cfg(test)]
mod tests;
