//! Reading ahead in a group: who reads one record behind another reads many of them with one request of the device.
//!
//! It is a matter of the file alone. Where a read follows closely on the one before, more of the file is read than was asked for, and
//! twice as much the next time, up to a bound; what is asked for next is then taken from there. Pages are checked
//! as they are used, like those that are read alone. Reads that do not follow each other (the records of one log among a thousand) cost
//! what they cost without it: one request each.
//!
//! What was read ahead may be older than what is in the file by now: a page that was not written yet, a group that became another
//! one. Then the check fails, what was read is thrown away, and the page is read once more: so nobody is told of damage that is
//! none.

use base::{Result, Uid};
use io::{AlignedBuf, InPlaceFile, PAGE};
use std::path::Path;
use std::sync::Arc;

/// The first that is read ahead, bytes.
const FIRST_LEN: u64 = 64 << 10;
/// Bytes between two reads that still follow each other.
const GAP_LEN: u64 = 16 << 10;

/// See the module. One for each reader.
#[derive(Debug)]
pub struct ReadAhead {
    /// The most bytes that are read at once; 0: nothing is read ahead.
    len_max: u64,
    /// What was read last.
    group: Option<(u64, Uid)>,
    /// Where that ended.
    end: u64,
    /// How much is read ahead now; 0: reads do not follow each other.
    len: u64,
    /// What was read ahead, and from where.
    window: Option<(u64, AlignedBuf)>,
}

impl ReadAhead {
    /// Of a reader that has read nothing; at most so many bytes at once, in whole pages.
    pub fn new(len_max: u64) -> ReadAhead {
        // The file takes whole blocks only.
        let len_max = len_max.checked_next_multiple_of(PAGE as u64).unwrap_or(len_max);
        ReadAhead { len_max, group: None, end: 0, len: 0, window: None }
    }

    /// Throws away what was read ahead.
    pub fn clear(&mut self) {
        self.window = None;
    }

    /// True if there is something that may be older than the file.
    pub(super) fn is_filled(&self) -> bool {
        self.window.is_some()
    }

    /// `start` to `end` of the file of a group are about to be read: reads more, if that follows on what was read before, and
    /// can be read.
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
                // What nobody asked for may be unreadable; what was asked for is read alone then, and its error is told.
                Err(_) => self.len = 0,
            }
        }
    }

    /// The file as it is with what was read ahead.
    pub(super) fn over<'a>(&'a self, file: &'a Arc<dyn InPlaceFile>) -> Windowed<'a> {
        Windowed { file, window: self.window.as_ref() }
    }
}

/// A file of which a part is in memory.
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
