//! One stream of an open table: its top index in memory, and the lookup of the data block for a
//! key.

use crate::file::{BlockKind, Caching, TableFile};
use crate::filter;
use crate::frame::BlockHandle;
use crate::index::IndexShape;
use crate::options::ReadCounters;
use crate::source::{Source, Stop};
use crate::stream_builder::top;
use base::codec::Reader;
use base::{Error, Result, SeqNo};
use cache::Block;

/// Maximum number of further partitions in which a scan looks for the prefix of its keys.
const PREFIX_PARTITIONS_MAX: usize = 2;

/// The top index of a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) role: BlockKind,
    block: Block,
    shape: IndexShape<{ top::COLUMNS }>,
    pub(crate) entries: u64,
    pub(crate) min_seq: SeqNo,
    pub(crate) max_seq: SeqNo,
    /// Bytes of data in the stream before each partition, and their total.
    bytes_before: Vec<u64>,
}

/// An index partition, ready to be searched.
#[derive(Clone, Default)]
pub(crate) struct Partition {
    pub(crate) block: Block,
    pub(crate) shape: IndexShape<2>,
}

impl Partition {
    fn open(file: &TableFile, handle: BlockHandle, block: Block) -> Result<Partition> {
        let shape = IndexShape::parse(&block, 0).map_err(|e| file.locate(e, handle.offset))?;
        Ok(Partition { block, shape })
    }

    pub(crate) fn handle(&self, row: usize) -> BlockHandle {
        let (offset, len) = (self.shape.column(&self.block, 0, row), self.shape.column(&self.block, 1, row));
        BlockHandle { offset, len }
    }
}

/// References of a range of keys, and the bytes that a reader of them has to fetch from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncachedReferences {
    /// Approximate number of references in the range.
    pub references: u64,
    /// Approximate number of their blocks.
    pub blocks: u64,
    /// Bytes of the blocks, cached or not.
    pub block_bytes: u64,
    /// Bytes of the blocks that are not cached.
    pub uncached_block_bytes: u64,
    /// Bytes of all reference blocks of the table.
    pub table_block_bytes: u64,
    /// Bytes of index partitions that are not cached.
    pub uncached_index_bytes: u64,
    /// Bytes of filters that are not cached.
    pub uncached_filter_bytes: u64,
}

