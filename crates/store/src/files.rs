//! The life of files: made, listed, open, obsolete, removed.
//!
//! * `open_files`: those that are open. `obsolete`: those that nobody names any more.
//! * `session`: which process a second disk was last written by. [`unfinished`]: a directory that is no store yet.
//!
//! Their names and numbers are in [`crate::names`] and [`crate::manifest`]; what is in them is their engine's affair.

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

/// The files of a store: who lists them, and how names come and go.
pub struct Files {
    context: Arc<Context>,
    manifest: Arc<Manifest>,
    removed: Counter,
    /// Held until the last reader is gone, or the store is closed: nobody else may remove the files that are read.
    lock: Mutex<Option<Box<dyn FileLock>>, rank::DirectoryLock>,
    /// Of this opening, on a second disk.
    session: OnceLock<Uid>,
}

impl Files {
    /// Of a store whose lock is held (`None`: by nobody, where it is only read).
    pub fn new(context: &Arc<Context>, manifest: Arc<Manifest>, lock: Option<Box<dyn FileLock>>) -> Files {
        manifest.files().join(context.health.clone());
        let (context, removed, session) = (context.clone(), Counter::default(), OnceLock::new());
        Files { context, manifest, removed, lock: Mutex::new(lock), session }
    }

    /// Begins the session of this opening on the second disk, if there is one: before the log gets a group. See [`crate::speed`].
    ///
    /// # Errors
    /// `NoSpace`: nothing happened, and it may be tried again. Those of [`crate::volumes::identity::check`], of the manifest and of the file system.
    pub fn begin_session(&self) -> Result<()> {
        let session = *self.session.get_or_init(|| self.context.env.new_uid());
        session::begin(self, session)
    }

    /// Gives up the lock of the directory. Nothing of this store may change the directory from here on.
    pub fn unlock(&self) {
        let held = lock(&self.lock).take();
        drop(held);
    }

    /// What every part of the store is given.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Who lists them.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// How many were removed since the store was opened.
    pub fn removed(&self) -> u64 {
        self.removed.get()
    }

    /// The format of the store.
    pub fn format(&self) -> StoreFormat {
        self.manifest.format()
    }

    /// Raises the format of the store: see [`crate::manifest::Commits::upgrade`]. A failure after which nobody knows the format stops the store.
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.manifest.commits().upgrade(format).inspect_err(|e| {
            if self.manifest.commits().outcome_unknown() {
                self.context.health.poison(e);
            }
        })
    }

    /// Makes the names in the store's directory durable. A failure, other than a lack of room or of descriptors, stops
    /// the store: a later sync would not tell which names are lost.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync_dir(&self) -> Result<()> {
        self.manifest.files().sync_dir().inspect_err(|e| {
            if !e.is_refusal() {
                self.context.health.poison(e);
            }
        })
    }

    /// Removes a file that the manifest does not list; fine if it is gone already.
    ///
    /// # Errors
    /// Those of the file system.
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

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.context.dir.display())
    }
}
