//! An open vSST: point reads.
//!
//! A read looks up the only record that may have the key in the index (usually cached), then looks
//! in the value cache, and then reads the device: one request of exactly the record. The cache
//! holds the record, not the bare value, so the key is compared on every read, cached or not. A
//! wrong index, alias or reference therefore never returns the value of another key. An
//! uncompressed record is cached, and its value returned, in the buffer into which it was read.

use super::dense_index::{DenseIndex, DenseRecord};
use super::index::Directory;
use super::keys::VsstKeys;
use super::properties::VsstProperties;
use super::record::{self, RECORD_LEN_MAX, Record, RecordHead};
use crate::compress;
use crate::file::{BlockKind, TableFile};
use crate::footer::FileKind;
use crate::frame::{self, BlockHandle};
use crate::options::ReadCounters;
use crate::reference::Reference;
use crate::sections::{self, Section};
use crate::source::{Source, Stop};
use crate::tail::{TAIL_LEN, Tail};
use base::{Compression, Error, ErrorKind, Result, SeqNo, Uid};
use cache::{Block, BlockSlice, Cache};
use io::ReadFile;
use std::sync::Arc;

/// An open vSST. Shared as `Arc<Vsst>`.
#[derive(Debug)]
pub struct Vsst {
    pub(crate) file: TableFile,
    pub(crate) len: u64,
    pub(crate) properties: VsstProperties,
    pub(crate) directory: Directory,
    pub(crate) dense_index: DenseIndex,
    pub(crate) sections: Vec<Section>,
    pub(crate) meta: BlockHandle,
}

/// Key and reference of a read.
#[derive(Clone, Copy)]
struct WantedRecord<'a> {
    user_key: &'a [u8],
    seq: SeqNo,
    reference: &'a Reference,
}

impl WantedRecord<'_> {
    /// Checks that a record is the wanted one.
    fn matches(&self, shape: &RecordHead, bytes: &[u8]) -> bool {
        shape.seq == self.seq
            && shape.raw_len == self.reference.raw_len
            && bytes.get(shape.key.clone()) == Some(self.user_key)
    }
}

