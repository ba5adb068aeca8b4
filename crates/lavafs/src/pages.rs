//! A page cache: blocks of files in memory, for those who read them again.
//!
//! Off unless a mount asks for it: a store has a cache of its own, of what it has verified and unpacked. It serves the reads of files that are opened for
//! reading, up to [`LONG`] bytes each: who reads more at a time reads it once. Below it the device is read and written as without it, whole blocks, around the kernel's
//! cache. Checksums belong to who wrote the file, and are checked by him whether a block comes from here or from the device.
//!
//! **A page has the number of its file, and its place in the file, for a key.** No number is used twice, so a block that went from one file to another has no page that
//! could be taken for the new file's, and nothing has to be told when blocks become free. Pages of removed files are pushed out by others.
//!
//! **Writes forget.** A file shows nothing behind its size, and what it shows is written again in two cases: the last, unfinished block of an append file, and anything in a file
//! written in place. Whoever writes forgets these pages when the device has them, and before the write returns.
//!
//! **A read must not bring back what a write has just forgotten.** Each part of the cache counts what was forgotten in it. Who misses a page takes the count
//! along as a [`Ticket`], reads, and puts the page in only if nothing was forgotten in that part meanwhile. So a page in the cache was read after the last write of it
//! that has returned, or during one that has not, which forgets it when it does.
//!
//! Holes are no pages: that a block is one says the file's list of blocks, which is looked at first.
//!
//! The pages are in parts by their keys, each a `quick_cache` under a lock of its own, which is held for the time of a table operation. As many pages fit as the budget has room for, each
//! taken for [`PAGE_BYTES`].

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

/// Reads of more bytes than this go past the cache.
pub(crate) const LONG: usize = 64 << 10;
/// What a page is charged: its bytes, its place in the table.
const PAGE_BYTES: u64 = BLOCK + 128;
/// The smallest cache, bytes.
pub const PAGE_CACHE_BYTES_MIN: u64 = 64 << 10;
const PARTS_MAX: usize = 16;
/// A part has as many pages at least.
const PART_PAGES_MIN: usize = 64;

type FixedState = BuildHasherDefault<FixedHasher>;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    pub ino: Ino,
    /// Its number in the file.
    pub block: u64,
}

/// What was forgotten in a part before a page was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

struct Part {
    pages: Cache<PageKey, Arc<[u8]>, UnitWeighter, FixedState>,
    /// How often something was forgotten.
    forgotten: u64,
}

/// See the module.
pub(crate) struct PageCache {
    /// Each guards its pages, and the count of what was forgotten among them.
    parts: Box<[Mutex<Part, rank::FsPages>]>,
    capacity_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What the page cache of a volume holds, and what it was good for since the volume was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCacheStatistics {
    /// Bytes that it may take.
    pub capacity_bytes: u64,
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Pages that were asked for and there.
    pub hits: u64,
    /// Pages that were read from the device.
    pub misses: u64,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a page cache of {} bytes in {} parts", self.capacity_bytes, self.parts.len())
    }
}

impl PageCache {
    /// A cache of so many bytes; none of 0.
    ///
    /// # Errors
    /// `InvalidArgument` for a few bytes.
    pub(crate) fn new(bytes: u64) -> Result<Option<PageCache>> {
        if bytes == 0 {
            return Ok(None);
        }
        if bytes < PAGE_CACHE_BYTES_MIN {
            let why = format!(
                "a page cache of {bytes} bytes is too small: give it {PAGE_CACHE_BYTES_MIN} at least, or 0 for none"
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
            Mutex::new(Part { pages, forgotten: 0 })
        };
        Ok(Some(PageCache {
            parts: (0..parts).map(part).collect(),
            capacity_bytes: bytes,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }))
    }

    fn part(&self, key: PageKey) -> MutexGuard<'_, Part> {
        let nth = FixedState::default().hash_one(key) >> 48;
        // The number of parts is a power of two.
        lock(&self.parts[nth as usize & (self.parts.len() - 1)])
    }

    /// A page, or what it takes to put it in.
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

    /// Puts a page in that was read with a ticket, unless something was forgotten since.
    pub(crate) fn put(&self, key: PageKey, page: &[u8], ticket: Ticket) {
        let page = Arc::from(page);
        let mut part = self.part(key);
        if part.forgotten == ticket.0 {
            part.pages.insert(key, page);
        }
    }

    /// Blocks of a file were written.
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
