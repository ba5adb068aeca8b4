//! A series of vSSTs: takes values in key order, writes them into vSSTs, and returns the
//! references.
//!
//! It serves a flush (hot and cold values go to two series), and a merge that creates new values.
//! Its memory is that of the file being written: bounded for any input. A file ends at its size,
//! between user keys.
//!
//! References name the new file itself: no alias is involved, and the files enter the version in
//! the same edit as the tables that reference them.

use crate::outputs::{OutputVsst, Outputs};
use base::{Error, Result, SeqNo};
use std::path::PathBuf;
use table::{Record, RecordLens, Reference, VsstBuilder};
use version::VsstMeta;

/// A series of vSSTs: see the module. `F` begins a file.
pub struct VsstSeries<F> {
    create: F,
    vsst_bytes: u64,
    outputs: Outputs,
    /// The error after which the series fails.
    failed: Option<Error>,
}

impl<F: FnMut() -> Result<OutputVsst>> VsstSeries<F> {
    /// Returns a series whose files are begun by `create`, and have about `vsst_bytes`. No file is
    /// begun before the first value.
    pub fn new(vsst_bytes: u64, create: F) -> Self {
        VsstSeries { create, vsst_bytes, outputs: Outputs::default(), failed: None }
    }

    /// Writes a value. Keys must ascend strictly: user keys ascending, then sequences descending.
    ///
    /// # Errors
    /// The errors of beginning and writing files; every later call then returns the same error.
    pub fn add(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<Reference> {
        self.write(user_key, |builder| builder.add(user_key, seq, value))
    }

    /// Writes a record of another vSST verbatim, in its place among the keys of
    /// [`VsstSeries::add`]. Its length must fit the alignment that `create` gives its files.
    ///
    /// # Errors
    /// As [`VsstSeries::add`].
    pub fn copy(&mut self, record: &Record<'_>) -> Result<Reference> {
        self.write(record.user_key, |builder| builder.copy(record))
    }

    fn write(
        &mut self,
        user_key: &[u8],
        add: impl FnOnce(&mut VsstBuilder) -> Result<RecordLens>,
    ) -> Result<Reference> {
        self.guard(|this| {
            let vsst_bytes = this.vsst_bytes;
            let full = |b: &VsstBuilder| b.len_estimate() >= vsst_bytes;
            let lens = add(this.outputs.file_for(user_key, &[], full, &mut this.create)?)?;
            this.outputs.added(&lens);
            let blob_id = this.outputs.blob_id().expect("a file is open after a value was added");
            Ok(Reference { blob_id, raw_len: lens.raw_len, stored_len: lens.stored_len })
        })
    }

    /// Finishes and syncs the last file. Returns the descriptions of all files, in key order. The
    /// series can be used again, from any key on.
    ///
    /// # Errors
    /// As [`VsstSeries::add`].
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        self.guard(|this| {
            this.outputs.finish_file(&[])?;
            Ok(this.outputs.take_finished())
        })
    }

    /// Returns the number and path of every file begun so far, finished or not. After a failure the
    /// caller removes them.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.outputs.created()
    }

    /// Returns the physical bytes written since the last call, estimated for the open file.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.outputs.take_written_bytes()
    }

    /// Returns the bytes of the records written so far.
    pub fn record_bytes(&self) -> u64 {
        self.outputs.record_bytes()
    }

    fn guard<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        body(self).inspect_err(|e| self.failed = Some(e.clone()))
    }
}
