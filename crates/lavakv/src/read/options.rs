//! Options of a read.

use crate::tree::snapshot::Snapshot;

/// Options of a read or an iterator.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read as of this snapshot; `None`: as of now.
    pub snapshot: Option<Snapshot>,
    /// Iterators: what the space ledger calls it, so that one which was forgotten and keeps files is found. Empty: nothing.
    pub name: String,
    /// Iterators: the first key (inclusive).
    pub lower_bound: Option<Vec<u8>>,
    /// Iterators: the end (exclusive).
    pub upper_bound: Option<Vec<u8>>,
    /// Iterators: only keys that start with this.
    pub prefix: Option<Vec<u8>>,
    /// Iterators: values are not asked for.
    pub keys_only: bool,
    /// Whether blocks read are put into the cache. Default: true.
    pub fill_cache: bool,
    /// Iterators: read this much ahead, around the cache; 0: through the cache, in runs of 16 KiB after a seek that grow
    /// to 256 KiB as the iterator moves on. Default: 0.
    ///
    /// Separated values are read ahead too, once the iterator is asked for one after another: those of the next 4
    /// entries, growing to 256 (at most 1 MiB), in one batch, and of a long scan the next batch while it goes through this one. With a length
    /// given here it is at once as many of the next 256 as fit in it. They come through the cache either way, and go there as they are asked for if
    /// `fill_cache` says so.
    pub readahead_bytes: usize,
    /// Iterators: so many entries will be looked at, with their values, from each seek on; 0: nobody knows. Separated values are read along with
    /// the first then, in one batch (of 256 at most, and 1 MiB), and none beyond these. It is no limit: who goes on pays a little
    /// more. Default: 0.
    pub expected_entries: usize,
}

/// What a read of one key needs of its options, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct ReadAt<'a> {
    /// Read as of this snapshot; `None`: as of now.
    pub snapshot: Option<&'a Snapshot>,
    /// Whether blocks read are put into the cache.
    pub fill_cache: bool,
}

impl ReadOptions {
    /// What a read of one key needs.
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
