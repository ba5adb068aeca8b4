//! The part of a store in the descriptors of the process.
//!
//! Stores have at most half of the soft limit together, in equal parts: the program around them opens files and connections of its
//! own. Of its part each store has `OTHERS` for the log, the manifest, locks and running jobs, the rest is for files that stay open
//! for readers. The limit is read when the store is opened; the parts shrink when another store is opened. A call that finds no
//! descriptor all the same closes idle files of all stores and is made again ([`io::descriptors`]).

use base::Result;
use io::descriptors::{CloseIdle, OpenStore};
use io::{Env, FileSystem};
use std::sync::Arc;

/// Descriptors for the log, the manifest, locks, and inputs and outputs of running jobs.
const OTHERS: u64 = 16;
/// The parts of a cache of a store of logs: beside keys, such a store has half of the files, and half of these are groups.
pub const LOG_PARTS: u64 = 4;
/// As many files stay open whatever the limit is.
const LEAST: u64 = 8;

/// The number of files that one of `parts` caches of the only store may keep open: `asked`, or less where the process may not
/// have so many.
pub fn open_max(fs: &dyn FileSystem, asked: usize, parts: u64) -> usize {
    part_of(fs.open_files_limit(), 1, parts).min(asked)
}

fn part_of(limit: Option<u64>, stores: u64, parts: u64) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let part = (limit / 2 / stores.max(1)).saturating_sub(OTHERS) / parts.max(1);
    usize::try_from(part.max(LEAST)).unwrap_or(usize::MAX)
}

/// The part of a store, which counts as open until this is dropped. See the module.
#[derive(Debug)]
pub struct Descriptors {
    limit: Option<u64>,
    store: OpenStore,
}

impl Descriptors {
    /// Of a store that is opened.
    pub fn join(env: &Env) -> Arc<Descriptors> {
        Arc::new(Descriptors { limit: env.fs.open_files_limit(), store: env.descriptors.join() })
    }

    /// The number of files that one of `parts` caches may keep open, beside the stores that are open now.
    pub fn part(&self, parts: u64) -> usize {
        part_of(self.limit, self.store.descriptors().stores(), parts)
    }

    /// True if no other store is open in the process: the bounds of the caches are right then.
    pub fn is_alone(&self) -> bool {
        self.store.descriptors().stores() <= 1
    }

    /// Lists a cache.
    pub fn add(&self, cache: &Arc<impl CloseIdle + 'static>) {
        self.store.descriptors().add(cache);
    }

    /// See [`io::descriptors::Descriptors::with_one`].
    ///
    /// # Errors
    /// Those of the call.
    pub fn with_one<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        self.store.descriptors().with_one(call)
    }
}
