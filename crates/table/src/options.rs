//! Options for writing and reading tables.

use crate::key_prefix::KeyPrefix;
use base::{Compression, Uid};

/// Format options of a new table.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Codec of data and reference blocks. Index and filter are never compressed, since they are
    /// read most.
    pub compression: Compression,
    /// Size at which a data or reference block is cut, in bytes. A larger entry gets its own block.
    pub block_len: usize,
    /// Bits of the filter for each distinct user key; 0: no filter.
    pub filter_bits_per_key: u32,
    /// Which prefixes of keys the filter holds besides the keys; `None`: none.
    pub prefix: Option<KeyPrefix>,
    /// Size at which an index partition is cut, in bytes. Its filter may have four times as many.
    pub partition_len: usize,
    /// Number of entries between two entries with a complete key.
    pub restart_interval: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            compression: Compression::None,
            block_len: 4096,
            filter_bits_per_key: 10,
            prefix: None,
            partition_len: 4096,
            restart_interval: 16,
        }
    }
}

impl TableOptions {
    /// Returns the options with every number clamped to the range that the format and its readers
    /// support.
    pub(crate) fn clamped(&self) -> TableOptions {
        TableOptions {
            compression: self.compression,
            block_len: self.block_len.clamp(64, 1 << 20),
            filter_bits_per_key: self.filter_bits_per_key.min(32),
            prefix: self.prefix.filter(|_| self.filter_bits_per_key > 0),
            partition_len: self.partition_len.clamp(64, 1 << 20),
            restart_interval: self.restart_interval.clamp(1, 1 << 10),
        }
    }
}

/// Origin of a table: enough to rebuild a manifest from the files alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableIdentity {
    /// File number, never reused.
    pub number: u64,
    /// 128 random bits, in the footer and the manifest.
    pub uid: Uid,
    /// Id of the column family.
    pub family: u32,
    /// The level for which the table was written.
    pub level: u32,
    /// Id of the job that wrote the table.
    pub job: u64,
    /// Files that the job read; empty for a flush.
    pub inputs: Vec<u64>,
    /// Manifest edit that was durable when the job began.
    pub edit: u64,
    /// Notes from which a store is rebuilt when its manifest is lost.
    pub store: StoreNotes,
}

/// Copies of manifest data in a file, for repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreNotes {
    /// Name of the column family.
    pub family_name: String,
    /// Options of the column family, encoded as in the manifest.
    pub family_options: Vec<u8>,
    /// Every record of the family with a lower sequence was in tables when the file was begun.
    pub log_floor: base::SeqNo,
    /// Tables, ascending, that no version named any more when the file was begun, but that still
    /// existed because readers held them. Without this list, a superseded table that reappears
    /// could not be told from a live one, once its outputs are gone as well.
    pub gone: Vec<u64>,
}

/// Read options of an iterator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterOptions {
    /// Whether to put blocks read from the device into the cache. Ignored (as false) with
    /// read-ahead.
    pub fill_cache: bool,
    /// Above 0: read runs of about this many bytes past the cache, for jobs that read a whole
    /// table. 0: look into the cache, and read from the device in runs that begin small and grow as
    /// the cursor moves on.
    pub readahead_bytes: usize,
}

/// Target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget<'k> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the first entry at or after this internal key.
    From(&'k [u8]),
    /// To the last entry at or before this internal key.
    UpTo(&'k [u8]),
}

impl<'k> SeekTarget<'k> {
    /// Returns true if the scan that begins there goes forward.
    pub fn is_forward(self) -> bool {
        matches!(self, SeekTarget::First | SeekTarget::From(_))
    }

    /// Returns the key, if there is one.
    pub fn target(self) -> Option<&'k [u8]> {
        match self {
            SeekTarget::First | SeekTarget::Last => None,
            SeekTarget::From(target) | SeekTarget::UpTo(target) => Some(target),
        }
    }
}

/// Cost of reads from tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Reads from the device (or file system).
    pub device_reads: u64,
    /// Bytes of these reads.
    pub device_read_bytes: u64,
    /// Data and reference blocks that were in the cache.
    pub data_blocks_cached: u64,
    /// Index and filter partitions that were in the cache.
    pub index_blocks_cached: u64,
    /// Index partitions read from the device.
    pub index_reads: u64,
    /// Filter partitions read from the device.
    pub filter_reads: u64,
    /// Data and reference blocks (or runs of them) read from the device.
    pub data_reads: u64,
    /// Lookups ended by a filter.
    pub filter_negatives: u64,
    /// Streams of tables that a scan passed over, because no filter has the prefix of its keys.
    pub prefix_negatives: u64,
    /// Lookups that passed a filter although the block had no visible entry of the key.
    pub filter_false_positives: u64,
    /// Lookups without a filter because it was unreadable.
    pub filters_unreadable: u64,
    /// Records of vSSTs read from the device.
    pub value_reads: u64,
    /// Records of vSSTs that were in the cache.
    pub values_cached: u64,
    /// Index frames and directories of vSSTs read from the device.
    pub vsst_index_reads: u64,
    /// Lookups in a vSST whose index was wrong, so that the dense keys were searched.
    pub vsst_dense_searches: u64,
}

impl ReadCounters {
    /// Counts a request of `bytes` to the device.
    pub fn count_request(&mut self, bytes: u64) {
        self.device_reads += 1;
        self.device_read_bytes += bytes;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &ReadCounters) {
        self.device_reads += other.device_reads;
        self.device_read_bytes += other.device_read_bytes;
        self.data_blocks_cached += other.data_blocks_cached;
        self.index_blocks_cached += other.index_blocks_cached;
        self.index_reads += other.index_reads;
        self.filter_reads += other.filter_reads;
        self.data_reads += other.data_reads;
        self.filter_negatives += other.filter_negatives;
        self.prefix_negatives += other.prefix_negatives;
        self.filter_false_positives += other.filter_false_positives;
        self.filters_unreadable += other.filters_unreadable;
        self.value_reads += other.value_reads;
        self.values_cached += other.values_cached;
        self.vsst_index_reads += other.vsst_index_reads;
        self.vsst_dense_searches += other.vsst_dense_searches;
    }
}
