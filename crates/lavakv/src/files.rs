//! LavaKV's files: open, damaged, obsolete. [`store::files`] has the parts shared with other
//! engines.
//!
//! * `table_cache`: open files. `data_file`: a reference to a file in a version.
//! * `log`: the store's log, and LavaKV's additions.
//! * `damaged`: unreadable files. `other_engines`: files that belong to other engines.

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

/// The files of a store: existing, open and obsolete ones.
pub(crate) struct KvFiles {
    store: Arc<store::files::StoreFiles>,
    pub context: Arc<Context>,
    pub manifest: Manifest,
    pub tables: Arc<TableCache>,
    pub cache: Arc<Cache>,
    /// Files that no edit names any more.
    pub obsolete: Obsolete<DataFile>,
    /// Names that running jobs need.
    pub pins: Arc<Pins>,
}

impl KvFiles {
    pub fn new(context: &Arc<Context>, manifest: Manifest, lock: Option<Box<dyn FileLock>>) -> KvFiles {
        let cache = Arc::new(Cache::new(context.options.cache_bytes));
        Self::over(context, manifest, lock, cache)
    }

    /// Returns the files of a later state, in a store opened for reading. Both states share the
    /// cache and the open files.
    pub fn later(&self, manifest: Manifest) -> KvFiles {
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
    ) -> KvFiles {
        KvFiles {
            store: Arc::new(store::files::StoreFiles::new(context.store(), manifest.shared().clone(), lock)),
            tables: Arc::new(TableCache::new(context, cache.clone())),
            context: context.clone(),
            manifest,
            cache,
            obsolete: Obsolete::default(),
            pins: Pins::new(),
        }
    }

    /// Returns the part that belongs to the store.
    pub fn store(&self) -> &Arc<store::files::StoreFiles> {
        &self.store
    }

    /// Commits an edit that adds the outputs of a job or removes its inputs, unless the store has
    /// failed meanwhile: the job may then depend on lost data. See [`Manifest::commit_with`].
    pub fn install(
        &self,
        build: impl FnOnce(&State) -> Result<Edit>,
        publish: impl FnOnce(&State),
    ) -> Result<State> {
        let build = |state: &State| self.context.health.check_sound().and_then(|()| build(state));
        self.manifest.commit_with(build, publish)
    }
}

impl Deref for KvFiles {
    type Target = store::files::StoreFiles;
    fn deref(&self) -> &store::files::StoreFiles {
        &self.store
    }
}