impl Stream {
    /// See [`crate::Ksst::uncached_references`].
    pub(crate) fn uncached(&self, file: &TableFile, first: &[u8], last: &[u8]) -> Result<UncachedReferences> {
        let (mut sum, mut seen_bytes) = (UncachedReferences::default(), 0u64);
        let ends = [self.search(first, u64::MAX), self.search(last, 0).min(self.partitions() - 1)];
        for p in ends[0]..=ends[1] {
            if let Some(filter) = self.filter_handle(p).filter(|h| !file.is_cached(*h, BlockKind::Filter)) {
                sum.uncached_filter_bytes += filter.len;
            }
            let index = self.index_handle(p);
            let is_cached = file.is_cached(index, BlockKind::Index);
            if !is_cached {
                sum.uncached_index_bytes += index.len;
            }
            if !is_cached && !ends.contains(&p) {
                let bytes = self.column(top::DATA_LEN, p);
                sum.block_bytes = sum.block_bytes.saturating_add(bytes);
                sum.uncached_block_bytes = sum.uncached_block_bytes.saturating_add(bytes);
                continue;
            }
            let partition = self.partition(file, p, Caching::Peek, &mut ReadCounters::default())?;
            let (shape, block) = (&partition.shape, &partition.block);
            let from = if p == ends[0] { shape.search(block, first, u64::MAX) } else { 0 };
            let to = if p == ends[1] { shape.search(block, last, 0).saturating_add(1) } else { usize::MAX };
            for row in from..to.min(shape.rows()) {
                let handle = partition.handle(row);
                sum.blocks += 1;
                seen_bytes = seen_bytes.saturating_add(handle.len);
                sum.block_bytes = sum.block_bytes.saturating_add(handle.len);
                if !file.is_cached(handle, self.role) {
                    sum.uncached_block_bytes = sum.uncached_block_bytes.saturating_add(handle.len);
                }
            }
        }
        let part = |of: u64, bytes: u64, all: u64| {
            let part = u128::from(of) * u128::from(bytes) / u128::from(all.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let all = self.bytes_before.last().copied().unwrap_or(0);
        sum.table_block_bytes = all;
        sum.references = part(self.entries, sum.block_bytes.min(all), all);
        sum.blocks = part(sum.blocks, sum.block_bytes, seen_bytes);
        Ok(sum)
    }

    pub(crate) fn open(role: BlockKind, block: Block) -> Result<Stream> {
        let mut reader = Reader::new(&block);
        let entries = reader.varint()?;
        let (min_seq, max_seq) = (reader.varint()?, reader.varint()?);
        let start = block.len() - reader.rest().len();
        let shape = IndexShape::parse(&block, start)?;
        if shape.rows() == 0 {
            return Err(Error::corruption(
                "the top index of the key table (kSST) has no partitions, so it leads to no key",
            ));
        }
        let mut bytes_before = Vec::with_capacity(shape.rows() + 1);
        let mut sum = 0u64;
        for p in 0..shape.rows() {
            bytes_before.push(sum);
            sum = sum.saturating_add(shape.column(&block, top::DATA_LEN, p));
        }
        bytes_before.push(sum);
        Ok(Stream { role, block, shape, entries, min_seq, max_seq, bytes_before })
    }

    pub(crate) fn partitions(&self) -> usize {
        self.shape.rows()
    }

    fn column(&self, column: usize, partition: usize) -> u64 {
        self.shape.column(&self.block, column, partition)
    }

    pub(crate) fn index_handle(&self, partition: usize) -> BlockHandle {
        BlockHandle {
            offset: self.column(top::INDEX_OFFSET, partition),
            len: self.column(top::INDEX_LEN, partition),
        }
    }

    /// Returns the filter of a partition, if it has one.
    pub(crate) fn filter_handle(&self, partition: usize) -> Option<BlockHandle> {
        let len = self.column(top::FILTER_LEN, partition);
        (len > 0).then(|| BlockHandle { offset: self.column(top::FILTER_OFFSET, partition), len })
    }

    /// Returns the separator that ends a partition: the user key in `out`, and the trailer.
    pub(crate) fn separator(&self, partition: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(&self.block, partition, out)
    }

    /// Returns the partition for an internal key; [`Stream::partitions`] if all sort before it.
    pub(crate) fn search(&self, user_key: &[u8], trailer: u64) -> usize {
        self.shape.search(&self.block, user_key, trailer)
    }

    pub(crate) fn partition<S: Source>(
        &self,
        file: &TableFile,
        partition: usize,
        caching: Caching,
        source: &mut S,
    ) -> Result<Partition, S::Stop> {
        let handle = self.index_handle(partition);
        Ok(Partition::open(file, handle, file.fetch(handle, BlockKind::Index, caching, source)?)?)
    }

    /// As [`Stream::partition`], for callers that keep the partition themselves until their step is
    /// done.
    pub(crate) fn partition_to_keep<S: Source>(
        &self,
        file: &TableFile,
        partition: usize,
        caching: Caching,
        source: &mut S,
    ) -> Result<Partition, S::Stop> {
        let handle = self.index_handle(partition);
        Ok(Partition::open(file, handle, file.cached_or_read(handle, BlockKind::Index, caching, source)?)?)
    }

    /// Returns false only if no key from `lower` to before `upper` is in the stream, given the hash
    /// of the prefix that they share. `is_waiting`: it reads no filter that is not cached.
    pub(crate) fn may_hold_prefix(
        &self,
        file: &TableFile,
        (lower, upper): (&[u8], &[u8]),
        prefix_hash: u64,
        is_waiting: bool,
        counters: &mut ReadCounters,
    ) -> bool {
        let (first, end) = (self.search(lower, u64::MAX), self.search(upper, u64::MAX));
        // Long ranges are in most tables.
        if end > first.saturating_add(PREFIX_PARTITIONS_MAX) {
            return true;
        }
        // Behind the last key there is nothing to exclude.
        first >= self.partitions()
            || (first..=end.min(self.partitions() - 1)).any(|p| {
                let Some(handle) = self.filter_handle(p) else { return true };
                let block = match is_waiting {
                    true => file.cached(handle, BlockKind::Filter, counters).map(Ok),
                    false => Some(file.fetch(handle, BlockKind::Filter, Caching::Fill, counters)),
                };
                let Some(block) = block else { return true };
                let passes = block.and_then(|block| filter::may_contain(&block, prefix_hash));
                passes.unwrap_or_else(|_| {
                    counters.filters_unreadable += 1;
                    true
                })
            })
    }

    /// Returns the data block with the first entry at or after the internal key, if that entry has
    /// its user key. Returns `None` if a filter or the index excludes that. The flag tells whether
    /// a filter let the key pass; an unreadable filter is ignored.
    #[inline]
    pub(crate) fn find<S: Source>(
        &self,
        file: &TableFile,
        user_key: &[u8],
        trailer: u64,
        key_hash: u64,
        source: &mut S,
    ) -> Result<Option<(Block, BlockHandle, bool)>, S::Stop> {
        let p = self.search(user_key, trailer);
        if p >= self.partitions() {
            return Ok(None);
        }
        let mut filtered = false;
        if let Some(handle) = self.filter_handle(p) {
            let passes = match file.fetch(handle, BlockKind::Filter, Caching::Fill, source) {
                Ok(block) => filter::may_contain(&block, key_hash),
                Err(stop) => Err(stop.into_error()?),
            };
            match passes {
                Ok(true) => filtered = true,
                Ok(false) => {
                    source.counters().filter_negatives += 1;
                    return Ok(None);
                }
                // A filter only saves reads: the block gives the same answer. `verify` reports the
                // damage.
                Err(_) => source.counters().filters_unreadable += 1,
            }
        }
        let partition = self.partition(file, p, Caching::Fill, source)?;
        let row = partition.shape.search(&partition.block, user_key, trailer);
        if row >= partition.shape.rows() {
            let e = Error::corruption(
                "an index partition of the key table (kSST) ends before the last key that the top index \
                 gives for it; keys of other partitions stay readable",
            );
            return Err(file.locate(e, self.index_handle(p).offset).into());
        }
        let handle = partition.handle(row);
        let block = file.fetch(handle, self.role, Caching::Fill, source)?;
        Ok(Some((block, handle, filtered)))
    }

    /// Returns the bytes of data blocks before the one for an internal key.
    pub(crate) fn bytes_before(&self, file: &TableFile, user_key: &[u8], trailer: u64) -> Result<u64> {
        let p = self.search(user_key, trailer);
        let before = self.bytes_before.get(p).copied().unwrap_or(0);
        if p >= self.partitions() {
            return Ok(before);
        }
        let partition = self.partition(file, p, Caching::Fill, &mut ReadCounters::default())?;
        let row = partition.shape.search(&partition.block, user_key, trailer);
        let last = partition.shape.rows().saturating_sub(1);
        let offset = partition.handle(row.min(last)).offset;
        let within = offset.saturating_sub(self.column(top::DATA_OFFSET, p));
        Ok(before.saturating_add(within.min(self.column(top::DATA_LEN, p))))
    }

    /// Returns the range of the file to read at once for the block `handle` of a partition, when
    /// the stream will be read further. The range has about `len` bytes, and only data of this
    /// stream from contiguous partitions.
    pub(crate) fn span(&self, partition: usize, handle: BlockHandle, len: u64, backward: bool) -> (u64, u64) {
        let start_of = |p| self.column(top::DATA_OFFSET, p);
        let end_of = |p| start_of(p).saturating_add(self.column(top::DATA_LEN, p));
        if backward {
            let limit = handle.end().saturating_sub(len);
            let (mut p, mut start) = (partition, start_of(partition));
            while start > limit && p > 0 && end_of(p - 1) == start {
                p -= 1;
                start = start_of(p);
            }
            return (start.max(limit).min(handle.offset), handle.end());
        }
        let limit = handle.offset.saturating_add(len);
        let (mut p, mut end) = (partition, end_of(partition));
        while end < limit && p + 1 < self.partitions() && start_of(p + 1) == end {
            p += 1;
            end = end_of(p);
        }
        (handle.offset, end.min(limit))
    }
}
