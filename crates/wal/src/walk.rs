//! The file of a group, read in long runs and looked at page by page.
//!
//! A file is cut into *windows* that begin at fixed places, so that what is in each, and what goes wrong with it, does not
//! depend on who reads it and when. Each has a page more than the distance to the next: a page that begins in a window is
//! in it whole. Where there are threads and the file is long, they read windows before they are looked at (`ahead`).
//!
//! Where a page that cannot be read was, there is nothing that could be taken for a page or for the unused rest of one.

mod ahead;
#[cfg(test)]
pub(crate) mod tests;

use ahead::Ahead;
pub(crate) use ahead::Readers;
use base::Result;
use io::{AlignedBuf, InPlaceFile, PAGE};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Bytes read at a time. In tests a group of a few pages has several windows.
pub(crate) const READ_LEN: usize = if cfg!(test) { 3 * PAGE } else { 512 << 10 };
/// From the beginning of a window to that of the next.
const STEP: u64 = (READ_LEN - PAGE) as u64;

/// Where the windows of a file are.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Where the first begins.
    start: u64,
    /// How much of the file is looked at.
    end: u64,
    /// What cannot be read costs so many bytes around it.
    piece: usize,
}

impl Windows {
    /// Of the part of a file whose pages begin at multiples of `unit`.
    fn new(file: &dyn InPlaceFile, unit: usize, part: Range<u64>) -> Windows {
        let piece = unit.max(file.block_len());
        let end = part.end.checked_next_multiple_of(piece as u64).unwrap_or(part.end).min(file.len());
        Windows { start: part.start / piece as u64 * piece as u64, end, piece }
    }

    /// How many there are.
    fn count(&self) -> u64 {
        self.end.saturating_sub(self.start).div_ceil(STEP)
    }

    /// The one in which a page that begins at `offset` is.
    fn at(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.start) / STEP
    }

    /// Where one begins in the file.
    fn start_of(&self, window: u64) -> u64 {
        self.start.saturating_add(window.saturating_mul(STEP))
    }

    /// Reads one.
    ///
    /// # Errors
    /// Those of reading. The buffer then has nothing but zeros.
    fn read(&self, file: &dyn InPlaceFile, window: u64, buf: &mut AlignedBuf) -> Result<()> {
        let start = self.start_of(window);
        buf.resize(self.end.saturating_sub(start).min(READ_LEN as u64) as usize);
        let bad = RefCell::new(Vec::new());
        let read = |buf: &mut [u8], offset: u64| {
            let read = file.read_at(buf, offset);
            if read.is_err() {
                bad.borrow_mut().push((offset, buf.len()));
            }
            read
        };
        if let Err(e) = io::read_around(buf.as_mut_slice(), start, self.piece, read) {
            buf.as_mut_slice().fill(0);
            return Err(e);
        }
        // The first that failed is the window as a whole.
        for (offset, len) in bad.into_inner().into_iter().skip(1) {
            let at = (offset - start) as usize;
            let piece = buf.as_mut_slice().get_mut(at..).and_then(|rest| rest.get_mut(..len));
            piece.unwrap_or_default().fill(0xff);
        }
        Ok(())
    }
}

/// A window on a file that moves forward.
pub(crate) struct Walk<'f> {
    file: &'f dyn InPlaceFile,
    windows: Windows,
    /// Which window is in the buffer.
    window: Option<u64>,
    buf: AlignedBuf,
    ahead: Option<Ahead>,
}

impl<'f> Walk<'f> {
    /// Over a part of a file, whose pages begin at multiples of `unit`.
    pub fn new(file: &'f dyn InPlaceFile, unit: usize, part: Range<u64>) -> Self {
        let windows = Windows::new(file, unit, part);
        Walk { file, windows, window: None, buf: AlignedBuf::zeroed(0), ahead: None }
    }

    /// As [`Walk::new`], over a file that nobody writes meanwhile and that is looked at from `part.start` on to its end: with
    /// threads that read ahead, if there are any. The last walk that they read for has been dropped.
    pub fn ahead(
        readers: &mut Readers<'_>,
        file: &'f Arc<dyn InPlaceFile>,
        unit: usize,
        part: Range<u64>,
    ) -> Self {
        let walk = Walk::new(&**file, unit, part);
        Walk { ahead: readers.begin(file, walk.windows), ..walk }
    }

    /// Moves the window to `offset`, if the page there is not in it.
    ///
    /// # Errors
    /// Those of reading. The window then has nothing but zeros.
    pub fn move_to(&mut self, offset: u64) -> Result<()> {
        let window = self.windows.at(offset);
        if self.window == Some(window) {
            return Ok(());
        }
        self.window = Some(window);
        match &self.ahead {
            Some(ahead) => ahead.take(window, &mut self.buf),
            None => self.windows.read(self.file, window, &mut self.buf),
        }
    }

    /// The bytes of the page at `offset`, in the window: those of a whole one, or as many as the file has.
    pub fn page(&self, offset: u64) -> &[u8] {
        let start = self.windows.start_of(self.window.unwrap_or_default());
        let at = offset.saturating_sub(start) as usize;
        let rest = self.buf.as_slice().get(at..).unwrap_or_default();
        rest.get(..PAGE).unwrap_or(rest)
    }
}
