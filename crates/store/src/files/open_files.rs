//! A bounded cache of open files, by number.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used files
//! are closed; a reader that holds one keeps it open. While the process has other stores open, the
//! cache's share of the descriptors also bounds it.

use crate::descriptors::Descriptors;
use base::sync::statistic::{AtomicU64, Ordering};
use base::sync::{OnceLock, RwLock, rank, read, try_write, write};
use base::{HashMap, Result};
use io::descriptors::CloseIdle;
use std::convert::Infallible;
use std::sync::Arc;

/// The cache of open files: see the module.
#[derive(Debug)]
pub struct OpenFiles<F> {
    cached: Arc<Cached<F>>,
    uses: AtomicU64,
}

#[derive(Debug)]
struct Cached<F> {
    /// Open files by number. Files are opened outside of this lock.
    open: RwLock<HashMap<u64, Open<F>>, rank::TableCache>,
    max: usize,
    /// Files were closed to make room, or for want of descriptors.
    has_closed: OnceLock<()>,
    /// The store is closed: no file is kept open.
    ended: OnceLock<()>,
    /// The store's descriptors, and the number of caches that share them.
    descriptors: OnceLock<(Arc<Descriptors>, u64)>,
}

#[derive(Debug)]
struct Open<F> {
    file: F,
    last_use: AtomicU64,
}

impl<F: Clone> OpenFiles<F> {
    /// Creates a cache of at most `max` files.
    pub fn new(max: usize) -> Self {
        let open = RwLock::new(HashMap::default());
        let (has_closed, ended, descriptors) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let cached = Arc::new(Cached { open, max, has_closed, ended, descriptors });
        OpenFiles { cached, uses: AtomicU64::new(0) }
    }

    /// Shares the store's descriptors among `parts` caches, which bounds this one. If any store
    /// finds no descriptor, files that are not in use are closed.
    pub fn share(&self, descriptors: &Arc<Descriptors>, parts: u64)
    where
        F: Send + Sync + 'static,
    {
        if self.cached.descriptors.set((descriptors.clone(), parts)).is_ok() {
            descriptors.add(&self.cached);
        }
    }

    /// Closes all files, and keeps none open from here on. A file in use is closed when its reader
    /// drops it.
    pub fn end(&self) {
        let mut open = write(&self.cached.open);
        let _ = self.cached.ended.set(());
        let files = std::mem::take(&mut *open);
        drop(open);
        drop(files);
    }

    /// Returns true after [`OpenFiles::end`].
    pub fn is_ended(&self) -> bool {
        self.cached.ended.get().is_some()
    }

    /// Returns true if the cache has closed files that still exist.
    pub fn has_closed(&self) -> bool {
        self.cached.has_closed.get().is_some()
    }

    /// Drops a file that is about to be removed.
    pub fn forget(&self, number: u64) {
        drop(self.take(number));
    }

    /// Drops a file from the cache, and returns it if it is open.
    pub fn take(&self, number: u64) -> Option<F> {
        write(&self.cached.open).remove(&number).map(|open| open.file)
    }

    /// Returns true if the file of this number is open.
    pub fn is_open(&self, number: u64) -> bool {
        read(&self.cached.open).contains_key(&number)
    }

    /// Takes over a file that is open in another cache.
    pub fn take_over(&self, other: &OpenFiles<F>, number: u64) {
        let found = read(&other.cached.open).get(&number).map(|open| open.file.clone());
        if let Some(file) = found {
            let Ok(_) = self.find(number, || Ok::<F, Infallible>(file));
        }
    }

    /// Returns the open file of this number, opened by `make` if necessary.
    ///
    /// # Errors
    /// Errors of `make`.
    pub fn find<E>(&self, number: u64, make: impl FnOnce() -> Result<F, E>) -> Result<F, E> {
        if let Some(found) = read(&self.cached.open).get(&number) {
            // The clock ticks with every opened file. That is precise enough to separate hot from
            // cold, and lookups of open files rarely write to a shared cache line.
            let now = self.uses.load(Ordering::Relaxed);
            if found.last_use.load(Ordering::Relaxed) + 64 < now {
                found.last_use.store(now, Ordering::Relaxed);
            }
            return Ok(found.file.clone());
        }
        self.uses.fetch_add(1, Ordering::Relaxed);
        let file = make()?;
        let max = self.cached.max();
        let mut open = write(&self.cached.open);
        if self.is_ended() {
            return Ok(file);
        }
        if open.len() >= max {
            let count = open.len() - max + max / 4 + 1;
            self.cached.close_unused(&mut open, count);
        }
        let entry = Open { file, last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(number).or_insert(entry).file.clone())
    }
}

impl<F> Cached<F> {
    fn max(&self) -> usize {
        match self.descriptors.get() {
            Some((descriptors, parts)) if !descriptors.is_alone() => descriptors.part(*parts).min(self.max),
            _ => self.max,
        }
    }

    /// Closes the least recently used files.
    fn close_unused(&self, open: &mut HashMap<u64, Open<F>>, count: usize) {
        let mut by_use: Vec<(u64, u64)> =
            open.iter().map(|(&n, o)| (o.last_use.load(Ordering::Relaxed), n)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use.iter().take(count) {
            open.remove(number);
        }
        let _ = self.has_closed.set(());
    }
}

impl<F: Send + Sync> CloseIdle for Cached<F> {
    fn close_idle(&self) -> bool {
        // Only a try: the caller may hold any lock.
        let Some(mut open) = try_write(&self.open).filter(|open| !open.is_empty()) else { return false };
        let count = open.len() / 2 + 1;
        self.close_unused(&mut open, count);
        true
    }

    fn shrink(&self) {
        let max = self.max();
        if let Some(mut open) = try_write(&self.open).filter(|open| open.len() > max) {
            let count = open.len() - max;
            self.close_unused(&mut open, count);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
