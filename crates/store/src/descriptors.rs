//! Descriptors of the process: the share of the store, and idle files that are closed when none is left.
//!
//! At most half of the soft limit is for the store: the program around it opens files and connections of its own. Of that half
//! `OTHERS` are for the log, the manifest, locks and running jobs, the rest is for files that stay open for readers. The limit is
//! read when the store is opened. A call that finds no descriptor all the same closes idle files of the store and is made again.

use base::Result;
use base::sync::OnceLock;
use io::FileSystem;
use std::sync::{Arc, Weak};

/// Descriptors for the log, the manifest, locks, and inputs and outputs of running jobs.
const OTHERS: u64 = 16;
/// As many files stay open whatever the limit is.
const LEAST: u64 = 8;
/// Caches of open files that one store has at most.
const CACHES_MAX: usize = 8;

/// The number of files that one of `parts` caches may keep open: `asked`, or less where the process may not have so many.
pub fn open_max(fs: &dyn FileSystem, asked: usize, parts: u64) -> usize {
    let Some(limit) = fs.open_files_limit() else { return asked };
    let share = (limit / 2).saturating_sub(OTHERS) / parts.max(1);
    usize::try_from(share.max(LEAST)).map_or(asked, |share| share.min(asked))
}

/// A cache of open files.
pub trait CloseIdle: Send + Sync {
    /// Closes about half of the files, the least recently used first. False if there was none, or the cache is in use.
    fn close_idle(&self) -> bool;
}

/// The caches of open files of a store. See the module.
#[derive(Debug, Default)]
pub struct Descriptors {
    caches: [OnceLock<Weak<dyn CloseIdle>>; CACHES_MAX],
}

impl Descriptors {
    /// Adds a cache. One too many is not asked to close files.
    pub fn add(&self, cache: &Arc<impl CloseIdle + 'static>) {
        let cache: Arc<dyn CloseIdle> = cache.clone();
        let mut cache = Some(Arc::downgrade(&cache));
        for place in &self.caches {
            let Some(weak) = cache.take() else { return };
            cache = place.set(weak).err();
        }
    }

    /// Makes a call that takes a descriptor, again and again as long as it finds none and idle files can be closed.
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
        let caches = self.caches.iter().filter_map(|cache| cache.get()?.upgrade());
        caches.filter(|cache| cache.close_idle()).count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::sim::SimEnv;

    #[test]
    fn the_store_gets_half_of_the_limit_and_no_more_than_it_asks_for() {
        let sim = SimEnv::new(1);
        let max = |limit, asked, parts| {
            sim.set_open_max(limit);
            open_max(&*sim.env().fs, asked, parts)
        };
        assert_eq!(max(None, 4096, 1), 4096);
        assert_eq!([1, 2, 4].map(|parts| max(Some(1024), 4096, parts)), [496, 248, 124]);
        assert_eq!(max(Some(1024), 100, 1), 100);
        assert_eq!([64, 32, 0].map(|limit| max(Some(limit), 4096, 1)), [16, 8, 8]);
        assert_eq!(max(Some(u64::MAX), 4096, 1), 4096);
    }
}
