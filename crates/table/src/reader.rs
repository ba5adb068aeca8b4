//! An open kSST: point reads.
//!
//! An open reads the end of the file once (footer, meta index, properties, top indexes: usually all
//! of it) and keeps the top indexes and range tombstones. The list of referenced BlobIds grows with
//! the references in a table. It is not kept, but read again on demand ([`Ksst::dependencies`]), in
//! one read. A point read then needs the filter partition and the index partition, which are cached
//! with priority, and one data block: one device read. It searches the reference stream first (its
//! blocks count as index, and so are usually cached). It searches the inline stream only if its
//! sequences and its filter do not exclude it.

use crate::compress;
use crate::cursor::reported_trailer;
use crate::file::{BlockKind, TableFile};
use crate::footer::FileKind;
use crate::frame::{self, BlockHandle};
use crate::iterator::KsstIter;
use crate::key_prefix::{KeyPrefix, prefix_hash};
use crate::options::{IterOptions, ReadCounters};
use crate::properties::Properties;
use crate::readahead::ScanBounds;
use crate::reference::Reference;
use crate::sections::{self, Section};
use crate::source::Source;
use crate::stream::{Stream, UncachedReferences};
use crate::tail::Tail;
use crate::{block, reference_block, tombstone_block};
use base::range_del::FragmentedRangeTombstones;
use base::{Compression, Dependency, Error, MAX_SEQ, Result, SeqNo, Uid, ValueKind, key};
use cache::{BlockSlice, Cache};
use io::ReadFile;
use std::path::Path;
use std::sync::Arc;

/// The newest visible entry of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Sequence of the entry.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: ValueKind,
    /// Value of the entry; for a reference the encoded [`Reference`].
    pub value: BlockSlice,
}

/// An open kSST. Shared as `Arc<Ksst>`.
#[derive(Debug)]
pub struct Ksst {
    pub(crate) file: TableFile,
    pub(crate) len: u64,
    pub(crate) properties: Properties,
    pub(crate) global_seq: Option<SeqNo>,
    pub(crate) references: Option<Stream>,
    pub(crate) inline: Option<Stream>,
    pub(crate) sections: Vec<Section>,
    pub(crate) meta: BlockHandle,
    pub(crate) tombstones: Arc<FragmentedRangeTombstones>,
}

impl Ksst {
    /// Opens a table. `number` identifies its blocks in the cache, and `uid` is the expected
    /// identity of the file. With `global_seq` (an ingested file), every entry is reported with
    /// that sequence.
    ///
    /// # Errors
    /// `Corruption` if it is damaged, cut or another file; `Unsupported` if it was written by a
    /// newer release or with a codec that this build lacks.
    pub fn open(
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        global_seq: Option<SeqNo>,
        cache: Arc<Cache>,
    ) -> Result<Ksst> {
        Self::open_from(file, number, uid, global_seq, cache, &mut ReadCounters::default())
    }

    /// As [`Ksst::open`], with bytes from a source.
    ///
    /// # Errors
    /// The errors of [`Ksst::open`]; a stop if the source has to wait.
    pub fn open_from<S: Source>(
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        global_seq: Option<SeqNo>,
        cache: Arc<Cache>,
        source: &mut S,
    ) -> Result<Ksst, S::Stop> {
        let tail = Tail::open(FileKind::Ksst, file, number, uid, cache, source)?;
        let parts = Parts::read(&tail, tail.meta, global_seq, source)?;
        let Parts { properties, references, inline, sections, tombstones } = parts;
        let tombstones = Arc::new(tombstones);
        let Tail { file, len, meta, .. } = tail;
        Ok(Ksst { file, len, properties, global_seq, references, inline, sections, meta, tombstones })
    }

    /// Returns the newest entry of `user_key` with a sequence of at most `snapshot`, from either
    /// stream. Range tombstones are not considered. `key_hash` is [`base::hash::key_hash`] of the
    /// key.
    ///
    /// # Errors
    /// `Corruption` if a block on the way is damaged, and the errors of the file.
    pub fn get<S: Source>(
        &self,
        user_key: &[u8],
        snapshot: SeqNo,
        key_hash: u64,
        source: &mut S,
    ) -> Result<Option<FoundEntry>, S::Stop> {
        let trailer = match self.global_seq {
            Some(seq) if seq > snapshot => return Ok(None),
            Some(_) => u64::MAX,
            None => key::pack_trailer(snapshot.min(MAX_SEQ), ValueKind::Seek),
        };
        let mut found = None;
        let mut found_seq = 0;
        if let Some(stream) = &self.references
            && let Some((block, handle, filtered)) =
                stream.find(&self.file, user_key, trailer, key_hash, source)?
        {
            let hit = reference_block::find(&block, user_key, trailer);
            match hit.map_err(|e| self.file.locate(e, handle.offset))? {
                Some(hit) => {
                    found_seq = hit.trailer >> 8;
                    let value = BlockSlice::from(&*hit.reference.encode_inline());
                    found = Some(self.entry(hit.trailer, value));
                }
                None => source.counters().filter_false_positives += u64::from(filtered),
            }
        }
        if let Some(stream) = &self.inline
            && (found.is_none() || stream.max_seq >= found_seq)
            && let Some((block, handle, filtered)) =
                stream.find(&self.file, user_key, trailer, key_hash, source)?
        {
            let hit = block::find(&block, user_key, trailer);
            match hit.map_err(|e| self.file.locate(e, handle.offset))? {
                Some(hit) if found.is_none() || hit.trailer >> 8 > found_seq => {
                    let value = BlockSlice::checked(block, hit.value).unwrap_or_default();
                    found = Some(self.entry(hit.trailer, value));
                }
                Some(_) => {}
                None => source.counters().filter_false_positives += u64::from(filtered),
            }
        }
        Ok(found)
    }

