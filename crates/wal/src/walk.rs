//! The file of a group, read in long runs and looked at page by page.
//!
//! Where a page that cannot be read was, there is nothing that could be taken for a page or for the unused rest of one.

use base::Result;
use io::{AlignedBuf, InPlaceFile, PAGE};
use std::cell::RefCell;

/// Bytes read at a time.
pub(crate) const READ_LEN: usize = 512 << 10;

/// A window on a file that moves forward.
pub(crate) struct Walk<'f> {
    file: &'f dyn InPlaceFile,
    /// How much of the file is looked at.
    len: u64,
    /// What cannot be read costs so many bytes around it.
    piece: usize,
    buf: AlignedBuf,
    /// Where the window begins in the file.
    start: u64,
}

impl<'f> Walk<'f> {
    /// Over a file, up to `end`, whose pages begin at multiples of `unit`.
    pub fn new(file: &'f dyn InPlaceFile, unit: usize, end: u64) -> Self {
        let piece = unit.max(file.block_len());
        let len = end.checked_next_multiple_of(piece as u64).unwrap_or(end).min(file.len());
        Walk { file, len, piece, buf: AlignedBuf::zeroed(0), start: 0 }
    }

    /// True if a page that begins at `offset` would be in the window, or as much of it as the file has.
    fn has(&self, offset: u64) -> bool {
        let end = self.len.min(offset.saturating_add(PAGE as u64));
        self.start <= offset && end <= self.start + self.buf.len() as u64
    }

    /// Moves the window to `offset`, if the page there is not in it.
    ///
    /// # Errors
    /// Those of reading. The window then has nothing but zeros.
    pub fn move_to(&mut self, offset: u64) -> Result<()> {
        if self.has(offset) {
            return Ok(());
        }
        self.start = offset / self.piece as u64 * self.piece as u64;
        let len = self.len.saturating_sub(self.start).min(READ_LEN as u64) as usize;
        self.buf.resize(len);
        let bad = RefCell::new(Vec::new());
        let read = |buf: &mut [u8], offset: u64| {
            let read = self.file.read_at(buf, offset);
            if read.is_err() {
                bad.borrow_mut().push((offset, buf.len()));
            }
            read
        };
        if let Err(e) = io::read_around(self.buf.as_mut_slice(), self.start, self.piece, read) {
            self.buf.as_mut_slice().fill(0);
            return Err(e);
        }
        // The first that failed is the window as a whole.
        for (offset, len) in bad.into_inner().into_iter().skip(1) {
            let at = (offset - self.start) as usize;
            let piece = self.buf.as_mut_slice().get_mut(at..).and_then(|rest| rest.get_mut(..len));
            piece.unwrap_or_default().fill(0xff);
        }
        Ok(())
    }

    /// The bytes of the page at `offset`, in the window: those of a whole one, or as many as the file has.
    pub fn page(&self, offset: u64) -> &[u8] {
        let at = offset.saturating_sub(self.start) as usize;
        let rest = self.buf.as_slice().get(at..).unwrap_or_default();
        rest.get(..PAGE).unwrap_or(rest)
    }
}
