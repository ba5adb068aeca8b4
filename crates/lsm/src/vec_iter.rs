//! An iterator over sorted entries in memory.
//!
//! The smallest correct [`InternalIterator`]: the reference in tests of code that consumes one. It
//! also serves short lists, such as the entries of an uncommitted batch.

use base::key::compare;
use base::{InternalIterator, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// An encoded internal key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Iterates over a sorted list of entries.
#[derive(Clone, Debug)]
pub struct VecIter {
    entries: Arc<Vec<Entry>>,
    /// Index of the current entry; `entries.len()` or more: not valid.
    at: usize,
}

impl VecIter {
    /// Returns an iterator over `entries`, which must ascend strictly in internal-key order.
    pub fn new(entries: Arc<Vec<Entry>>) -> Self {
        debug_assert!(
            entries.windows(2).all(|w| compare(&w[0].0, &w[1].0) == Ordering::Less),
            "entries are out of order"
        );
        VecIter { entries, at: usize::MAX }
    }
}

impl InternalIterator for VecIter {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.entries.len().wrapping_sub(1);
        Ok(())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.at = self.entries.partition_point(|(k, _)| compare(k, target) == Ordering::Less);
        Ok(())
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let after = self.entries.partition_point(|(k, _)| compare(k, target) != Ordering::Greater);
        self.at = after.wrapping_sub(1);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "moved an iterator that is not valid");
        self.at += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "moved an iterator that is not valid");
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at].0
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }
}
