//! Writes a vSST.

use super::properties::VsstProperties;
use super::record::Record;
use crate::options::TableIdentity;
use base::{Compression, Error, ErrorKind, Result, SeqNo};
use cache::Cache;
use io::AppendFile;
use std::path::Path;
use std::sync::Arc;

/// The form of a new vSST.
#[derive(Clone, Copy, Debug, Default)]
pub struct VsstOptions {
    /// The codec of values and dense partitions.
    pub compression: Compression,
    /// What record lengths and offsets are multiples of: a power of two up to 64. 0: chosen from the first record.
    pub alignment: u32,
}

/// The lengths that the reference to a new record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLens {
    /// Bytes of the value.
    pub raw_len: u64,
    /// Bytes of the whole record.
    pub stored_len: u64,
}

/// A vSST that was written and synced.
#[derive(Clone, Debug)]
pub struct FinishedVsst {
    /// Bytes of the file.
    pub len: u64,
    /// The smallest encoded internal key, with kind `Value`.
    pub smallest: Vec<u8>,
    /// The largest.
    pub largest: Vec<u8>,
    /// What the file says about itself.
    pub properties: VsstProperties,
}

/// Writes a vSST from front to back.
pub struct VsstBuilder {
    properties: VsstProperties,
}

fn absent<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "vSSTs are not written yet"))
}

impl VsstBuilder {
    /// Starts a vSST in an empty file. `path` is for error messages; `warm` is the cache to put the index into when the
    /// file is finished.
    pub fn new(
        _file: Box<dyn AppendFile>,
        _path: &Path,
        identity: TableIdentity,
        _options: &VsstOptions,
        _warm: Option<Arc<Cache>>,
    ) -> Self {
        VsstBuilder { properties: VsstProperties { identity, ..VsstProperties::default() } }
    }

    /// Records when the file is written (properties only).
    pub fn set_created(&mut self, unix_seconds: u64) {
        self.properties.created_unix_seconds = unix_seconds;
    }

    /// Records whether its values are hot or cold (properties only).
    pub fn set_class(&mut self, class: u8) {
        self.properties.class = class;
    }

    /// Appends a value. Keys must ascend strictly: user keys ascending, then sequences descending.
    ///
    /// # Errors
    /// `InvalidArgument` for a key out of order, `TooLarge` for an entry over the limits, and what the file reports.
    /// After an error the file cannot be finished.
    pub fn add(&mut self, _user_key: &[u8], _seq: SeqNo, _value: &[u8]) -> Result<RecordLens> {
        absent()
    }

    /// Appends a record of another vSST verbatim. Its stored length stays what references to it say.
    ///
    /// # Errors
    /// As [`VsstBuilder::add`]; `InvalidArgument` too if the length is no multiple of this file's alignment.
    pub fn copy(&mut self, _record: &Record<'_>) -> Result<RecordLens> {
        absent()
    }

    /// About how many bytes the file would have if it were finished now.
    pub fn len_estimate(&self) -> u64 {
        self.properties.record_bytes
    }

    /// Bytes of all records so far, padding included.
    pub fn record_bytes(&self) -> u64 {
        self.properties.record_bytes
    }

    /// Bytes of the values so far, uncompressed.
    pub fn raw_bytes(&self) -> u64 {
        self.properties.raw_bytes
    }

    /// Records so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0
    }

    /// Writes all that is left and syncs the file. `took_over` are the BlobIds, ascending and without the file's own,
    /// that lead to this file from now on.
    ///
    /// # Errors
    /// `InvalidArgument` if nothing was added, and what the file reports.
    pub fn finish(self, _took_over: Vec<u64>) -> Result<FinishedVsst> {
        absent()
    }
}
