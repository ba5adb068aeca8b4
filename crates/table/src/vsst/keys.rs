//! A cursor over the dense partitions: every key with its lengths, in key order, without the values.

use super::reader::Vsst;
use crate::options::ReadCounters;
use base::{Result, SeqNo};
use std::sync::Arc;

/// What the dense partitions say of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence.
    pub seq: SeqNo,
    /// Bytes of the value.
    pub raw_len: u64,
    /// Bytes of the record.
    pub stored_len: u64,
    /// Where the record begins.
    pub offset: u64,
}

/// A cursor over all keys of a vSST. It reads in large runs, past the cache.
#[derive(Debug)]
pub struct VsstKeys {
    _vsst: Arc<Vsst>,
    counters: ReadCounters,
}

impl VsstKeys {
    pub(crate) fn new(vsst: Arc<Vsst>) -> Result<VsstKeys> {
        Ok(VsstKeys { _vsst: vsst, counters: ReadCounters::default() })
    }

    /// True while it stands on a key. A new cursor stands on the first.
    pub fn valid(&self) -> bool {
        false
    }

    /// Moves to the next key; not valid after the last, nor after an error.
    ///
    /// # Errors
    /// `Corruption` if a partition is damaged, and what the file reports.
    pub fn next(&mut self) -> Result<()> {
        Ok(())
    }

    /// The key it stands on.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn entry(&self) -> KeyEntry<'_> {
        panic!("no entry")
    }

    /// What it has read so far.
    pub fn counters(&self) -> &ReadCounters {
        &self.counters
    }
}
