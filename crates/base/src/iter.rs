//! The iterator over internal keys that memtables, tables, levels and merges implement.

use crate::error::Result;

/// Range of entries that an iterator could not read: all or some of those from `first` to `last`
/// (encoded internal keys, inclusive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Nothing before this key is missing.
    pub first: Vec<u8>,
    /// Nothing behind this key is missing.
    pub last: Vec<u8>,
}

/// A cursor over entries in internal-key order (see [`crate::key`]).
///
/// A new iterator is not valid until it is positioned. Every method that moves it returns the error
/// that stopped it; after an error it is not valid, and positioning it again tries again. `key` and
/// `value` may only be called while it is valid, and the slices live until it moves.
pub trait InternalIterator: Send {
    /// Returns true while it is at an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after the encoded internal key `target`.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// Moves to the last entry at or before the encoded internal key `target`.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()>;
    /// Moves forward. Must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves forward; returns the key of the new entry, if there is one. For a trait object this is
    /// one call instead of `next`, `valid` and `key`.
    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        self.next()?;
        Ok(if self.valid() { Some(self.key()) } else { None })
    }
    /// Moves backward. Must be valid.
    fn prev(&mut self) -> Result<()>;
    /// Continues a move that had to wait ([`crate::Error::is_waiting`]). Only forward moves wait.
    /// An iterator that never waits has nothing to continue.
    ///
    /// # Errors
    /// Those of the move; [`crate::Error::waiting`] if it must wait again.
    fn resume(&mut self) -> Result<()> {
        Ok(())
    }
    /// Returns the range that a failed move could not read, if it is known. The iterator then
    /// passed everything between its position (or its target) and the gap, and found no entry.
    /// `None`: only the error is known.
    fn gap(&self) -> Option<Gap> {
        None
    }
    /// Returns the encoded internal key. Must be valid.
    fn key(&self) -> &[u8];
    /// Returns the value (for a reference: the encoded reference). Must be valid.
    fn value(&self) -> &[u8];
}

impl<T: InternalIterator + ?Sized> InternalIterator for Box<T> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        (**self).seek(target)
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        (**self).seek_for_prev(target)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        (**self).next_key()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    fn resume(&mut self) -> Result<()> {
        (**self).resume()
    }
    fn gap(&self) -> Option<Gap> {
        (**self).gap()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
}
