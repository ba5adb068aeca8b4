//! The cache: two segments under one budget.
//!
//! Invariant: capacity(index) + capacity(data) + ghost tables <= budget at every moment. All
//! changes of capacities happen under the lock of the share, the shrinking side first. Each segment
//! keeps to its own capacity.

use crate::ghost::Ghosts;
use crate::segment::{BlockSegment, Inserted};
use crate::share::{PARTS, Share};
use crate::{Block, CacheKey, Segment};
use base::HashSet;
use base::sync::leaf::{Mutex, MutexGuard, lock};
use base::sync::rank;
use std::fmt;

/// Least bytes per shard at an even split.
const SHARD_BYTES_MIN: usize = 1 << 20;
const SHARDS_MAX: usize = 32;
/// A ghost table has a slot for this many bytes of budget: it reaches half the budget back, in
/// blocks of 4 KB.
const BUDGET_BYTES_PER_GHOST: usize = 8 << 10;
const GHOST_SLOTS_MIN: usize = 64;
const GHOST_SLOTS_MAX: usize = 1 << 22;

/// Shows the use of one part of the cache, counted since the store was opened, and its size now:
/// many misses with `returned_soon` mean that more cache would help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentStats {
    /// Lookups that found their block.
    pub hits: u64,
    /// Lookups that did not; each costs a device read.
    pub misses: u64,
    /// Blocks accepted since the store was opened.
    pub inserts: u64,
    /// Blocks declined because they are too large for a shard of the segment.
    pub declined: u64,
    /// Blocks evicted for others or by a smaller capacity.
    pub evictions: u64,
    /// Inserts of blocks that had been evicted shortly before: a sign that the cache is too small.
    pub returned_soon: u64,
    /// Bytes charged now, overhead included.
    pub bytes: u64,
    /// Blocks held now.
    pub entries: u64,
    /// The most bytes that this part may charge now; the cache moves budget between the parts.
    pub capacity: u64,
}

/// Shows hits, misses and sizes of the block cache, to choose `Options::cache_bytes`; it has one
/// part for indexes and one for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The part for indexes and filters.
    pub index: SegmentStats,
    /// The part for data.
    pub data: SegmentStats,
    /// The budget of the cache, bytes: `Options::cache_bytes` of the store, for both parts and
    /// `ghost_bytes`.
    pub budget_bytes: usize,
    /// Bytes of the budget that remember evicted blocks, to divide the budget between the two
    /// parts.
    pub ghost_bytes: usize,
    /// The index segment's share of the rest, per mille. The cache adapts it by itself.
    pub index_share_per_mille: u64,
}

struct Split {
    budget_bytes: usize,
    ghost_bytes: usize,
    share: Share,
}

/// The unified block cache. `Send + Sync`; share it as `Arc<Cache>`.
///
/// ```
/// use lavastore_cache::{Block, Cache, CacheKey, Segment};
/// let cache = Cache::new(1 << 20);
/// let key = CacheKey { file: 7, offset: 4096 };
/// let block: Block = vec![1, 2, 3].into();
/// cache.insert(Segment::Data, key, &block);
/// assert_eq!(cache.get(Segment::Data, &key), Some(block));
/// assert_eq!(cache.get(Segment::Index, &key), None);
/// cache.remove_file(7);
/// assert_eq!(cache.get(Segment::Data, &key), None);
/// ```
pub struct Cache {
    index: BlockSegment,
    data: BlockSegment,
    /// The budget and its division. The segments are resized under this lock, the shrinking one
    /// first.
    split: Mutex<Split, rank::CacheShare>,
}

impl Cache {
    /// Returns a cache that never holds more than `budget_bytes`; with 0 it holds nothing. This
    /// first budget determines the number of shards, and with it the largest cached block (about a
    /// shard).
    pub fn new(budget_bytes: usize) -> Self {
        let per_segment = budget_bytes / 2;
        let shards = match per_segment / SHARD_BYTES_MIN {
            // A budget that starts at 0 is set later, to a useful value.
            0 if budget_bytes == 0 => SHARDS_MAX / 2,
            n => 1 << n.clamp(1, SHARDS_MAX).ilog2(),
        };
        let cache = Cache {
            index: BlockSegment::new(shards),
            data: BlockSegment::new(shards),
            split: Mutex::new(Split { budget_bytes: 0, ghost_bytes: 0, share: Share::new() }),
        };
        cache.set_budget(budget_bytes);
        cache
    }

