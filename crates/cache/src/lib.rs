//! One memory budget for index blocks, data blocks and values: the unified cache.
//!
//! A [`Cache`] holds verified, uncompressed blocks by [`CacheKey`] (file number and offset) in two
//! segments:
//!
//! * [`Segment::Index`]: index and filter partitions, reference blocks, directories. A lookup that
//!   misses here needs a device read before it even knows which block to read, so these blocks
//!   never compete with data for space: a scan over data cannot push them out.
//! * [`Segment::Data`]: data blocks and values.
//!
//! # Budget
//!
//! The budget is strict: entries, [`ENTRY_OVERHEAD_BYTES`] for each of them, and the ghost tables
//! together never exceed it. A block that does not fit is declined without an error: the caller
//! already has it. A block that a reader still holds after its eviction counts as the reader's
//! memory. The overhead covers the table slot (48 B in a slab that grows by doubling, so up to 96
//! B; 5 B and the empty share of a hash table), and the 16 B header of the `Arc`. Slots of a
//! segment that once held more entries are kept for reuse.
//!
//! # Two levels of policy
//!
//! Inside a segment, `quick_cache` evicts (CLOCK-Pro, scan resistant, sharded). Between the
//! segments the share moves by measured benefit. Each segment keeps fingerprints of its recent
//! evictions (see `ghost`), and a block that returns soon after its eviction would have stayed with
//! a little more space. Both tables reach equally many *bytes* back, so their hit counts compare as
//! hits per byte. Whenever enough such hits are counted and one side has clearly more, 1/256 of the
//! budget changes sides, between 10 % and 90 % (see `share`). This is the ghost-list idea of ARC
//! (Megiddo and Modha, FAST 2003) applied to two partitions.
//!
//! # Determinism
//!
//! The cache is a function of the sequence of calls. `quick_cache` is used without its default
//! features and with an explicit hasher, shard count and capacity. In that configuration it draws
//! no random numbers, reads no clock, starts no threads and does not ask for the number of
//! processors. Locks are held only for a table operation, and no lock waits for anything but such a
//! holder.

mod cache;
mod ghost;
mod segment;
mod share;
mod slice;

pub use cache::{Cache, CacheStats, SegmentStats};
pub use slice::BlockSlice;

use std::sync::Arc;

/// Verified, uncompressed bytes.
pub type Block = Arc<[u8]>;

/// Charge for an entry besides the bytes of its block (see the crate's documentation).
pub const ENTRY_OVERHEAD_BYTES: usize = 128;

/// The two parts of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// Index and filter partitions, reference blocks, directories.
    Index,
    /// Data blocks and values.
    Data,
}

/// Identifies a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheKey {
    /// The number of the file, never reused in the life of a store.
    pub file: u64,
    /// The offset of the block in the file.
    pub offset: u64,
}
