//! The underlying store: its files, its manifest, its space budget and the record lane.
//!
//! All components of the engine share these handles, which do not change while the store is open.

use crate::manifest::{FileMeta, FileRole, LavaLog};
use crate::options::Options;
use base::{Error, ErrorKind, Result};
use io::{AppendFile, CreateOptions};
use std::path::PathBuf;
use std::sync::Arc;
use store::commit::Log as Lane;
use store::context::Context;
use store::descriptors::LOG_PARTS;
use store::files::StoreFiles;
use store::manifest::Handle;
use store::space::SpaceBudget;

/// How this engine has the store open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineRole {
    /// This engine opened the store, and drives all lanes of the log.
    Owner,
    /// Another engine opened the store; this one is secondary.
    Secondary,
    /// The store is open read-only.
    Reader,
}

/// A new file that no manifest edit names yet. The job removes it if it fails.
pub(crate) struct NewFile {
    pub meta: FileMeta,
    pub path: PathBuf,
}

pub(crate) struct StoreHandles {
    pub files: Arc<StoreFiles>,
    pub space: Arc<SpaceBudget>,
    pub manifest: Handle<LavaLog>,
    /// The record lane of the log.
    pub lane: Arc<Lane>,
    /// The first lane of the log, which owns the reserved space; `None` in a read-only store.
    pub first: Option<Arc<Lane>>,
    pub options: Options,
    pub tenure: EngineRole,
}

impl StoreHandles {
    /// Returns the environment and the directory of the store.
    pub fn context(&self) -> &Arc<Context> {
        self.files.context()
    }

    /// Returns true if this engine opened the store.
    pub fn is_owner(&self) -> bool {
        self.tenure == EngineRole::Owner
    }

    pub fn is_read_only(&self) -> bool {
        self.tenure == EngineRole::Reader
    }

    /// Refuses changes of a read-only store.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            let why = "the store was opened read-only: open it for writing";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.context().dir));
        }
        Ok(())
    }

    /// Iterates over the lanes of the log that this engine drives.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.first.iter().filter(|_| self.is_owner()).chain([&self.lane])
    }

    /// Returns the current limit of open storage files.
    pub fn open_files_max(&self) -> u64 {
        let (max, descriptors) =
            (self.options.open_files_max, &self.context().volumes.directory().descriptors);
        let part = || descriptors.part(LOG_PARTS).saturating_mul(2);
        let now = if descriptors.is_alone() { max } else { max.min(part()) };
        now as u64
    }

    /// Creates a file with the next file number.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new_file(&self, role: FileRole) -> Result<(NewFile, Box<dyn AppendFile>)> {
        let number = self.manifest.allocate_file_number();
        let meta = FileMeta { number, uid: self.context().env.new_uid(), len: 0, role };
        let path = self.context().path(&meta.name());
        let options = CreateOptions { access: self.options.access, ..CreateOptions::default() };
        let file = self.context().env.fs.create(&path, &options)?;
        Ok((NewFile { meta, path }, file))
    }

    /// Removes files that no manifest edit names. Keeps them if the outcome of an edit is unknown.
    pub fn remove_unnamed(&self, files: &[NewFile]) {
        // A failed job cleans up before it reports the error to the store's health.
        if self.manifest.commits().outcome_unknown() || self.context().health.check_sound().is_err() {
            return;
        }
        let listed = self.manifest.state();
        for file in files.iter().filter(|file| !listed.files.contains_key(&file.meta.number)) {
            // The next open removes files that remain.
            let _ = self.files.remove(&file.meta.name());
        }
    }
}
