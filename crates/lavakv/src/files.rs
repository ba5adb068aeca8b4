//! The life of files: made, listed, open, damaged, obsolete, removed.
//!
//! * `tables`: those that are open.
//! * `log`: the store's log, and what LavaKV adds to it.
//! * `damaged`: those that cannot be read. `obsolete`: those that nobody names any more. `unfinished`: a directory that is no
//!   store yet. `other_engines`: what is to be left to them.

pub(crate) mod damaged;
pub(crate) mod log;
pub(crate) mod obsolete;
pub(crate) mod other_engines;
pub(crate) mod table_cache;
pub(crate) mod unfinished;

use crate::context::Context;
use base::{ErrorKind, Result};
use cache::Cache;
use io::FileLock;
use obsolete::Obsolete;
use std::sync::Arc;
use table_cache::TableCache;
use values::Pins;
use version::{Edit, Manifest, State};

/// The files of a store: which there are, which are open, which may go.
pub(crate) struct Files {
    pub context: Arc<Context>,
    pub manifest: Manifest,
    pub tables: Arc<TableCache>,
    pub cache: Arc<Cache>,
    pub obsolete: Obsolete,
    /// Names that running jobs need.
    pub pins: Arc<Pins>,
    /// Held until the last iterator is gone: nobody else may remove the files it reads.
    _lock: Option<Box<dyn FileLock>>,
}

impl Files {
    pub fn new(context: &Arc<Context>, manifest: Manifest, lock: Option<Box<dyn FileLock>>) -> Files {
        let cache = Arc::new(Cache::new(context.options.cache_bytes));
        Files {
            tables: Arc::new(TableCache::new(context, cache.clone())),
            context: context.clone(),
            manifest,
            cache,
            obsolete: Obsolete::default(),
            pins: Pins::new(),
            _lock: lock,
        }
    }

    /// Makes the names in the store's directory durable. A failure stops the store: a later sync would not tell which
    /// names are lost.
    pub fn sync_dir(&self) -> Result<()> {
        self.manifest.sync_dir().inspect_err(|e| {
            if e.kind() != ErrorKind::NoSpace {
                self.context.health.poison(e);
            }
        })
    }

    /// Commits an edit that names what a job made, or gives up what it replaced, unless something has failed meanwhile: a
    /// job that was under way then may rest on what was lost. See [`Manifest::commit_with`].
    pub fn install(
        &self,
        build: impl FnOnce(&State) -> Result<Edit>,
        publish: impl FnOnce(&State),
    ) -> Result<State> {
        let build = |state: &State| self.context.health.check_sound().and_then(|()| build(state));
        self.manifest.commit_with(build, publish)
    }

    /// Removes a file of the store; fine if it is gone already.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self.context.env.fs.remove(&self.context.path(name)) {
            Ok(()) => {
                self.context.stats.files_removed.add(1);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }
}
