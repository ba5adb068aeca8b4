//! Reads a group file in long runs, and returns its pages one by one.
//!
//! A file is cut into *windows* at fixed offsets. So the contents of a window, and its read errors,
//! do not depend on the reader or the time. A window overlaps the next by one page, so a page that
//! begins in a window is complete in it. Where there are threads and the file is long, they read
//! windows ahead (`ahead`).
//!
//! An unreadable page is replaced by bytes that are neither a page nor the unused rest of one.

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
/// Distance between the beginnings of two windows.
const STEP: u64 = (READ_LEN - PAGE) as u64;

/// Places of the windows of a file.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Offset of the first window.
    start: u64,
    /// End of the part to read.
    end: u64,
    /// Bytes that an unreadable place costs around it.
    piece: usize,
}

impl Windows {
    /// Returns the windows of the part of a file whose pages begin at multiples of `unit`.
    fn new(file: &dyn InPlaceFile, unit: usize, part: Range<u64>) -> Windows {
        let piece = unit.max(file.block_len());
        let end = part.end.checked_next_multiple_of(piece as u64).unwrap_or(part.end).min(file.len());
        Windows { start: part.start / piece as u64 * piece as u64, end, piece }
    }

    /// Returns the number of windows.
    fn count(&self) -> u64 {
        self.end.saturating_sub(self.start).div_ceil(STEP)
    }

    /// Returns the window of a page that begins at `offset`.
    fn at(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.start) / STEP
    }

    /// Returns the offset of a window in the file.
    fn start_of(&self, window: u64) -> u64 {
        self.start.saturating_add(window.saturating_mul(STEP))
    }

    /// Reads a window.
    ///
    /// # Errors
    /// Those of reading. The buffer then contains only zeros.
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
        // The first failed range is the window as a whole.
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
    /// The window in the buffer.
    window: Option<u64>,
    buf: AlignedBuf,
    ahead: Option<Ahead>,
}

impl<'f> Walk<'f> {
    /// Returns a walk over a part of a file, whose pages begin at multiples of `unit`.
    pub fn new(file: &'f dyn InPlaceFile, unit: usize, part: Range<u64>) -> Self {
        let windows = Windows::new(file, unit, part);
        Walk { file, windows, window: None, buf: AlignedBuf::zeroed(0), ahead: None }
    }

    /// As [`Walk::new`], over a file without a writer that is read from `part.start` to its end:
    /// with threads that read ahead, if there are any. The last walk that they read for must have
    /// been dropped.
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
    /// Those of reading. The window then contains only zeros.
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

    /// Returns the bytes of the page at `offset` in the window: a whole page, or as many bytes as
    /// the file has.
    pub fn page(&self, offset: u64) -> &[u8] {
        let start = self.windows.start_of(self.window.unwrap_or_default());
        let at = offset.saturating_sub(start) as usize;
        let rest = self.buf.as_slice().get(at..).unwrap_or_default();
        rest.get(..PAGE).unwrap_or(rest)
    }
}
