//! The crit-bit index: maps a key to its record in a value file, in 0.7 to 2.4 bytes per key. Half
//! a byte is for the trie and the rest for the places of the records (`docs/format/critbit.md` has
//! the measurements).
//!
//! A reader of a value file knows from the reference that the record exists, and verifies the key
//! in the record it reads. So the index need not hold keys. For each two neighbors in key order it
//! holds only the position of the first bit in which they differ: the array `D`. That is a blind
//! trie (Ferguson's bit tree; the paper behind this engine calls it a crit-bit tree, LavaStore,
//! PVLDB 17(12) 2024, section 3.4). The trie needs no pointers: its shape is the Cartesian tree of
//! `D`, the smallest position at the root.
//!
//! ```text
//! bits(user key, sequence) = for each byte of the key: 1, then its 8 bits; then 0; then the 56 bits of !sequence
//! D[i]                     = the first position at which bits(key i) and bits(key i + 1) differ
//!
//! find(key):
//!     lo, hi = 0, n - 1                     the key can only be one of lo..=hi
//!     while lo < hi:
//!         m = the place of the smallest of D[lo..hi]
//!         if bits(key)[D[m]] = 1:  lo = m + 1
//!         else:                    hi = m
//!     return lo
//! ```
//!
//! Correctness: among keys `lo..=hi` the smallest of `D` is the first bit in which any two of them
//! differ. Up to that bit they are equal, `lo..=m` have 0 there and `m+1..=hi` have 1. The smallest
//! value occurs only once (a second place would need a 0 after a 1). The 1 before each byte and the
//! 0 at the end make the bits prefix-free and preserve the order. User keys ascend bytewise, and
//! versions of one user key come newest first, as in every other sorted structure of the engine.
//!
//! Blind also means that for a key that is not in the block, `find` returns the ordinal of some
//! other key, and the block cannot tell. So a directory above the blocks chooses them by real
//! comparisons of keys, and no result is trusted before the record was read and its key compared.
//!
//! Random and sequential keys differ from their neighbors in few distinct positions, about 16 in a
//! block of [`BLOCK_KEYS_MAX`] keys. A [`Block`] stores those once, and for each key but one the
//! rank of its position among them: four bits. The places of the records are stored beside it, see
//! [`offsets`].
//!
//! This crate does no I/O. Readers trust no byte: a block or offsets accepted by [`Block::parse`]
//! and [`offsets::Offsets::parse`] can be searched without panics and in bounded time, for any
//! contents.

mod bits;
mod block;
pub mod offsets;
mod pack;

pub use block::{BLOCK_KEYS_MAX, Block, BlockBuilder};
