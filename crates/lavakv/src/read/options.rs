//! Options of a read.

use crate::tree::snapshot::Snapshot;

/// Options of a read or an iterator.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The snapshot to read; `None`: the current state.
    pub snapshot: Option<Snapshot>,
    /// Iterators: a name for the space ledger, which reveals a forgotten iterator that pins files.
    /// May be empty.
    pub name: String,
    /// Iterators: lower bound (inclusive).
    pub lower_bound: Option<Vec<u8>>,
    /// Iterators: upper bound (exclusive).
    pub upper_bound: Option<Vec<u8>>,
    /// Iterators: only keys with this prefix.
    pub prefix: Option<Vec<u8>>,
    /// Iterators: return keys without values.
    pub keys_only: bool,
    /// Whether blocks read are put into the cache. Default: true.
    pub fill_cache: bool,
    /// Iterators: read-ahead in bytes, which bypasses the cache. With 0 reads go through the cache,
    /// in runs of 16 KiB after a seek that grow to 256 KiB as the iterator moves on. Default: 0.
    ///
    /// Separated values are read ahead too, once values of successive entries are read. One batch
    /// has those of the next 4 entries, growing to 256 (at most 1 MiB). A long scan reads the next
    /// batch while it consumes the current one. With a length given here, the first batch holds as
    /// many of the next 256 entries as fit in it. Values always go through the cache, and enter it
    /// on their first use if `fill_cache` is set.
    pub readahead_bytes: usize,
    /// Iterators: the number of entries with their values that will be read after each seek; 0:
    /// unknown. Separated values are then read with the first one in one batch (at most 256, and 1
    /// MiB), and none beyond. This is not a limit: reading on costs only slightly more. Default: 0.
    pub expected_entries: usize,
}

/// Options of a point read, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct ReadAt<'a> {
    /// The snapshot to read; `None`: the current state.
    pub snapshot: Option<&'a Snapshot>,
    /// Whether blocks read are put into the cache.
    pub fill_cache: bool,
}

impl ReadOptions {
    /// Returns the options for a point read.
    pub fn at(&self) -> ReadAt<'_> {
        ReadAt { snapshot: self.snapshot.as_ref(), fill_cache: self.fill_cache }
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            snapshot: None,
            name: String::new(),
            lower_bound: None,
            upper_bound: None,
            prefix: None,
            keys_only: false,
            fill_cache: true,
            readahead_bytes: 0,
            expected_entries: 0,
        }
    }
}
