//! Builds the index and the filter of one stream while a table is written.
//!
//! Data goes to the file as it comes. Separators, handles and filters (about 1 % of the data) are
//! kept until the end, so that data blocks are contiguous and read-ahead reads nothing else.
//!
//! A partition is closed between two data blocks, once its index has `partition_len` bytes or its
//! filter four times as many. It is preferably closed between two user keys and at a short
//! separator (since the top index keeps it in memory), but always before it grows out of bounds.

use crate::filter;
use crate::frame::BlockHandle;
use crate::index::{self, Separators};
use crate::key_prefix::{KeyPrefix, prefix_hash};
use crate::options::TableOptions;
use crate::prefix::{push_separator, shared_len};
use crate::sink::{Sink, frame_len};
use base::codec::put_varint;
use base::{KeySample, Result, SeqNo, hash};
use cache::Cache;

/// Length of a separator above which it ends a partition only if it must.
const SHORT_SEPARATOR_LEN: usize = 128;
/// Size at which the index of a partition is closed at any separator.
const INDEX_LEN_FORCED: usize = 1 << 20;
/// Maximum ratio of the bytes of a filter to the bytes of its index.
const FILTER_RATIO: usize = 4;
/// Approximate bytes of an index row besides its separator.
const ROW_LEN: usize = 6;
/// Approximate bytes of a partition besides index and filter.
const PARTITION_LEN: u64 = 64;

/// Columns of the top index.
pub(crate) mod top {
    pub(crate) const INDEX_OFFSET: usize = 0;
    pub(crate) const INDEX_LEN: usize = 1;
    pub(crate) const FILTER_OFFSET: usize = 2;
    pub(crate) const FILTER_LEN: usize = 3;
    pub(crate) const DATA_OFFSET: usize = 4;
    pub(crate) const DATA_LEN: usize = 5;
    pub(crate) const COLUMNS: usize = 6;
}

/// Result of [`StreamBuilder::finish`].
#[derive(Default)]
pub(crate) struct FinishedStream {
    /// Payload of the top index block; empty if the stream is empty.
    pub(crate) top: Vec<u8>,
    pub(crate) block_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) filter_bytes: u64,
}

/// Index and filter of one stream.
pub(crate) struct StreamBuilder {
    bits_per_key: u32,
    prefix: Option<KeyPrefix>,
    partition_len: usize,
    last_user: Vec<u8>,
    last_trailer: u64,
    entries: u64,
    min_seq: SeqNo,
    max_seq: SeqNo,
    /// Hashes of the distinct user keys of the open partition, and of their prefixes.
    hashes: Vec<u64>,
    sample: KeySample,
    filters: Vec<Vec<u8>>,
    separators: Separators,
    handles: Vec<BlockHandle>,
    /// Number of blocks up to the end of each closed partition.
    partition_ends: Vec<usize>,
    /// Bytes of separators in the open partition; the length of their common prefix is in
    /// `common_len`.
    separator_bytes: usize,
    common_len: usize,
    index_len_closed: u64,
    filter_len_closed: u64,
    /// Approximate bytes of index and filter, except the filter of the open partition. Changes only
    /// when a block ends.
    len_between_blocks: u64,
}

impl StreamBuilder {
    pub(crate) fn new(options: &TableOptions) -> Self {
        StreamBuilder {
            bits_per_key: options.filter_bits_per_key,
            prefix: options.prefix,
            partition_len: options.partition_len,
            last_user: Vec::new(),
            last_trailer: 0,
            entries: 0,
            min_seq: SeqNo::MAX,
            max_seq: 0,
            hashes: Vec::new(),
            sample: KeySample::default(),
            filters: Vec::new(),
            separators: Separators::default(),
            handles: Vec::new(),
            partition_ends: Vec::new(),
            separator_bytes: 0,
            common_len: 0,
            index_len_closed: 0,
            filter_len_closed: 0,
            len_between_blocks: PARTITION_LEN + ROW_LEN as u64,
        }
    }

    /// Returns the approximate length of the key sample so far.
    pub(crate) fn sample_len(&self) -> usize {
        self.sample.stored_len()
    }

    /// Takes the key sample so far.
    pub(crate) fn take_sample(&mut self) -> KeySample {
        std::mem::take(&mut self.sample)
    }

    /// Returns the user key and trailer of the last entry.
    pub(crate) fn last(&self) -> (&[u8], u64) {
        (&self.last_user, self.last_trailer)
    }

    /// Records an entry; `shared` is the length of the prefix that its user key shares with the
    /// last one.
    #[inline]
    pub(crate) fn note(&mut self, user_key: &[u8], shared: usize, trailer: u64) {
        let same = shared == user_key.len() && shared == self.last_user.len();
        if !same || self.hashes.is_empty() {
            let hash = hash::key_hash(user_key);
            self.sample.add(hash);
            if self.bits_per_key > 0 {
                if let Some(kind) = self.prefix {
                    self.note_prefix(kind, user_key, shared);
                }
                self.hashes.push(hash);
            }
        }
        if !same {
            self.last_user.truncate(shared);
            self.last_user.extend_from_slice(&user_key[shared..]);
        }
        self.last_trailer = trailer;
        self.entries += 1;
        self.min_seq = self.min_seq.min(trailer >> 8);
        self.max_seq = self.max_seq.max(trailer >> 8);
    }

    /// Records the prefix of a key, unless the last key has put it into the open partition.
    fn note_prefix(&mut self, kind: KeyPrefix, user_key: &[u8], shared: usize) {
        if let Some(prefix) = kind.of(user_key)
            && (self.hashes.is_empty() || prefix.len() > shared)
        {
            self.hashes.push(prefix_hash(prefix));
        }
    }

