//! The crit-bit index: which record of a value file belongs to a key, in 0.7 to 2.4 bytes a key,
//! half a byte for the trie and the rest for where the records lie (`docs/format/critbit.md` has the measurements).
//!
//! A reader that asks a value file for a key knows from the reference that the record is there, and verifies the key
//! in the record it reads. So the index need not hold keys. It holds, for each two neighbours in key order, only the
//! position of the first bit in which they differ: the array `D`. That is a blind trie (Ferguson's bit tree; the
//! paper this engine follows calls it a crit-bit tree, LavaStore, PVLDB 17(12) 2024, section 3.4). The trie needs no
//! pointers: its shape is the Cartesian tree of `D`, the smallest position at the root.
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
//! Why this is right: among keys `lo..=hi` the smallest of `D` is the first bit in which any two of them differ. Up
//! to that bit they are equal, `lo..=m` have 0 there and `m+1..=hi` have 1, and it occurs once only (a second place
//! would need a 0 after a 1). The 1 before each byte and the 0 at the end make no key's bits a prefix of another's
//! and keep their order: user keys ascend bytewise, and versions of one user key come newest first, as in every
//! other sorted structure of the engine.
//!
//! Blind also means: for a key that is not in the block, `find` returns some other key's ordinal, and nothing in the
//! block can tell. Therefore blocks are chosen by a real comparison of keys, in a directory above them, and therefore
//! nothing is believed before the record was read and its key compared.
//!
//! Random and counted keys differ from their neighbours in few distinct places, about 16 in a block of
//! [`BLOCK_KEYS_MAX`] keys. A [`Block`] stores those once, and for each key but one the rank of its position among
//! them: four bits. Where the records lie is stored beside it, see [`offsets`].
//!
//! Nothing here does I/O. Readers believe no byte: what [`Block::parse`] and [`offsets::Offsets::parse`] accept can
//! be searched without panics and in bounded time, whatever it says.

mod bits;
mod block;
pub mod offsets;
mod pack;

pub use block::{BLOCK_KEYS_MAX, Block, BlockBuilder};
