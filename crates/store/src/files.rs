//! The life of files: creation, listing, caching, obsolescence, removal.
//!
//! * `open_files`: the cache of open files. `obsolete`: files that no version names any more.
//! * `session`: the last process to write a fast tier. [`unfinished`]: the mark of an incomplete
//!   store.
//!
//! Names and numbers of files are in [`crate::names`] and [`crate::manifest`]. The engine defines
//! their contents.

mod obsolete;
mod open_files;
mod session;
pub mod unfinished;

pub use obsolete::{Obsolete, Retired};
pub use open_files::OpenFiles;
pub use session::remove_all;

use crate::context::{Context, Counter};
use crate::format::StoreFormat;
use crate::manifest::Manifest;
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{ErrorKind, Result, Uid};
use io::FileLock;
use std::sync::Arc;

/// The files of a store: the directory lock, the manifest, and removal.
pub struct StoreFiles {
    context: Arc<Context>,
    manifest: Arc<Manifest>,
    removed: Counter,
    /// Held until the last reader is gone, or the store is closed: no other process may remove the
    /// files that readers use.
    lock: Mutex<Option<Box<dyn FileLock>>, rank::DirectoryLock>,
    /// Session of this opening on the fast tier.
    session: OnceLock<Uid>,
}

impl StoreFiles {
    /// Creates the files of a store whose lock is held. `None`: a read-only store without a lock.
    pub fn new(
        context: &Arc<Context>,
        manifest: Arc<Manifest>,
        lock: Option<Box<dyn FileLock>>,
    ) -> StoreFiles {
        manifest.files().join(context.health.clone());
        let (context, removed, session) = (context.clone(), Counter::default(), OnceLock::new());
        StoreFiles { context, manifest, removed, lock: Mutex::new(lock), session }
    }

    /// Begins the session of this opening on the fast tier, if there is one, before the log gets a
    /// group. See [`crate::fast_tier`].
    ///
    /// # Errors
    /// `NoSpace`: nothing happened, and the call may be repeated. Errors of
    /// [`crate::volumes::identity::check`], of the manifest and of the file system.
    pub fn begin_session(&self) -> Result<()> {
        let session = *self.session.get_or_init(|| self.context.env.new_uid());
        session::begin(self, session)
    }

    /// Releases the lock of the directory. From here on this store must not change the directory.
    pub fn unlock(&self) {
        let held = lock(&self.lock).take();
        drop(held);
    }

    /// Returns the shared context of the store.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns the number of files removed since the store was opened.
    pub fn removed(&self) -> u64 {
        self.removed.get()
    }

    /// Returns the format of the store.
    pub fn format(&self) -> StoreFormat {
        self.manifest.format()
    }

    /// Raises the format of the store: see [`crate::manifest::Commits::upgrade`]. If the outcome is
    /// unknown the store stops.
    ///
    /// # Errors
    /// As [`crate::manifest::Commits::upgrade`].
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.manifest.commits().upgrade(format).inspect_err(|e| {
            if self.manifest.commits().outcome_unknown() {
                self.context.health.poison(e);
            }
        })
    }

    /// Makes the names in the store directory durable. A failure, other than a lack of space or of
    /// descriptors, stops the store: a later sync would not report which names are lost.
    ///
    /// # Errors
    /// File system errors.
    pub fn sync_dir(&self) -> Result<()> {
        self.manifest.files().sync_dir().inspect_err(|e| {
            if !e.is_refusal() {
                self.context.health.poison(e);
            }
        })
    }

    /// Removes a file that the manifest does not list. A missing file is no error.
    ///
    /// # Errors
    /// File system errors.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self.context.env.fs.remove(&self.context.path(name)) {
            Ok(()) => {
                self.removed.add(1);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl std::fmt::Debug for StoreFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.context.dir.display())
    }
}