    /// Decodes the trailer of an entry. Blocks return only kinds that they can store: `block`
    /// rejects others as malformed entries, and `reference_block` has one kind.
    fn entry(&self, stored_trailer: u64, value: BlockSlice) -> FoundEntry {
        let trailer = reported_trailer(stored_trailer, self.global_seq);
        match ValueKind::from_u8(trailer as u8) {
            Some(kind) => FoundEntry { seq: trailer >> 8, kind, value },
            None => unreachable!("a block gave an entry with trailer {stored_trailer:#x}"),
        }
    }

    /// Returns the reference stored under exactly this user key and sequence, for garbage
    /// collection; newer entries are ignored. Reads only the reference stream.
    ///
    /// # Errors
    /// As [`Ksst::get`].
    pub fn get_reference<S: Source>(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        key_hash: u64,
        source: &mut S,
    ) -> Result<Option<Reference>, S::Stop> {
        let Some(stream) = &self.references else { return Ok(None) };
        if self.global_seq.is_some_and(|global| global != seq) || seq > MAX_SEQ {
            return Ok(None);
        }
        let trailer = match self.global_seq {
            Some(_) => u64::MAX,
            None => key::pack_trailer(seq, ValueKind::Seek),
        };
        let Some((block, handle, _)) = stream.find(&self.file, user_key, trailer, key_hash, source)? else {
            return Ok(None);
        };
        let hit = reference_block::find(&block, user_key, trailer);
        let hit = hit.map_err(|e| self.file.locate(e, handle.offset))?;
        Ok(hit.filter(|h| reported_trailer(h.trailer, self.global_seq) >> 8 == seq).map(|h| h.reference))
    }

    /// Returns a cursor over the point entries of both streams.
    pub fn iter(self: &Arc<Self>, options: IterOptions) -> KsstIter {
        KsstIter::new(self.clone(), options, None, true)
    }

    /// As [`Ksst::iter`], for a scan within `borders`: nothing outside them is read ahead. The
    /// cursor itself is unbounded, but it may leave out keys outside them: if all keys within have
    /// one prefix ([`KeyPrefix`]), it passes over a stream whose filters exclude that prefix.
    pub fn iter_within(self: &Arc<Self>, options: IterOptions, borders: &Arc<ScanBounds>) -> KsstIter {
        KsstIter::new(self.clone(), options, Some(borders.clone()), true)
    }

    /// Returns false if a filter excludes all keys of a scan from a stream.
    pub(crate) fn may_hold(
        &self,
        stream: &Stream,
        borders: Option<&ScanBounds>,
        counters: &mut ReadCounters,
    ) -> bool {
        let kind = KeyPrefix::from_code(self.properties.prefix_code);
        let (Some(kind), Some(borders)) = (kind, borders.filter(|borders| borders.asks_filters)) else {
            return true;
        };
        let (Some(lower), Some(upper)) = (&borders.lower, &borders.upper) else { return true };
        let Some(prefix) = kind.of_range(lower, upper) else { return true };
        let range = (lower.as_slice(), upper.as_slice());
        let holds = stream.may_hold_prefix(&self.file, range, prefix_hash(prefix), borders.wants, counters);
        counters.prefix_negatives += u64::from(!holds);
        holds
    }

    /// Returns a cursor over the reference stream alone.
    pub fn iter_references(self: &Arc<Self>, options: IterOptions) -> KsstIter {
        KsstIter::new(self.clone(), options, None, false)
    }

    /// Returns the range tombstones.
    pub fn range_tombstones(&self) -> &Arc<FragmentedRangeTombstones> {
        &self.tombstones
    }

