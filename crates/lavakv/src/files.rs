//! The life of LavaKV's files: open, damaged, given up. What every engine's files have in common is [`store::files`].
//!
//! * `table_cache`: those that are open. `data_file`: what a version holds of one.
//! * `log`: the store's log, and what LavaKV adds to it.
//! * `damaged`: those that cannot be read. `other_engines`: what is to be left to them.

pub(crate) mod damaged;
pub(crate) mod data_file;
pub(crate) mod log;
pub(crate) mod other_engines;
pub(crate) mod table_cache;

use crate::context::Context;
use base::Result;
use cache::Cache;
use data_file::DataFile;
use io::FileLock;
use std::ops::Deref;
use std::sync::Arc;
use store::files::Obsolete;
use table_cache::TableCache;
use values::Pins;
use version::{Edit, Manifest, State};

/// The files of a store: which there are, which are open, which may go.
pub(crate) struct Files {
    store: Arc<store::files::Files>,
    pub context: Arc<Context>,
    pub manifest: Manifest,
    pub tables: Arc<TableCache>,
    pub cache: Arc<Cache>,
    /// Those that no edit names any more.
    pub obsolete: Obsolete<DataFile>,
    /// Names that running jobs need.
    pub pins: Arc<Pins>,
}

impl Files {
    pub fn new(context: &Arc<Context>, manifest: Manifest, lock: Option<Box<dyn FileLock>>) -> Files {
        let cache = Arc::new(Cache::new(context.options.cache_bytes));
        Self::over(context, manifest, lock, cache)
    }

    /// The files of a later state, in a store that is open for reading. Both states share the cache and the open files.
    pub fn later(&self, manifest: Manifest) -> Files {
        let later = Self::over(&self.context, manifest, None, self.cache.clone());
        for family in later.manifest.state().families.values() {
            DataFile::all_of(&family.version).for_each(|file| later.tables.take_over(&self.tables, &file));
        }
        later
    }

    fn over(
        context: &Arc<Context>,
        manifest: Manifest,
        lock: Option<Box<dyn FileLock>>,
        cache: Arc<Cache>,
    ) -> Files {
        Files {
            store: Arc::new(store::files::Files::new(context.store(), manifest.shared().clone(), lock)),
            tables: Arc::new(TableCache::new(context, cache.clone())),
            context: context.clone(),
            manifest,
            cache,
            obsolete: Obsolete::default(),
            pins: Pins::new(),
        }
    }

    /// What of them is the store's.
    pub fn store(&self) -> &Arc<store::files::Files> {
        &self.store
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
}

impl Deref for Files {
    type Target = store::files::Files;
    fn deref(&self) -> &store::files::Files {
        &self.store
    }
}
