//! One segment: a `quick_cache` of blocks, its ghosts, and its counters.
//!
//! `quick_cache` keeps its own ghosts to decide which returning block is admitted as hot. They are
//! disabled, because they shrink with every change of capacity and never grow back. Instead, a
//! block that this crate's ghosts recognize is touched once after its insertion, so the clock hand
//! promotes it where it would have evicted it.
//!
//! A shard of `quick_cache` is locked before the ghosts are. (It has no rank: this is the only code
//! of LavaStore called under it.) Blocks evicted by an insert are freed outside of both locks.

use crate::ghost::Ghosts;
use crate::{Block, CacheKey, ENTRY_OVERHEAD_BYTES, SegmentStats};
use base::hash::FixedHasher;
use base::sync::leaf::{Mutex, MutexGuard, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use quick_cache::sync::Cache as QuickCache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

type FixedState = BuildHasherDefault<FixedHasher>;

/// Counters are striped, so that threads that hit different blocks do not share a cache line.
const STRIPES: usize = 16;

/// A block that returns within this many quanta of evictions (of [`crate::ghost::REACH_QUANTA`])
/// would have stayed with a little more space; one that returns later is only admitted as warmer.
const NEAR_QUANTA: u64 = 4;

/// Returns the charge for a block of `len` bytes.
pub fn weight(len: usize) -> u64 {
    len as u64 + ENTRY_OVERHEAD_BYTES as u64
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, Block> for ByBytes {
    fn weight(&self, _: &CacheKey, block: &Block) -> u64 {
        weight(block.len())
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Records of evictions.
struct Evictions {
    /// Ghosts of evicted blocks. Locked inside a shard of `quick_cache`, which reports evictions.
    ghosts: Mutex<Ghosts, rank::CacheGhosts>,
    count: AtomicU64,
}

impl Evictions {
    fn ghosts(&self) -> MutexGuard<'_, Ghosts> {
        lock(&self.ghosts)
    }

    fn record(&self, evicted: &[(CacheKey, Block)]) {
        let mut ghosts = self.ghosts();
        for (key, block) in evicted {
            ghosts.record(hash(key), weight(block.len()));
        }
        self.count.fetch_add(evicted.len() as u64, Relaxed);
    }
}

/// Receives the evictions of `quick_cache`.
#[derive(Clone)]
struct Hook(Arc<Evictions>);

impl Lifecycle<CacheKey, Block> for Hook {
    type RequestState = Vec<(CacheKey, Block)>;

    fn begin_request(&self) -> Self::RequestState {
        Vec::new()
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, key: CacheKey, block: Block) {
        evicted.push((key, block));
    }

    /// Runs after a change of capacity; inserts collect their evictions themselves.
    fn end_request(&self, evicted: Self::RequestState) {
        self.0.record(&evicted);
    }
}

fn hash(key: &CacheKey) -> u64 {
    FixedState::default().hash_one(key)
}

/// Result of an insert.
pub enum Inserted {
    /// Larger than a shard of the segment may hold.
    Declined,
    /// In the cache; `returned_soon` if the block was evicted shortly before.
    Stored { returned_soon: bool },
}

/// One part of the cache.
pub struct BlockSegment {
    blocks: QuickCache<CacheKey, Block, ByBytes, FixedState, Hook>,
    evictions: Arc<Evictions>,
    lookups: [Lookups; STRIPES],
    inserts: AtomicU64,
    declined: AtomicU64,
    returned_soon: AtomicU64,
    /// The largest weight that a shard accepts.
    weight_max: AtomicU64,
}

impl BlockSegment {
    /// Returns an empty segment of capacity 0, in `shards` (a power of two) equal parts.
    pub fn new(shards: usize) -> Self {
        let evictions =
            Arc::new(Evictions { ghosts: Mutex::new(Ghosts::new(0, 0)), count: AtomicU64::new(0) });
        // Both capacities are set, so that building cannot fail. The estimate of items only has to
        // suffice for the requested shards: it sizes nothing else while there are no ghosts.
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(shards * 64)
            .weight_capacity(0)
            .ghost_allocation(0.0)
            .build()
            .unwrap_or_else(|e| unreachable!("options are complete: {e}"));
        let blocks =
            QuickCache::with_options(options, ByBytes, FixedState::default(), Hook(evictions.clone()));
        debug_assert_eq!(blocks.num_shards(), shards);
        BlockSegment {
            blocks,
            evictions,
            lookups: Default::default(),
            inserts: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            returned_soon: AtomicU64::new(0),
            weight_max: AtomicU64::new(0),
        }
    }

    /// Replaces the ghosts by an empty table of `slots` slots, which reaches `reach_bytes` back.
    pub fn reset_ghosts(&self, reach_bytes: u64, slots: usize) {
        *self.evictions.ghosts() = Ghosts::new(reach_bytes, slots);
    }

    pub fn get(&self, key: &CacheKey) -> Option<Block> {
        let found = self.blocks.get(key);
        let stripe = &self.lookups[(hash(key) >> 48) as usize % STRIPES];
        if found.is_some() { &stripe.hits } else { &stripe.misses }.fetch_add(1, Relaxed);
        found
    }

    pub fn contains(&self, key: &CacheKey) -> bool {
        self.blocks.contains_key(key)
    }

    pub fn insert(&self, key: CacheKey, block: &Block) -> Inserted {
        if weight(block.len()) > self.weight_max.load(Relaxed) {
            self.declined.fetch_add(1, Relaxed);
            return Inserted::Declined;
        }
        let age = self.evictions.ghosts().take(hash(&key));
        let mut evicted = self.blocks.insert_with_lifecycle(key, block.clone());
        // A block that replaces itself is reported like an evicted one.
        evicted.retain(|(k, _)| *k != key);
        if !evicted.is_empty() {
            self.evictions.record(&evicted);
        }
        if age.is_some() {
            self.blocks.get(&key);
        }
        self.inserts.fetch_add(1, Relaxed);
        let returned_soon = age.is_some_and(|quanta| quanta <= NEAR_QUANTA);
        if returned_soon {
            self.returned_soon.fetch_add(1, Relaxed);
        }
        Inserted::Stored { returned_soon }
    }

    /// Removes the blocks of the files for which `dead` is true. Walks the whole segment, one shard
    /// at a time.
    pub fn remove_files(&self, dead: &dyn Fn(u64) -> bool) {
        self.blocks.retain(|key, _| !dead(key.file));
    }

    pub fn capacity(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Sets the capacity, rounded down to equal shards, and evicts the excess.
    pub fn set_capacity(&self, bytes: u64) {
        let shards = self.blocks.num_shards() as u64;
        let shard_bytes = bytes / shards;
        // Slightly below the limit of the shard itself (its hot part, 97 %), so that a refusal is
        // counted as declined.
        self.weight_max.store(shard_bytes - shard_bytes / 16, Relaxed);
        self.blocks.set_capacity(shard_bytes * shards);
    }

    pub fn stats(&self) -> SegmentStats {
        let sum = |f: fn(&Lookups) -> &AtomicU64| self.lookups.iter().map(|s| f(s).load(Relaxed)).sum();
        SegmentStats {
            hits: sum(|s| &s.hits),
            misses: sum(|s| &s.misses),
            inserts: self.inserts.load(Relaxed),
            declined: self.declined.load(Relaxed),
            evictions: self.evictions.count.load(Relaxed),
            returned_soon: self.returned_soon.load(Relaxed),
            bytes: self.blocks.weight(),
            entries: self.blocks.len() as u64,
            capacity: self.blocks.capacity(),
        }
    }
}
