//! Page cache: file blocks in memory for repeated reads.
//!
//! The cache is off unless a mount enables it, because a store has its own cache of verified and
//! decompressed blocks. It serves reads of at most [`LONG`] bytes from files opened for reading;
//! longer reads are usually not repeated. Device access stays the same as without it: whole blocks,
//! with direct I/O. Checksums belong to the writer of the file, which verifies them whether a block
//! comes from the cache or from the device.
//!
//! **Keys.** The key of a page is its file number and its block number in the file. File numbers
//! are never reused. Therefore a page of an old file is never taken for a page of a new file in the
//! same blocks, and freed blocks need no invalidation. Pages of removed files are evicted
//! eventually.
//!
//! **Writes invalidate.** Readable bytes are rewritten in two cases: the unfinished last block of
//! an append file, and any block of an in-place file. The writer removes these pages after the
//! device has the data, and before the write returns.
//!
//! **A read must not bring back an invalidated page.** Each shard counts its invalidations. A
//! reader that misses a page takes the count as a [`Ticket`] and reads the block. It inserts the
//! page only if no invalidation happened in that shard meanwhile. Therefore a cached page was read
//! after the last completed write of its block, or during an active write, which removes the page
//! when it completes.
//!
//! Holes are not cached: the extent list of the file, which is checked first, identifies them.
//!
//! Pages are distributed over shards by key. Each shard is a `quick_cache` under its own lock, held
//! for the duration of one table operation. The budget bounds the number of pages, each charged
//! with [`PAGE_BYTES`].

use crate::layout::BLOCK;
use crate::op::Ino;
use base::hash::FixedHasher;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, Result};
use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

/// Reads of more bytes bypass the cache.
pub(crate) const LONG: usize = 64 << 10;
/// Memory charged for a page, in bytes: its contents and its table entry.
const PAGE_BYTES: u64 = BLOCK + 128;
/// Minimum size of the cache, in bytes.
pub const PAGE_CACHE_BYTES_MIN: u64 = 64 << 10;
const PARTS_MAX: usize = 16;
/// Minimum number of pages per shard.
const PART_PAGES_MIN: usize = 64;

type FixedState = BuildHasherDefault<FixedHasher>;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    pub ino: Ino,
    /// Block number in the file.
    pub block: u64,
}

/// Invalidation count of a shard before a page was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

struct PageShard {
    pages: Cache<PageKey, Arc<[u8]>, UnitWeighter, FixedState>,
    /// Number of invalidations.
    forgotten: u64,
}

/// The page cache; see the module documentation.
pub(crate) struct PageCache {
    /// Shards, each with its pages and its invalidation count.
    parts: Box<[Mutex<PageShard, rank::FsPages>]>,
    capacity_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Shows the use of a volume's page cache since the mount, to judge its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCacheStatistics {
    /// Budget, in bytes.
    pub capacity_bytes: u64,
    /// Used memory, in bytes.
    pub used_bytes: u64,
    /// Number of pages found in the cache.
    pub hits: u64,
    /// Number of pages read from the device.
    pub misses: u64,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a page cache of {} bytes in {} parts", self.capacity_bytes, self.parts.len())
    }
}

impl PageCache {
    /// Creates a cache of `bytes` bytes, or none for 0.
    ///
    /// # Errors
    /// `InvalidArgument` if `bytes` is less than [`PAGE_CACHE_BYTES_MIN`] and not 0.
    pub(crate) fn new(bytes: u64) -> Result<Option<PageCache>> {
        if bytes == 0 {
            return Ok(None);
        }
        if bytes < PAGE_CACHE_BYTES_MIN {
            let why = format!(
                "a page cache of {bytes} bytes is too small: give it at least {PAGE_CACHE_BYTES_MIN} \
                 bytes, or 0 for none"
            );
            return Err(Error::invalid(why));
        }
        let pages = usize::try_from(bytes / PAGE_BYTES).unwrap_or(usize::MAX);
        let most = (pages / PART_PAGES_MIN).clamp(1, PARTS_MAX);
        let parts = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        let part = |_| {
            let each = pages / parts;
            let lifecycle = DefaultLifecycle::default();
            let pages = Cache::with(each, each as u64, UnitWeighter, FixedState::default(), lifecycle);
            Mutex::new(PageShard { pages, forgotten: 0 })
        };
        Ok(Some(PageCache {
            parts: (0..parts).map(part).collect(),
            capacity_bytes: bytes,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }))
    }

    fn part(&self, key: PageKey) -> MutexGuard<'_, PageShard> {
        let nth = FixedState::default().hash_one(key) >> 48;
        // The number of shards is a power of two.
        lock(&self.parts[nth as usize & (self.parts.len() - 1)])
    }

    /// Returns a page, or the ticket to insert it later.
    pub(crate) fn look_up(&self, key: PageKey) -> std::result::Result<Arc<[u8]>, Ticket> {
        let part = self.part(key);
        match part.pages.get(&key) {
            Some(page) => {
                self.hits.fetch_add(1, Relaxed);
                Ok(page.clone())
            }
            None => {
                self.misses.fetch_add(1, Relaxed);
                Err(Ticket(part.forgotten))
            }
        }
    }

    /// Inserts a page read with a ticket, unless its shard had an invalidation since.
    pub(crate) fn put(&self, key: PageKey, page: &[u8], ticket: Ticket) {
        let page = Arc::from(page);
        let mut part = self.part(key);
        if part.forgotten == ticket.0 {
            part.pages.insert(key, page);
        }
    }

    /// Removes the pages of written blocks.
    pub(crate) fn forget(&self, ino: Ino, first: u64, blocks: u64) {
        for block in first..first.saturating_add(blocks) {
            let key = PageKey { ino, block };
            let mut part = self.part(key);
            part.forgotten += 1;
            part.pages.remove(&key);
        }
    }

    pub(crate) fn statistics(&self) -> PageCacheStatistics {
        let pages: u64 = self.parts.iter().map(|part| lock(part).pages.len() as u64).sum();
        PageCacheStatistics {
            capacity_bytes: self.capacity_bytes,
            used_bytes: pages * PAGE_BYTES,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
