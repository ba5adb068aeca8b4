//! A stream over a single value.

use crate::context::into_io;
use crate::read::fetch::Content;
use crate::read::read_path::Value;
use crate::tree::Tree;
use base::{Error, Result};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

/// A reader of one value, sequential or with [`Seek`], in constant memory if the value is large;
/// made by [`crate::Db::get_stream`].
///
/// It reads the value that was visible when it was created, whatever happens to the key afterwards.
/// Every byte is verified before it is returned.
pub struct ValueReader {
    content: Content,
    at: u64,
    /// Verified bytes of the value, and their position in it.
    run: Vec<u8>,
    covers: Range<u64>,
    // Dropped last: the store stays locked while its files are read.
    tree: Arc<Tree>,
}

impl ValueReader {
    pub(crate) fn new(tree: &Arc<Tree>, content: Content) -> ValueReader {
        ValueReader { content, at: 0, run: Vec::new(), covers: 0..0, tree: tree.clone() }
    }

    /// Returns the value, read into memory.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn into_value(self) -> Result<Value> {
        self.content.into_value()
    }

    /// Returns the length of the value in bytes.
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Bytes(value) => value.len() as u64,
            Content::Segment(segment) => segment.raw_len(),
        }
    }

    /// True if the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns at most `len` bytes from `offset` on, fewer at the end of the value. Does not move
    /// the stream.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn read_range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.tree.reads.check()?;
        self.tree.context.times.get_stream.time(|| range_of(&self.content, offset, len))
    }

    /// Reads the next bytes into `buf` and returns their number, 0 at the end. Like `read` of
    /// [`Read`], with the engine's errors.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn read_some(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.tree.reads.check()?;
        let begun = self.tree.context.times.get_stream.begin();
        let read = self.read_next(buf);
        self.tree.context.times.get_stream.end(begun);
        read
    }

    fn read_next(&mut self, buf: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.len().saturating_sub(self.at)).unwrap_or(usize::MAX);
        if left == 0 || buf.is_empty() {
            return Ok(0);
        }
        let bytes: &[u8] = match &self.content {
            Content::Bytes(value) => value.get(self.at as usize..).unwrap_or_default(),
            Content::Segment(segment) => {
                if !self.covers.contains(&self.at) {
                    // A sequential stream at the end of a run gets a longer read.
                    let goes_on = self.at > 0 && self.covers.end == self.at;
                    self.covers = 0..0;
                    self.covers = match goes_on {
                        true => segment.read_window(self.at, segment.raw_len(), &mut self.run)?,
                        false => segment.read_run(self.at, segment.raw_len(), &mut self.run)?,
                    };
                }
                self.run.get((self.at - self.covers.start) as usize..).unwrap_or_default()
            }
        };
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

/// Returns at most `len` bytes of a value from `offset` on.
pub(crate) fn range_of(content: &Content, offset: u64, len: usize) -> Result<Vec<u8>> {
    match content {
        Content::Bytes(value) => {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
            let to = from.saturating_add(len).min(value.len());
            Ok(value.get(from..to).unwrap_or_default().to_vec())
        }
        Content::Segment(segment) => {
            let from = offset.min(segment.raw_len());
            let mut bytes = vec![0; (segment.raw_len() - from).min(len as u64) as usize];
            segment.read_range(from, &mut bytes)?;
            Ok(bytes)
        }
    }
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.read_some(buf).map_err(into_io)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let target = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.len().checked_add_signed(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
        };
        let before = || into_io(Error::invalid("cannot seek before the beginning of a value"));
        self.at = target.ok_or_else(before)?;
        Ok(self.at)
    }
}

impl std::fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueReader({} of {} bytes)", self.at, self.len())
    }
}
