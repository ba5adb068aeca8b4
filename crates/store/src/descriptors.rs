//! The share of a store in the file descriptors of the process.
//!
//! All stores together use at most half of the soft limit, in equal shares: the application opens
//! files and connections of its own. Each store reserves `OTHERS` of its share for the log, the
//! manifest, locks and running jobs. The rest is for files that stay open for readers. The limit is
//! read when the store is opened, and the shares shrink when another store is opened. A call that
//! still finds no descriptor closes idle files of all stores and retries ([`io::descriptors`]).

use base::Result;
use io::descriptors::{CloseIdle, OpenStore};
use io::{Env, FileSystem};
use std::sync::Arc;

/// Descriptors for the log, the manifest, locks, and inputs and outputs of running jobs.
const OTHERS: u64 = 16;
/// Number of parts of a store's share for each file cache of a log engine. Beside keys, the log
/// engine has half of the files, and half of these are log groups.
pub const LOG_PARTS: u64 = 4;
/// Minimum number of open files of a cache, whatever the limit.
const LEAST: u64 = 8;

/// Returns the maximum number of files that one of `parts` caches may keep open if there is a
/// single store: `asked`, or less under a low process limit.
pub fn open_max(fs: &dyn FileSystem, asked: usize, parts: u64) -> usize {
    part_of(fs.open_files_limit(), 1, parts).min(asked)
}

fn part_of(limit: Option<u64>, stores: u64, parts: u64) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let part = (limit / 2 / stores.max(1)).saturating_sub(OTHERS) / parts.max(1);
    usize::try_from(part.max(LEAST)).unwrap_or(usize::MAX)
}

/// The share of a store, which counts as open until this is dropped: see the module.
#[derive(Debug)]
pub struct Descriptors {
    limit: Option<u64>,
    store: OpenStore,
}

impl Descriptors {
    /// Registers a store that is being opened.
    pub fn join(env: &Env) -> Arc<Descriptors> {
        Arc::new(Descriptors { limit: env.fs.open_files_limit(), store: env.descriptors.join() })
    }

    /// Returns the number of files that one of `parts` caches may keep open, given the stores open
    /// now.
    pub fn part(&self, parts: u64) -> usize {
        part_of(self.limit, self.store.descriptors().stores(), parts)
    }

    /// Returns true if no other store is open in the process, so that the caches keep their own
    /// bounds.
    pub fn is_alone(&self) -> bool {
        self.store.descriptors().stores() <= 1
    }

    /// Registers a cache.
    pub fn add(&self, cache: &Arc<impl CloseIdle + 'static>) {
        self.store.descriptors().add(cache);
    }

    /// Runs a call that needs a descriptor: see [`io::descriptors::Descriptors::with_one`].
    ///
    /// # Errors
    /// Errors of the call.
    pub fn with_one<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        self.store.descriptors().with_one(call)
    }
}
