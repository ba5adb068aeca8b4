//! Read-ahead within a group: one device request serves a reader of many successive records.
//!
//! Read-ahead works on the file alone. If a read closely follows the one before, the reader fetches
//! more of the file than requested. Each further adjacent read doubles the amount, up to a bound.
//! Later reads are served from that window, and pages are checked on use like any other. Reads that
//! do not follow each other (the records of one log among a thousand) still cost one request each.
//!
//! The window may be older than the file: a page may have been written since, or the file may
//! belong to another group. The page check then fails, the window is dropped, and the page is read
//! again, so a stale window is never reported as damage.

use base::{Result, Uid};
use io::{AlignedBuf, InPlaceFile, PAGE};
use std::path::Path;
use std::sync::Arc;

/// Initial read-ahead, bytes.
const FIRST_LEN: u64 = 64 << 10;
/// Maximum gap between two reads that count as adjacent, bytes.
const GAP_LEN: u64 = 16 << 10;

/// Read-ahead state of one reader: see the module.
#[derive(Debug)]
pub struct ReadAhead {
    /// Maximum bytes of one read; 0 disables read-ahead.
    len_max: u64,
    /// Group of the last read.
    group: Option<(u64, Uid)>,
    /// End of the last read.
    end: u64,
    /// Current read-ahead, bytes; 0: the reads are not adjacent.
    len: u64,
    /// Bytes read ahead, with their offset in the file.
    window: Option<(u64, AlignedBuf)>,
}

impl ReadAhead {
    /// Creates the state of a new reader. `len_max` is rounded up to whole pages.
    pub fn new(len_max: u64) -> ReadAhead {
        // The file accepts whole blocks only.
        let len_max = len_max.checked_next_multiple_of(PAGE as u64).unwrap_or(len_max);
        ReadAhead { len_max, group: None, end: 0, len: 0, window: None }
    }

    /// Drops the window.
    pub fn clear(&mut self) {
        self.window = None;
    }

    /// Returns true if there is a window, which may be older than the file.
    pub(super) fn is_filled(&self) -> bool {
        self.window.is_some()
    }

    /// Prepares a read of `start` to `end` of a group's file: fills the window if the read is
    /// adjacent to the one before.
    pub(super) fn prepare(&mut self, group: (u64, Uid), file: &dyn InPlaceFile, start: u64, end: u64) {
        let same = self.group == Some(group);
        let follows = same && start + PAGE as u64 >= self.end && start <= self.end + GAP_LEN;
        let has = |(at, bytes): &(u64, AlignedBuf)| *at <= start && end <= at + bytes.as_slice().len() as u64;
        if same && self.window.as_ref().is_some_and(has) {
            self.end = end;
            return;
        }
        (self.group, self.end, self.window) = (Some(group), end, None);
        self.len = if follows { (2 * self.len).max(FIRST_LEN).min(self.len_max) } else { 0 };
        let from = start / PAGE as u64 * PAGE as u64;
        let to = (from + self.len).min(file.len());
        if to > end {
            let mut bytes = AlignedBuf::zeroed((to - from) as usize);
            match file.read_at(bytes.as_mut_slice(), from) {
                Ok(()) => self.window = Some((from, bytes)),
                // The pages beyond the request may be unreadable. The caller then reads the
                // requested pages alone and reports their error.
                Err(_) => self.len = 0,
            }
        }
    }

    /// Returns the file with the window in front of it.
    pub(super) fn over<'a>(&'a self, file: &'a Arc<dyn InPlaceFile>) -> Windowed<'a> {
        Windowed { file, window: self.window.as_ref() }
    }
}

/// A file with a part of its bytes in memory.
#[derive(Debug)]
pub(super) struct Windowed<'a> {
    file: &'a Arc<dyn InPlaceFile>,
    window: Option<&'a (u64, AlignedBuf)>,
}

impl InPlaceFile for Windowed<'_> {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn block_len(&self) -> usize {
        self.file.block_len()
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_at(data, offset)
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_durable(data, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let in_window = self.window.and_then(|(at, bytes)| {
            let start = usize::try_from(offset.checked_sub(*at)?).ok()?;
            bytes.as_slice().get(start..)?.get(..buf.len())
        });
        match in_window {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.read_at(buf, offset),
        }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}
