//! Descriptors of the process: the stores that share them, and the idle files that are closed when
//! none is left.
//!
//! A registry belongs to a machine, as [`crate::Env::descriptors`]: to the process, or to one
//! simulation. It counts the open stores, and lists their caches of open files. The share of a
//! store in the soft limit is decided elsewhere.

use base::Result;
use base::sync::leaf::{Mutex, lock};
use base::sync::rank;
use base::sync::statistic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::{Arc, Weak};

/// A cache of open files.
pub trait CloseIdle: Send + Sync {
    /// Closes about half of the files, the least recently used first. Returns false if there was
    /// none, or the cache is in use.
    fn close_idle(&self) -> bool;

    /// Closes files above the cache's share, which has shrunk, unless the cache is in use.
    fn shrink(&self);
}

/// Registry of stores and file caches; see the module.
#[derive(Default)]
pub struct Descriptors {
    /// Changed and copied under the lock: a caller of [`Descriptors::with_one`] may hold any lock
    /// but a leaf.
    caches: Mutex<Vec<Weak<dyn CloseIdle>>, rank::IdleFiles>,
    stores: AtomicU64,
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptors({} stores)", self.stores())
    }
}

impl Descriptors {
    /// Counts a store until the result is dropped. The caches of the other stores shrink.
    pub fn join(self: &Arc<Self>) -> OpenStore {
        self.stores.fetch_add(1, Ordering::Relaxed);
        self.listed().iter().for_each(|cache| cache.shrink());
        OpenStore(self.clone())
    }

    /// Returns the number of open stores.
    pub fn stores(&self) -> u64 {
        self.stores.load(Ordering::Relaxed)
    }

    /// Lists a cache as long as it exists.
    pub fn add(&self, cache: &Arc<impl CloseIdle + 'static>) {
        let cache: Arc<dyn CloseIdle> = cache.clone();
        let mut caches = lock(&self.caches);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(&cache));
    }

    /// Makes a call that needs a descriptor. While the call finds none and idle files of some store
    /// can be closed, repeats it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn with_one<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(e) if e.lacks_descriptor() && self.close_idle() => {}
                done => return done,
            }
        }
    }

    fn close_idle(&self) -> bool {
        self.listed().iter().filter(|cache| cache.close_idle()).count() > 0
    }

    fn listed(&self) -> Vec<Arc<dyn CloseIdle>> {
        lock(&self.caches).iter().filter_map(Weak::upgrade).collect()
    }
}

/// A counted open store.
#[derive(Debug)]
pub struct OpenStore(Arc<Descriptors>);

impl OpenStore {
    /// Returns the registry that counts it.
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        &self.0
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.0.stores.fetch_sub(1, Ordering::Relaxed);
    }
}
