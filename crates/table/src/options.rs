//! How tables are written and read.

use base::{Compression, Uid};

/// The form of a new table.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The codec of data and reference blocks (index and filter are never compressed: they are read most).
    pub compression: Compression,
    /// Where a data or reference block is cut, bytes. A larger entry gets a block of its own.
    pub block_len: usize,
    /// Bits of the filter for each distinct user key; 0: no filter.
    pub filter_bits_per_key: u32,
    /// Where a partition of the index is cut, bytes. Its filter may have four times as many.
    pub partition_len: usize,
    /// Entries from one entry stored with its whole key to the next.
    pub restart_interval: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            compression: Compression::None,
            block_len: 4096,
            filter_bits_per_key: 10,
            partition_len: 4096,
            restart_interval: 16,
        }
    }
}

impl TableOptions {
    /// The same with every number in the range that the format and its readers are made for.
    pub(crate) fn clamped(&self) -> TableOptions {
        TableOptions {
            compression: self.compression,
            block_len: self.block_len.clamp(64, 1 << 20),
            filter_bits_per_key: self.filter_bits_per_key.min(32),
            partition_len: self.partition_len.clamp(64, 1 << 20),
            restart_interval: self.restart_interval.clamp(1, 1 << 10),
        }
    }
}

/// Who wrote a table, and why: enough to rebuild a manifest from the files alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableIdentity {
    /// The file number, never reused.
    pub number: u64,
    /// 128 random bits that are in footer and manifest.
    pub uid: Uid,
    /// The column family.
    pub family: u32,
    /// The level it was written for.
    pub level: u32,
    /// The job that wrote it.
    pub job: u64,
    /// The files that job read; empty for a flush.
    pub inputs: Vec<u64>,
    /// The manifest edit that was durable when the job began.
    pub edit: u64,
    /// What a store is rebuilt from when its manifest is lost.
    pub store: StoreNotes,
}

/// What a file tells of its store: copies of what the manifest has, for repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreNotes {
    /// The name of the column family.
    pub family_name: String,
    /// Its options, as the manifest has them.
    pub family_options: Vec<u8>,
    /// Every record of the family with a lower sequence was in tables when the file was begun.
    pub log_floor: base::SeqNo,
    /// Tables that no version named any more when the file was begun, but which were still there, ascending: readers held
    /// them. Without this a table that comes back could not be told from one that counts, once the tables that were made of
    /// it are gone as well.
    pub gone: Vec<u64>,
}

/// How an iterator reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterOptions {
    /// Put what is read from the device into the cache. Ignored (as false) with read-ahead.
    pub fill_cache: bool,
    /// Above 0: read runs of about so many bytes past the cache, for jobs that read a whole table. 0: look into the
    /// cache, and read from the device in runs that begin small and grow as the cursor moves on.
    pub readahead_bytes: usize,
}

/// Where a seek goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'k> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the first entry at or after this internal key.
    From(&'k [u8]),
    /// To the last entry at or before this internal key.
    UpTo(&'k [u8]),
}

impl<'k> Place<'k> {
    /// True if the scan that begins there goes forward.
    pub fn is_forward(self) -> bool {
        matches!(self, Place::First | Place::From(_))
    }

    /// The key, if there is one.
    pub fn target(self) -> Option<&'k [u8]> {
        match self {
            Place::First | Place::Last => None,
            Place::From(target) | Place::UpTo(target) => Some(target),
        }
    }
}

/// What reads of a table cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Reads from the device (or file system).
    pub device_reads: u64,
    /// Bytes of these.
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
    /// Lookups that a filter ended.
    pub filter_negatives: u64,
    /// Lookups that a filter let pass though the block had no visible entry of the key.
    pub filter_false_positives: u64,
    /// Lookups that had to do without a filter, because it cannot be read.
    pub filters_unreadable: u64,
    /// Records of vSSTs read from the device.
    pub value_reads: u64,
    /// Records of vSSTs that were in the cache.
    pub values_cached: u64,
    /// Index frames and directories of vSSTs read from the device.
    pub vsst_index_reads: u64,
    /// Lookups in a vSST whose index led astray, and that searched its dense keys.
    pub vsst_dense_searches: u64,
}

impl ReadCounters {
    /// Counts a request to the device, of so many bytes.
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
        self.filter_false_positives += other.filter_false_positives;
        self.filters_unreadable += other.filters_unreadable;
        self.value_reads += other.value_reads;
        self.values_cached += other.values_cached;
        self.vsst_index_reads += other.vsst_index_reads;
        self.vsst_dense_searches += other.vsst_dense_searches;
    }
}