impl Vsst {
    /// Opens a vSST. `number` identifies its parts in the cache, and `uid` is the expected identity
    /// of the file.
    ///
    /// # Errors
    /// `Corruption` if it is damaged, cut or another file; `Unsupported` if it was written by a
    /// newer release or with a codec that this build lacks.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid, cache: Arc<Cache>) -> Result<Vsst> {
        Self::open_from(file, number, uid, cache, &mut ReadCounters::default())
    }

    /// Returns the number of bytes read to open a vSST of `len` bytes.
    pub fn opening_bytes(len: u64) -> u64 {
        len.min(TAIL_LEN)
    }

    /// As [`Vsst::open`], with bytes from a source.
    ///
    /// # Errors
    /// The errors of [`Vsst::open`]; a stop if the source has to wait.
    pub fn open_from<S: Source>(
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        cache: Arc<Cache>,
        source: &mut S,
    ) -> Result<Vsst, S::Stop> {
        let tail = Tail::open(FileKind::Vsst, file, number, uid, cache, source)?;
        let at = |offset: u64| {
            let file = &tail.file;
            move |e: Error| file.locate(e, offset)
        };
        let sections = sections::decode(&tail.read(tail.meta, source)?).map_err(at(tail.meta.offset))?;
        let one = |tag, name: &str| {
            let mut all = sections.iter().filter(|s| s.tag == tag);
            let only = all.next().filter(|_| all.next().is_none()).map(|s| s.handle);
            only.ok_or_else(|| {
                at(tail.meta.offset)(Error::corruption(format!(
                    "the meta index of the value file (vSST) lacks its {name}, or lists two: the file is \
                     unreadable"
                )))
            })
        };
        let handle = one(sections::PROPERTIES, "properties")?;
        let properties = VsstProperties::decode(&tail.read(handle, source)?).map_err(at(handle.offset))?;
        if properties.identity.uid != uid || properties.record_bytes > tail.file.frames_end {
            let why = format!(
                "the properties of the value file (vSST) state the file id {:?} and {} bytes of records, \
                 but the file has {uid:?} and at most {}: blocks of two files were mixed",
                properties.identity.uid, properties.record_bytes, tail.file.frames_end
            );
            return Err(at(handle.offset)(Error::corruption(why)).into());
        }
        frame::check_codecs(properties.codecs).map_err(at(handle.offset))?;
        for codec in [Compression::Lz4, Compression::Zstd] {
            if properties.codecs >> codec as u8 & 1 == 1 {
                compress::require(codec).map_err(at(handle.offset))?;
            }
        }
        let handle = one(sections::DIRECTORY, "index tree (directory)")?;
        let directory = Directory::open(tail.read(handle, source)?).map_err(at(handle.offset))?;
        let dense_index = DenseIndex::new(
            one(sections::DENSE_INDEX, "index of the key list (dense keys)")?,
            properties.alignment,
        );
        let Tail { file, len, meta, .. } = tail;
        Ok(Vsst { file, len, properties, directory, dense_index, sections, meta })
    }

    /// Returns the value of `reference`, which a kSST stores under this key. Looks in the value
    /// cache first; otherwise makes one read of exactly the record, and verifies all of it.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if the record or the index is damaged, or if
    /// this file does not have the record; the errors of the file.
    pub fn get<S: Source>(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        reference: &Reference,
        fill_cache: bool,
        source: &mut S,
    ) -> Result<BlockSlice, S::Stop> {
        let offset = self.locate(user_key, seq, source)?;
        // A record that was read after a cache miss is not looked up again.
        let record = self.file.extent(BlockHandle { offset, len: reference.stored_len });
        if !source.has(&record)
            && let Some(value) = self.cached(offset, user_key, seq, reference, source.counters())
        {
            return Ok(value);
        }
        let wanted = WantedRecord { user_key, seq, reference };
        let value = match self.read_value(offset, wanted, source).map_err(S::Stop::into_error) {
            Ok(value) => value,
            Err(Ok(e)) if e.is_corruption() => return self.rescue(e, offset, wanted, source),
            Err(Ok(e)) => return Err(e.into()),
            Err(Err(waiting)) => return Err(waiting),
        };
        if fill_cache {
            let handle = BlockHandle { offset, len: reference.stored_len };
            self.file.fill(handle, BlockKind::Record, value.block());
        }
        Ok(value)
    }

    /// Returns the offset of a key's record, by the index alone, for callers that read many records
    /// at once. It is right only if the file has the key.
    ///
    /// # Errors
    /// `Corruption` if the index is damaged, and the errors of the file.
    pub fn locate<S: Source>(&self, user_key: &[u8], seq: SeqNo, source: &mut S) -> Result<u64, S::Stop> {
        let units = self.directory.find(&self.file, user_key, seq, source)?;
        let offset = units.checked_mul(u64::from(self.properties.alignment));
        let offset = offset.filter(|&o| o < self.properties.record_bytes);
        let offset = offset.ok_or_else(|| {
            let end = self.properties.record_bytes;
            let why = format!(
                "the index of the value file (vSST) leads to byte {}, past the end of the last record at \
                 byte {end}",
                units.saturating_mul(u64::from(self.properties.alignment))
            );
            self.file.locate(Error::corruption(why), self.directory_offset())
        })?;
        Ok(offset)
    }

    fn directory_offset(&self) -> u64 {
        let section = self.sections.iter().find(|s| s.tag == sections::DIRECTORY);
        section.map_or(0, |s| s.handle.offset)
    }

    /// Returns the value of the record at `offset`, if it is cached and has this key.
    pub fn cached(
        &self,
        offset: u64,
        user_key: &[u8],
        seq: SeqNo,
        reference: &Reference,
        counters: &mut ReadCounters,
    ) -> Option<BlockSlice> {
        let handle = BlockHandle { offset, len: reference.stored_len };
        let block = self.file.cached(handle, BlockKind::Record, counters)?;
        let shape = record::parse_head(&block).ok()?;
        let found = shape.codec == Compression::None
            && WantedRecord { user_key, seq, reference }.matches(&shape, &block);
        found.then(|| BlockSlice::checked(block, shape.value)).flatten()
    }

    /// Verifies and decompresses a record that the caller read: `bytes` are the stored length's
    /// bytes from `offset`.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if they are not the intact record of this key.
    pub fn open_value(
        &self,
        bytes: impl AsRef<[u8]> + Into<Block>,
        offset: u64,
        user_key: &[u8],
        seq: SeqNo,
        reference: &Reference,
    ) -> Result<BlockSlice> {
        self.open_block(bytes, offset, WantedRecord { user_key, seq, reference })
    }

    fn open_block(
        &self,
        block: impl AsRef<[u8]> + Into<Block>,
        offset: u64,
        wanted: WantedRecord<'_>,
    ) -> Result<BlockSlice> {
        let bytes = block.as_ref();
        let parsed = record::verify(bytes, self.file.uid, offset).and_then(|()| {
            let shape = record::parse(bytes)?;
            if !wanted.matches(&shape, bytes) {
                return Err(Error::corruption(format!(
                    "the value record has another key or sequence ({}) than the reference that leads to it \
                     ({})",
                    shape.seq, wanted.seq
                )));
            }
            if shape.codec == Compression::None {
                return Ok((shape.value, None));
            }
            // The same record without compression, padding and checksum can be cached like any
            // other.
            let mut head = Vec::with_capacity(wanted.user_key.len() + 32);
            let raw_len = wanted.reference.raw_len as usize;
            record::put_head(&mut head, Compression::None, wanted.user_key, wanted.seq, raw_len);
            let payload = bytes.get(shape.value).unwrap_or_default();
            let raw = compress::decompress_behind(&head, shape.codec, payload)?;
            Ok((head.len()..raw.len(), Some(raw)))
        });
        let (value, raw) = parsed.map_err(|e| self.file.locate(e, offset))?;
        Ok(BlockSlice::checked(raw.unwrap_or_else(|| block.into()), value).unwrap_or_default())
    }

    fn read_value<S: Source>(
        &self,
        offset: u64,
        wanted: WantedRecord<'_>,
        source: &mut S,
    ) -> Result<BlockSlice, S::Stop> {
        let len = wanted.reference.stored_len;
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.properties.record_bytes);
        if !fits || len > RECORD_LEN_MAX as u64 {
            let end = self.properties.record_bytes;
            let why = format!(
                "a key table's reference leads to a value record of {len} bytes, but records have at most \
                 {RECORD_LEN_MAX} bytes and the last ends at byte {end}"
            );
            return Err(self.file.locate(Error::corruption(why), offset).into());
        }
        let block = self.file.bytes(BlockHandle { offset, len }, BlockKind::Record, source)?;
        Ok(self.open_block(block, offset, wanted)?)
    }

    /// Handles a wrong index or a damaged record: the dense keys tell which it is. If they name
    /// another place, and the intact record is there, returns its value.
    #[cold]
    fn rescue<S: Source>(
        &self,
        e: Error,
        offset: u64,
        wanted: WantedRecord<'_>,
        source: &mut S,
    ) -> Result<BlockSlice, S::Stop> {
        source.counters().vsst_dense_searches += 1;
        let found = self.dense_index.find(&self.file, wanted.user_key, wanted.seq, source);
        let looking = |e: Error| e.context("looking for a record in the key list (dense keys)");
        let found = found.map_err(|stop| stop.map(looking))?;
        let Some(DenseRecord { offset: place, raw_len, stored_len }) = found else {
            let why = format!(
                "a key table refers to key \"{}\" with sequence {} in this value file (vSST), but the file \
                 lacks it; other values stay readable",
                wanted.user_key.escape_ascii(),
                wanted.seq
            );
            return Err(self.file.locate(Error::new(ErrorKind::Corruption, why), offset).into());
        };
        let Reference { raw_len: raw, stored_len: stored, .. } = *wanted.reference;
        if (raw_len, stored_len) != (raw, stored) {
            let why = format!(
                "a key table refers to a record of {stored} bytes with a value of {raw} bytes, but the \
                 value file (vSST) has {stored_len} and {raw_len} bytes; other values stay readable"
            );
            return Err(self.file.locate(Error::corruption(why), place).into());
        }
        if place == offset {
            return Err(e.context("a value record is damaged, other values stay readable").into());
        }
        self.read_value(place, wanted, source)
    }

    /// Returns the file, for callers that read many records at once.
    pub fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file.file
    }

    /// Returns a cursor over all keys, in order, that does not read the values. It is on the first
    /// key.
    ///
    /// # Errors
    /// `Corruption` if a partition is damaged, and the errors of the file.
    pub fn keys(self: &Arc<Self>) -> Result<VsstKeys> {
        VsstKeys::new(self.clone())
    }

    /// Verifies a record that the caller read from `offset`, for garbage collection to copy.
    ///
    /// # Errors
    /// `Corruption`, with the file and the offset, if it is not intact.
    pub fn open_record<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<Record<'a>> {
        Record::open(bytes, self.file.uid, offset, self.properties.alignment)
            .map_err(|e| self.file.locate(e, offset))
    }

    /// Returns the properties of the file.
    pub fn properties(&self) -> &VsstProperties {
        &self.properties
    }

    /// Returns the length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns false: a vSST is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the file number given to [`Vsst::open`], which is also its own BlobId.
    pub fn number(&self) -> u64 {
        self.file.number
    }

    /// Returns the identity of the file.
    pub fn uid(&self) -> Uid {
        self.file.uid
    }

    /// Returns the alignment of record lengths and offsets.
    pub fn alignment(&self) -> u32 {
        self.properties.alignment
    }
}
