//! Calls that read the whole store, with cancellation.

use super::Db;
use crate::work::verify::VerifyReport;
use base::Result;
use io::Cancel;
use std::path::Path;

impl Db {
    /// Makes a consistent copy of the store in a new directory, sharing table files by hard links.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.checkpoint_unless(dir, None)
    }

    /// Makes a checkpoint like [`Db::checkpoint`], until the token is cancelled; then no file of
    /// the copy remains.
    ///
    /// # Errors
    /// `Cancelled`; those of [`Db::checkpoint`].
    pub fn checkpoint_unless(&self, dir: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<()> {
        self.engine().checkpoint_unless(dir.as_ref(), cancel)
    }

    /// Reads and checks every byte of every table. Damage is reported, not returned as an error, so
    /// that one damaged file does not hide another.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_unless(None)
    }

    /// Verifies the store like [`Db::verify`], until the token is cancelled.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn verify_unless(&self, cancel: Option<&Cancel>) -> Result<VerifyReport> {
        let engine = self.here()?;
        let _entered = engine.context.enter()?;
        crate::work::verify::verify(&engine.jobs, cancel)
    }
}