    fn segment(&self, segment: Segment) -> &BlockSegment {
        match segment {
            Segment::Index => &self.index,
            Segment::Data => &self.data,
        }
    }

    fn split(&self) -> MutexGuard<'_, Split> {
        lock(&self.split)
    }

    /// Returns the block of `key`, if it is cached in `segment`.
    pub fn get(&self, segment: Segment, key: &CacheKey) -> Option<Block> {
        self.segment(segment).get(key)
    }

    /// Returns true if the block of `key` is cached in `segment`. Does not count as a lookup.
    pub fn contains(&self, segment: Segment, key: &CacheKey) -> bool {
        self.segment(segment).contains(key)
    }

    /// Offers a block to `segment`. Other blocks may be evicted for it, or it is declined; nothing
    /// fails.
    pub fn insert(&self, segment: Segment, key: CacheKey, block: &Block) {
        if let Inserted::Stored { returned_soon: true } = self.segment(segment).insert(key, block) {
            let mut split = self.split();
            if split.share.count(segment) {
                self.apply(&split);
            }
        }
    }

    /// Removes all blocks of a file. Walks over every entry of both segments (tens of nanoseconds
    /// each), with one shard locked at a time; for several files use [`Cache::remove_files`]. A
    /// later insert by a reader of the file does no harm: file numbers are never reused, and unused
    /// blocks are evicted in time.
    pub fn remove_file(&self, file: u64) {
        self.remove_where(&|f| f == file);
    }

    /// Removes all blocks of several files in one walk.
    pub fn remove_files(&self, files: impl IntoIterator<Item = u64>) {
        let files: HashSet<u64> = files.into_iter().collect();
        if !files.is_empty() {
            self.remove_where(&|f| files.contains(&f));
        }
    }

    fn remove_where(&self, dead: &dyn Fn(u64) -> bool) {
        self.index.remove_files(dead);
        self.data.remove_files(dead);
    }

    /// Changes the budget. On return the cache holds no more than that.
    pub fn set_budget(&self, budget_bytes: usize) {
        let mut split = self.split();
        let slots = match budget_bytes {
            0 => 0,
            n => (n / BUDGET_BYTES_PER_GHOST).clamp(GHOST_SLOTS_MIN, GHOST_SLOTS_MAX),
        };
        let mut ghost_bytes = 2 * Ghosts::bytes(slots);
        if ghost_bytes > budget_bytes / 16 {
            ghost_bytes = 0;
        }
        let slots = if ghost_bytes == 0 { 0 } else { slots };
        // In this order the budget also holds during the change. Entries make room for larger
        // tables before those are allocated, and smaller tables are freed before entries take their
        // place.
        let grown = ghost_bytes > split.ghost_bytes || budget_bytes < split.budget_bytes;
        *split = Split { budget_bytes, ghost_bytes, share: std::mem::take(&mut split.share) };
        if grown {
            self.apply(&split);
        }
        for segment in [&self.index, &self.data] {
            segment.reset_ghosts(budget_bytes as u64 / 2, slots);
        }
        self.apply(&split);
    }

    /// Sets the capacities of the split, the shrinking side first.
    fn apply(&self, split: &Split) {
        let budget = split.budget_bytes.saturating_sub(split.ghost_bytes) as u64;
        let (index, data) = split.share.split(budget);
        if index <= self.index.capacity() {
            self.index.set_capacity(index);
            self.data.set_capacity(data);
        } else {
            self.data.set_capacity(data);
            self.index.set_capacity(index);
        }
        assert!(self.index.capacity() + self.data.capacity() <= budget, "capacities exceed the budget");
    }

    /// Returns counts and sizes.
    pub fn stats(&self) -> CacheStats {
        let split = self.split();
        CacheStats {
            index: self.index.stats(),
            data: self.data.stats(),
            budget_bytes: split.budget_bytes,
            ghost_bytes: split.ghost_bytes,
            index_share_per_mille: split.share.index_parts() * 1000 / PARTS,
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests;
