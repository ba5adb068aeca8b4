//! The store under the engine: its files, its manifest, its space and the lane of records.
//!
//! All parts of the engine share these handles, none of which changes while the store is open. Each part has its own state and lock.

use crate::manifest::{FileMeta, LavaLog, Role};
use crate::options::Options;
use base::{Error, ErrorKind, Result};
use io::{AppendFile, CreateOptions};
use std::path::PathBuf;
use std::sync::Arc;
use store::commit::Log as Lane;
use store::context::Context;
use store::descriptors::LOG_PARTS;
use store::files::Files;
use store::manifest::Handle;
use store::space::SpaceBudget;

/// How this engine has the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// It opened the store, and drives all lanes of the log.
    Owner,
    /// Another engine did.
    Guest,
    /// The store is only read.
    Reader,
}

/// A file of the engine in the making, which is removed if it comes to nothing.
pub(crate) struct NewFile {
    pub meta: FileMeta,
    pub path: PathBuf,
}

/// See the module.
pub(crate) struct Foundation {
    pub files: Arc<Files>,
    pub space: Arc<SpaceBudget>,
    pub manifest: Handle<LavaLog>,
    /// The lane of records.
    pub lane: Arc<Lane>,
    /// The first lane of the log, which has the ballast; none in a store that is only read.
    pub first: Option<Arc<Lane>>,
    pub options: Options,
    pub tenure: Tenure,
}

impl Foundation {
    /// The machine, and the store's directory.
    pub fn context(&self) -> &Arc<Context> {
        self.files.context()
    }

    /// True if this engine opened the store.
    pub fn is_owner(&self) -> bool {
        self.tenure == Tenure::Owner
    }

    /// True if the store is only read.
    pub fn is_read_only(&self) -> bool {
        self.tenure == Tenure::Reader
    }

    /// Refuses whatever would change something in a store that is only read.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            let why = "the store was opened read-only";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.context().dir));
        }
        Ok(())
    }

    /// The lanes of the log that this engine drives.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.first.iter().filter(|_| self.is_owner()).chain([&self.lane])
    }

    /// Files of storage that may stay open now.
    pub fn open_files_max(&self) -> u64 {
        let (max, descriptors) =
            (self.options.open_files_max, &self.context().volumes.directory().descriptors);
        let part = || descriptors.part(LOG_PARTS).saturating_mul(2);
        let now = if descriptors.is_alone() { max } else { max.min(part()) };
        now as u64
    }

    /// Begins a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new_file(&self, role: Role) -> Result<(NewFile, Box<dyn AppendFile>)> {
        let number = self.manifest.allocate_file_number();
        let meta = FileMeta { number, uid: self.context().env.new_uid(), len: 0, role };
        let path = self.context().path(&meta.name());
        let options = CreateOptions { access: self.options.access, ..CreateOptions::default() };
        let file = self.context().env.fs.create(&path, &options)?;
        Ok((NewFile { meta, path }, file))
    }

    /// Removes files that no edit names, unless nobody knows whether one does.
    pub fn remove_unnamed(&self, files: &[NewFile]) {
        // The job that failed is asked before the store's health knows of it.
        if self.manifest.commits().outcome_unknown() || self.context().health.check_sound().is_err() {
            return;
        }
        let listed = self.manifest.state();
        for file in files.iter().filter(|file| !listed.files.contains_key(&file.meta.number)) {
            // What stays is removed at the next open.
            let _ = self.files.remove(&file.meta.name());
        }
    }
}
