//! The vSSTs that a job writes, one after the other.
//!
//! A file ends when it has its size, but never between two versions of a user key. Every begun file
//! is listed, finished or not, so that after a failure the caller can remove them.

use crate::meta::vsst_meta;
use base::{Result, Uid};
use std::path::PathBuf;
use table::{RecordLens, VsstBuilder};
use version::{BlobId, Volume, VsstMeta};

/// A vSST begun by the caller.
pub struct OutputVsst {
    /// File number.
    pub number: u64,
    /// Path of the file.
    pub path: PathBuf,
    /// Volume of the file.
    pub volume: Volume,
    /// Identity given to the builder.
    pub uid: Uid,
    /// Builder of the file.
    pub builder: VsstBuilder,
}

/// The open file.
struct Open {
    number: u64,
    volume: Volume,
    builder: VsstBuilder,
    /// User key of the last record.
    last_key: Vec<u8>,
}

/// Output files of a job: see the module.
#[derive(Default)]
pub(crate) struct Outputs {
    open: Option<Open>,
    finished: Vec<VsstMeta>,
    created: Vec<(u64, PathBuf)>,
    /// Bytes of the finished files.
    finished_bytes: u64,
    /// Bytes of all records.
    record_bytes: u64,
    reported_bytes: u64,
}

impl Outputs {
    /// Returns the file for a record of `user_key`: the open one, or a new one if there is none or
    /// `full` is true for the open one.
    pub(crate) fn file_for(
        &mut self,
        user_key: &[u8],
        took_over: &[BlobId],
        full: impl FnOnce(&VsstBuilder) -> bool,
        create: impl FnOnce() -> Result<OutputVsst>,
    ) -> Result<&mut VsstBuilder> {
        if self.open.as_ref().is_some_and(|open| open.last_key != user_key && full(&open.builder)) {
            self.finish_file(took_over)?;
        }
        if self.open.is_none() {
            let OutputVsst { number, path, volume, uid: _, builder } = create()?;
            self.created.push((number, path));
            self.open = Some(Open { number, volume, builder, last_key: Vec::new() });
        }
        let open = self.open.as_mut().expect("opened above");
        open.last_key.clear();
        open.last_key.extend_from_slice(user_key);
        Ok(&mut open.builder)
    }

    /// Returns the blob id of the open file.
    pub(crate) fn blob_id(&self) -> Option<BlobId> {
        self.open.as_ref().map(|open| open.number)
    }

    /// Counts a record that was just added.
    pub(crate) fn added(&mut self, lens: &RecordLens) {
        self.record_bytes += lens.stored_len;
    }

    /// Returns the bytes of all records so far.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Finishes the open file, if there is one.
    pub(crate) fn finish_file(&mut self, took_over: &[BlobId]) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let finished = open.builder.finish(took_over.to_vec())?;
        self.finished_bytes += finished.len;
        self.finished.push(VsstMeta { volume: open.volume, ..vsst_meta(&finished)? });
        Ok(())
    }

    /// Returns the finished files, in key order.
    pub(crate) fn take_finished(&mut self) -> Vec<VsstMeta> {
        debug_assert!(self.open.is_none(), "a file is open");
        std::mem::take(&mut self.finished)
    }

    /// Returns the number and path of every begun file.
    pub(crate) fn created(&self) -> &[(u64, PathBuf)] {
        &self.created
    }

    /// Returns the bytes written since the last call; those of the open file are estimated.
    pub(crate) fn take_written_bytes(&mut self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.builder.len_estimate());
        let total = self.finished_bytes + open;
        let new = total.saturating_sub(self.reported_bytes);
        self.reported_bytes = self.reported_bytes.max(total);
        new
    }
}