    /// Records that a data block ended after the last entry; `next` is the following user key in
    /// the stream.
    pub(crate) fn end_block(&mut self, next: Option<&[u8]>, handle: BlockHandle) {
        let last = &self.last_user;
        let inside_a_key = next == Some(last.as_slice());
        let trailer = if inside_a_key { self.last_trailer } else { 0 };
        self.separators.push_with(trailer, |out| match next {
            Some(next) if !inside_a_key => push_separator(out, last, next),
            _ => out.extend_from_slice(last),
        });
        self.handles.push(handle);
        let first = self.partition_ends.last().copied().unwrap_or(0);
        let separator = self.separators.get(self.handles.len() - 1).0;
        let rows = self.handles.len() - first;
        self.common_len = shared_len(self.separators.get(first).0, separator);
        self.separator_bytes += separator.len();
        let index_len = self.index_len(rows);
        let full = index_len >= self.partition_len
            || filter::len_of(self.hashes.len(), self.bits_per_key) >= FILTER_RATIO * self.partition_len;
        let good = !inside_a_key && separator.len() <= SHORT_SEPARATOR_LEN;
        if full && (good || index_len >= INDEX_LEN_FORCED) {
            self.close_partition();
        }
        let rows = self.handles.len() - self.partition_ends.last().copied().unwrap_or(0);
        self.len_between_blocks = self.index_len_closed
            + self.filter_len_closed
            + self.index_len(rows + 1) as u64
            + PARTITION_LEN * (self.partition_ends.len() as u64 + 1);
    }

    fn index_len(&self, rows: usize) -> usize {
        let own = self.separator_bytes.saturating_sub(rows.saturating_sub(1) * self.common_len);
        own + rows * ROW_LEN
    }

    fn close_partition(&mut self) {
        let rows = self.handles.len() - self.partition_ends.last().copied().unwrap_or(0);
        self.index_len_closed += frame_len(self.index_len(rows));
        self.partition_ends.push(self.handles.len());
        if self.bits_per_key > 0 {
            let filter = filter::build(&self.hashes, self.bits_per_key);
            self.filter_len_closed += frame_len(filter.len());
            self.filters.push(filter);
        }
        self.hashes.clear();
        self.separator_bytes = 0;
    }

    /// Adds `by` to the offsets of the blocks from `from` on, once the offset of their run is
    /// known.
    pub(crate) fn shift_offsets(&mut self, from: usize, by: u64) {
        self.handles[from..].iter_mut().for_each(|h| h.offset += by);
    }

    /// Returns the frame lengths of the blocks from `from` on.
    pub(crate) fn frame_lens(&self, from: usize) -> impl Iterator<Item = u64> + '_ {
        self.handles[from..].iter().map(|h| h.len)
    }

    /// Returns the offsets of the blocks from `from` on.
    pub(crate) fn offsets(&self, from: usize) -> impl Iterator<Item = u64> + '_ {
        self.handles[from..].iter().map(|h| h.offset)
    }

    /// Returns the number of data blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.handles.len()
    }

    /// Returns the approximate bytes that index and filter will take.
    #[inline]
    pub(crate) fn len_estimate(&self) -> u64 {
        self.len_between_blocks + (self.hashes.len() * self.bits_per_key as usize / 8) as u64
    }

    /// Writes filter and index partitions. With `warm`, also inserts them into that cache under
    /// that file number.
    pub(crate) fn finish(&mut self, sink: &mut Sink, warm: Option<(&Cache, u64)>) -> Result<FinishedStream> {
        if self.handles.is_empty() {
            return Ok(FinishedStream::default());
        }
        if self.partition_ends.last() != Some(&self.handles.len()) {
            self.close_partition();
        }
        let partitions = self.partition_ends.len();
        let mut columns: [Vec<u64>; top::COLUMNS] = std::array::from_fn(|_| Vec::with_capacity(partitions));
        let mut done = FinishedStream::default();
        for i in 0..partitions {
            let none = BlockHandle::default();
            let handle = self.filters.get_mut(i).map_or(Ok(none), |filter| sink.write_warm(filter, warm))?;
            columns[top::FILTER_OFFSET].push(handle.offset);
            columns[top::FILTER_LEN].push(handle.len);
            done.filter_bytes += handle.len;
        }
        let mut tops = Separators::default();
        let mut payload = Vec::new();
        let mut start = 0;
        for &end in &self.partition_ends {
            let blocks = &self.handles[start..end];
            let offsets: Vec<u64> = blocks.iter().map(|h| h.offset).collect();
            let lens: Vec<u64> = blocks.iter().map(|h| h.len).collect();
            payload.clear();
            index::encode(&mut payload, &self.separators, start..end, &[&offsets, &lens]);
            let handle = sink.write_warm(&mut payload, warm)?;
            columns[top::INDEX_OFFSET].push(handle.offset);
            columns[top::INDEX_LEN].push(handle.len);
            done.index_bytes += handle.len;
            let (first, last) = (blocks[0], blocks[blocks.len() - 1]);
            columns[top::DATA_OFFSET].push(first.offset);
            columns[top::DATA_LEN].push(last.end() - first.offset);
            done.block_bytes += lens.iter().sum::<u64>();
            let (separator, trailer) = self.separators.get(end - 1);
            tops.push_with(trailer, |out| out.extend_from_slice(separator));
            start = end;
        }
        put_varint(&mut done.top, self.entries);
        put_varint(&mut done.top, self.min_seq);
        put_varint(&mut done.top, self.max_seq);
        index::encode(&mut done.top, &tops, 0..partitions, &columns.each_ref().map(|c| c.as_slice()));
        Ok(done)
    }
}