    /// Returns the properties of the table, without its dependencies: see [`Ksst::dependencies`].
    /// Its sequences are the stored ones, regardless of `global_seq`.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the referenced records for each BlobId, ascending. Reads them from the file, past
    /// the cache, in one read. A table without references needs no read.
    ///
    /// # Errors
    /// `Corruption` if the block is damaged, or counts another number of references than the table;
    /// the errors of the file.
    pub fn dependencies(&self, counters: &mut ReadCounters) -> Result<Vec<Dependency>> {
        if self.properties.references == 0 {
            return Ok(Vec::new());
        }
        let properties = self.sections.iter().find(|section| section.tag == sections::PROPERTIES);
        let handle = properties.map_or(self.meta, |section| section.handle);
        let located = |e: Error| self.file.locate(e, handle.offset);
        let block = self.file.read(handle, BlockKind::Index, counters)?;
        let dependencies = Properties::decode(&block).map_err(located)?.dependencies;
        let counted = dependencies.iter().fold(0u64, |sum, d| sum.saturating_add(d.count));
        let ascend = dependencies.is_sorted_by(|a, b| a.blob_id < b.blob_id);
        if !ascend || counted != self.properties.references {
            let why = format!(
                "the properties list {counted} references to value files, but the key table (kSST) has {}, \
                 or the list is out of order",
                self.properties.references
            );
            return Err(located(Error::corruption(why)));
        }
        Ok(dependencies)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns false: a table is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the file number given to [`Ksst::open`].
    pub fn number(&self) -> u64 {
        self.file.number
    }

    /// Returns the identity of the file.
    pub fn uid(&self) -> Uid {
        self.file.uid
    }

    /// Returns the bytes of data blocks (of both streams) before an encoded internal key. The
    /// difference of two results is the size of a range, to the nearest block.
    ///
    /// # Errors
    /// `Corruption` if an index partition is damaged, and the errors of the file.
    pub fn offset_of(&self, ikey: &[u8]) -> Result<u64> {
        let (user_key, trailer) = key::split(ikey);
        let mut sum = 0u64;
        for stream in self.streams() {
            sum = sum.saturating_add(stream.bytes_before(&self.file, user_key, trailer)?);
        }
        Ok(sum.min(self.len))
    }

    /// Returns the references from one user key to another, and their bytes outside the cache.
    /// Reads at most two index partitions; data under other partitions counts as not cached if
    /// their index is not cached.
    ///
    /// # Errors
    /// As [`Ksst::offset_of`].
    pub fn uncached_references(&self, first: &[u8], last: &[u8]) -> Result<UncachedReferences> {
        let sum = self.references.as_ref().map(|stream| stream.uncached(&self.file, first, last));
        sum.unwrap_or_else(|| Ok(UncachedReferences::default()))
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.references.iter().chain(&self.inline)
    }
}

/// Parts decoded when a table is opened.
struct Parts {
    properties: Properties,
    references: Option<Stream>,
    inline: Option<Stream>,
    sections: Vec<Section>,
    tombstones: FragmentedRangeTombstones,
}

impl Parts {
    fn read<S: Source>(
        tail: &Tail,
        meta: BlockHandle,
        global_seq: Option<SeqNo>,
        source: &mut S,
    ) -> Result<Parts, S::Stop> {
        let at = |offset: u64| move |e: Error| tail.file.locate(e, offset);
        let sections = sections::decode(&tail.read(meta, source)?).map_err(at(meta.offset))?;
        let (mut references, mut inline) = (None, None);
        let mut properties = Properties::default();
        let mut tombstones = Vec::new();
        for Section { tag, handle } in sections.iter().copied() {
            let here = at(handle.offset);
            match tag {
                sections::PROPERTIES => {
                    properties = Properties::decode_head(&tail.read(handle, source)?).map_err(here)?;
                    for codec in [Compression::Lz4, Compression::Zstd] {
                        if properties.uses(codec) {
                            compress::require(codec).map_err(here)?;
                        }
                    }
                }
                sections::TOP_REFERENCES => {
                    references =
                        Some(Stream::open(BlockKind::References, tail.read(handle, source)?).map_err(here)?);
                }
                sections::TOP_INLINE => {
                    inline = Some(Stream::open(BlockKind::Inline, tail.read(handle, source)?).map_err(here)?);
                }
                sections::RANGE_TOMBSTONES => {
                    tombstone_block::decode(&tail.read(handle, source)?, &mut tombstones).map_err(here)?;
                }
                _ => {}
            }
        }
        if properties.identity.uid != tail.file.uid {
            let why = format!(
                "the properties of the key table (kSST) have the file id {:?}, but its footer has {:?}: \
                 blocks of two files were mixed",
                properties.identity.uid, tail.file.uid
            );
            return Err(at(meta.offset)(Error::corruption(why)).into());
        }
        frame::check_codecs(properties.codecs).map_err(at(meta.offset))?;
        if let Some(seq) = global_seq {
            tombstones.iter_mut().for_each(|t| t.seq = seq);
        }
        let tombstones = FragmentedRangeTombstones::new(&tombstones);
        Ok(Parts { properties, references, inline, sections, tombstones })
    }
}
