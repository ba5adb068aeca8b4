//! An open vSST: point reads.

use super::keys::VsstKeys;
use super::properties::VsstProperties;
use super::record::Record;
use crate::file::TableFile;
use crate::options::ReadCounters;
use crate::reference::Reference;
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use cache::{BlockSlice, Cache};
use io::ReadFile;
use std::sync::Arc;

/// An open vSST. Shared as `Arc<Vsst>`.
#[derive(Debug)]
pub struct Vsst {
    pub(crate) file: TableFile,
    pub(crate) len: u64,
    pub(crate) properties: VsstProperties,
}

fn absent<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "vSSTs are not read yet"))
}

impl Vsst {
    /// Opens a vSST. `number` names its parts in the cache, `uid` is the identity the file must have.
    ///
    /// # Errors
    /// `Corruption` if it is damaged, cut or another file; `Unsupported` if it was written by a newer release or with a
    /// codec that this build lacks.
    pub fn open(_file: Arc<dyn ReadFile>, _number: u64, _uid: Uid, _cache: Arc<Cache>) -> Result<Vsst> {
        absent()
    }

    /// The value that `reference`, stored in a kSST under this key, stands for. The value cache is asked first; else
    /// one read of exactly the record, verified whole.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if the record or the way to it is damaged, or if this file does not
    /// hold the record; and what the file reports.
    pub fn get(
        &self,
        _user_key: &[u8],
        _seq: SeqNo,
        _reference: &Reference,
        _fill_cache: bool,
        _counters: &mut ReadCounters,
    ) -> Result<BlockSlice> {
        absent()
    }

    /// Where the record of a key lies, by the index alone: if the file has the key, it is there. For callers that read
    /// many records at once.
    ///
    /// # Errors
    /// `Corruption` if the index is damaged, and what the file reports.
    pub fn locate(&self, _user_key: &[u8], _seq: SeqNo, _counters: &mut ReadCounters) -> Result<u64> {
        absent()
    }

    /// The value of the record at `offset`, if it is cached and is the record of this key.
    pub fn cached(
        &self,
        _offset: u64,
        _user_key: &[u8],
        _seq: SeqNo,
        _reference: &Reference,
        _counters: &mut ReadCounters,
    ) -> Option<BlockSlice> {
        None
    }

    /// Verifies and decompresses a record that the caller read: `bytes` are the stored length's bytes from `offset`.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if they are not the intact record of this key.
    pub fn open_value(
        &self,
        _bytes: Vec<u8>,
        _offset: u64,
        _user_key: &[u8],
        _seq: SeqNo,
        _reference: &Reference,
    ) -> Result<BlockSlice> {
        absent()
    }

    /// The file, for callers that read many records at once.
    pub fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file.file
    }

    /// A cursor over all keys, in order, that does not read the values.
    ///
    /// # Errors
    /// `Corruption` if a partition is damaged, and what the file reports.
    pub fn keys(self: &Arc<Self>) -> Result<VsstKeys> {
        VsstKeys::new(self.clone())
    }

    /// Verifies a record that the caller read from `offset`: what garbage collection copies.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if it is not intact.
    pub fn open_record<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<Record<'a>> {
        Record::open(bytes, self.file.uid, offset, self.properties.alignment)
            .map_err(|e| self.file.locate(e, offset))
    }

    /// What the file says about itself.
    pub fn properties(&self) -> &VsstProperties {
        &self.properties
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never true: a vSST holds something.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file number given to [`Vsst::open`]; also its own BlobId.
    pub fn number(&self) -> u64 {
        self.file.number
    }

    /// The identity of the file.
    pub fn uid(&self) -> Uid {
        self.file.uid
    }

    /// What record lengths and offsets are multiples of.
    pub fn alignment(&self) -> u32 {
        self.properties.alignment
    }

    /// Reads and checks every byte: records, order, that the index agrees with the dense keys, counts and sums. Returns
    /// the bytes of the file.
    ///
    /// # Errors
    /// `Corruption`, with the offset, for the first thing that is wrong; and what the file reports.
    pub fn verify(&self) -> Result<u64> {
        absent()
    }
}
