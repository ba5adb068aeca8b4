//! A block of the index: the blind trie of up to 128 keys.
//!
//! ```text
//! keys - 1: u8 (at most 127), positions: u8 (0 for one key, else 1 to 127)
//! positions  the distinct numbers in D, ascending; the first: varint, then the distance to the one before - 1: varint
//! ranks      for each number in D, in key order, its rank among the positions: width bits each, where width is as
//!            small as the last rank allows; least significant bit first, filled up with 0 to whole bytes
//! ```
//!
//! Invariant of a parsed block: each rank is below the number of positions. [`Block::find`] relies on nothing else.

use crate::bits::{bit_at, first_difference, tail};
use crate::pack;
use base::codec::{Reader, put_varint};
use base::{Error, Result, SeqNo};

/// The most keys in a block.
pub const BLOCK_KEYS_MAX: usize = 128;

/// The most numbers in `D`, and so the most distinct positions.
const SLOTS_MAX: usize = BLOCK_KEYS_MAX - 1;
/// The bits of a slot that hold its own place.
const PLACE_BITS: u32 = BLOCK_KEYS_MAX.ilog2();
/// Bytes of the ranks of a full block with as many positions as can be.
const RANKS_LEN_MAX: usize = (SLOTS_MAX * PLACE_BITS as usize).div_ceil(8);

/// Builds blocks, one after another.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    /// `D`: its numbers for all keys but the last.
    differences: Vec<u32>,
    len: usize,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    positions: Vec<u32>,
}

impl BlockBuilder {
    /// An empty block.
    pub fn new() -> Self {
        BlockBuilder::default()
    }

    /// Appends a key.
    ///
    /// # Panics
    /// If the block is full, or the key does not come after the one before: user keys ascend, and the sequences of
    /// one user key descend.
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

    /// The number of keys so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no key can be added.
    pub fn is_full(&self) -> bool {
        self.len == BLOCK_KEYS_MAX
    }

    /// True if there is no key yet.
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
        let positions = &self.positions;
        let ranks = self.differences.iter().map(|d| positions.partition_point(|p| p < d) as u64);
        pack::put(out, rank_width(positions.len()), ranks);
        self.differences.clear();
        self.len = 0;
    }
}

/// Bits of a rank among `positions`.
fn rank_width(positions: usize) -> u32 {
    pack::width_of(positions.saturating_sub(1) as u64)
}

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!("crit-bit block: {what}"))
}

/// A block, ready to be searched.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    encoding: &'a [u8],
    len: usize,
    positions: [u32; BLOCK_KEYS_MAX],
    /// For each number in `D`: its rank and its place, in one number, so that the least of a range says where it is.
    /// Signed, because that is what vector units have had a minimum of for the longest time.
    slots: [i16; BLOCK_KEYS_MAX],
}

impl<'a> Block<'a> {
    /// Decodes the block at the start of `bytes`; [`Block::encoded_len`] says where it ends.
    ///
    /// # Errors
    /// `Corruption` if it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Block<'a>> {
        let mut reader = Reader::new(bytes);
        let slot_count = usize::from(reader.u8()?);
        let position_count = usize::from(reader.u8()?);
        if slot_count > SLOTS_MAX || position_count > slot_count || (slot_count > 0 && position_count == 0) {
            return Err(bad("a malformed head"));
        }
        let mut positions = [0; BLOCK_KEYS_MAX];
        let mut next = 0u64;
        for position in positions.iter_mut().take(position_count) {
            let at = next.saturating_add(reader.varint()?);
            *position = u32::try_from(at).map_err(|_| bad("a position behind the end of every key"))?;
            next = at.saturating_add(1);
        }
        let width = rank_width(position_count);
        let ranks = reader.take(pack::len(slot_count, width))?;
        let slots = slots(ranks, width, slot_count, position_count)?;
        let encoded_len = bytes.len().saturating_sub(reader.rest().len());
        let encoding = bytes.get(..encoded_len).unwrap_or_default();
        Ok(Block { encoding, len: slot_count + 1, positions, slots })
    }

    /// The number of keys, at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        self.encoding.len()
    }

    /// The ordinal of the only key of the block that can be this one; of any key, if none of them is.
    pub fn find(&self, user_key: &[u8], seq: SeqNo) -> usize {
        let tail = tail(seq);
        let (mut lo, mut hi) = (0, self.len - 1);
        // Each turn leaves fewer keys: the place is in lo..hi because the slots of that range say so themselves.
        while let Some(&least) = self.slots.get(lo..hi).unwrap_or_default().iter().min() {
            let place = least as usize % BLOCK_KEYS_MAX;
            let rank = least as usize / BLOCK_KEYS_MAX;
            let position = self.positions.get(rank).copied().unwrap_or_default();
            debug_assert!((lo..hi).contains(&place));
            if bit_at(user_key, tail, position) {
                lo = place + 1;
            } else {
                hi = place;
            }
        }
        lo
    }
}

/// Unpacks and checks the ranks.
fn slots(ranks: &[u8], width: u32, count: usize, positions: usize) -> Result<[i16; BLOCK_KEYS_MAX]> {
    // Behind the ranks zeros, so that eight ranks are one read of eight bytes wherever they lie.
    let mut padded = [0; RANKS_LEN_MAX + 8];
    if let Some(copy) = padded.get_mut(..ranks.len()) {
        copy.copy_from_slice(ranks);
    }
    let mask = (1u64 << width) - 1;
    let mut slots = [0; BLOCK_KEYS_MAX];
    let mut at = 0;
    let mut rank_max = 0;
    for (group, eight) in slots.chunks_exact_mut(8).enumerate().take(count.div_ceil(8)) {
        let mut word = pack::word_at(&padded, at);
        at += width as usize;
        for (i, slot) in eight.iter_mut().enumerate() {
            let rank = (word & mask) as i16;
            word >>= width;
            rank_max = rank.max(rank_max);
            *slot = rank << PLACE_BITS | (group * 8 + i) as i16;
        }
    }
    let spare_bits = ranks.len() * 8 - count * width as usize;
    let spare = ranks.last().map_or(0, |&last| u32::from(last) >> (8 - spare_bits));
    if rank_max as usize >= positions.max(1) || spare != 0 {
        return Err(bad("a rank that no position has"));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests;
