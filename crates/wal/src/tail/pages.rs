//! The pages of the tail in memory: the closed ones that are not in their group file yet, and the
//! open one.

use crate::page::Shape;
use io::PAGE;
use std::collections::VecDeque;
use std::sync::Arc;

/// Upper limit of spare page buffers.
const SPARE_PAGES_MAX: usize = 256;

/// Used bytes of a page, in its open form.
pub(crate) type PageBytes = Arc<Vec<u8>>;

/// A page that is never appended to again.
#[derive(Debug)]
pub(crate) struct ClosedPage {
    pub lpn: u64,
    /// Bytes of the page in its group file.
    pub len: usize,
    /// The used bytes.
    pub bytes: PageBytes,
}

/// The pages that are not known to be in their group file.
///
/// A page has a number (in the log, by the bytes before it) and an ordinal (one more than that of
/// the page before it).
#[derive(Debug)]
pub(crate) struct Pages {
    /// Pages that left so far: the ordinal of the first of `closed`.
    gone: u64,
    closed: VecDeque<ClosedPage>,
    /// The page after the closed ones; empty: no page is open.
    open: Vec<u8>,
    /// Number of the open page, or of the next.
    next_lpn: u64,
    /// Format of the open page, from which its closed length follows.
    shape: Shape,
    spare: Vec<Vec<u8>>,
    /// Number of batches that were taken back.
    taken_back: u64,
}

impl Pages {
    pub fn new(next_lpn: u64) -> Self {
        Pages {
            gone: next_lpn,
            closed: VecDeque::new(),
            open: Vec::new(),
            next_lpn,
            shape: Shape::default(),
            spare: Vec::new(),
            taken_back: 0,
        }
    }

    /// Returns true if all pages are in their group file.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.is_empty()
    }

    /// Returns the number of the open page, or of the next to be opened.
    pub fn next_lpn(&self) -> u64 {
        self.next_lpn
    }

    /// Returns the used bytes of the open page; 0: no page is open.
    pub fn used(&self) -> usize {
        self.open.len()
    }

    /// Returns the end of all pages, including the open one.
    pub fn end_lpn(&self) -> u64 {
        if self.open.is_empty() { self.next_lpn } else { self.next_lpn + self.shape.numbers(self.open.len()) }
    }

    /// Returns how many batches were taken back.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// Returns the first page in memory; all earlier ones are in their group file.
    pub fn first_lpn(&self) -> u64 {
        self.closed.front().map_or(self.next_lpn, |page| page.lpn)
    }

    /// Returns the ordinal of a page in memory; for later pages, that of the open one.
    pub(super) fn ordinal(&self, lpn: u64) -> u64 {
        let closed = if lpn < self.next_lpn { self.closed_below(lpn) } else { self.closed.len() };
        self.gone + closed as u64
    }

    fn closed_below(&self, lpn: u64) -> usize {
        self.closed.partition_point(|page| page.lpn < lpn)
    }

    /// Returns the index of a page in `closed`; for the open page and later ones, the length of
    /// `closed`.
    fn index(&self, lpn: u64) -> usize {
        (self.ordinal(lpn) - self.gone) as usize
    }

    /// Returns the bytes of a page by its ordinal, closed or open.
    pub(super) fn bytes(&self, ordinal: u64) -> &[u8] {
        self.closed.get((ordinal - self.gone) as usize).map_or(&self.open, |page| &page.bytes)
    }

    /// Returns closed pages of `start..end`: at least one, and as many as have `len_max` bytes
    /// together.
    pub fn run(&self, start: u64, end: u64, len_max: usize) -> impl Iterator<Item = &ClosedPage> {
        let mut len = 0usize;
        self.closed.range(self.index(start)..).take_while(move |page| {
            let first = len == 0;
            len += page.len;
            page.lpn < end && (first || len <= len_max)
        })
    }

    /// Returns the number after the pages of such a run.
    pub fn end_of_run(&self, start: u64, end: u64, len_max: usize) -> u64 {
        self.run(start, end, len_max).last().map_or(end, |page| self.number_after(page.lpn))
    }

    /// Returns the number below which all pages must be written before `pages` more, the open one
    /// first, have one of `slots`.
    pub fn must_be_written(&self, pages: u64, slots: u64) -> u64 {
        let over = (self.closed.len() as u64 + pages).saturating_sub(slots);
        match over.checked_sub(1).and_then(|last| self.closed.get(last as usize)) {
            Some(page) => self.number_after(page.lpn),
            None if over == 0 => 0,
            None => self.next_lpn,
        }
    }

    /// Returns the number of the page after a closed one.
    fn number_after(&self, lpn: u64) -> u64 {
        self.closed.get(self.index(lpn + 1)).map_or(self.next_lpn, |page| page.lpn)
    }

    /// Drops pages that are now in their group file.
    pub fn forget_below(&mut self, written_end: u64) {
        while self.first_lpn() < written_end {
            let Some(page) = self.closed.pop_front() else { break };
            self.gone += 1;
            if let Some(bytes) = Arc::into_inner(page.bytes) {
                self.recycle(bytes);
            }
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < SPARE_PAGES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Begins the next page. No page may be open.
    pub(super) fn begin(&mut self, header: &[u8], shape: Shape) {
        self.open = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PAGE));
        self.open.extend_from_slice(header);
        self.shape = shape;
    }

    /// Returns the bytes of the open page, to append to.
    pub(super) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    /// Closes the open page.
    pub(super) fn end(&mut self) {
        let (lpn, len) = (self.next_lpn, self.shape.page_len(self.open.len()));
        self.next_lpn = self.end_lpn();
        let bytes = Arc::new(std::mem::take(&mut self.open));
        self.closed.push_back(ClosedPage { lpn, len, bytes });
    }

    /// Skips the numbers up to `next_lpn`. Their page is in its group file, as are all earlier
    /// ones.
    pub(super) fn skip_to(&mut self, next_lpn: u64) {
        self.forget_below(next_lpn);
        self.gone += 1;
        self.next_lpn = next_lpn;
    }

    /// Makes `lpn` the open page again, with `used` bytes.
    pub(super) fn cut_back(&mut self, lpn: u64, used: usize) {
        self.taken_back += 1;
        while self.next_lpn > lpn {
            let Some(page) = self.closed.pop_back() else { break };
            self.next_lpn = page.lpn;
            let open = std::mem::replace(&mut self.open, Arc::unwrap_or_clone(page.bytes));
            self.recycle(open);
        }
        self.open.truncate(used);
    }

    /// Returns the used bytes of a page in memory.
    pub fn in_memory(&self, lpn: u64) -> Option<&[u8]> {
        let page = self.closed.get(self.index(lpn)).filter(|page| page.lpn == lpn);
        match page {
            Some(page) => Some(&page.bytes),
            None => Some(&*self.open).filter(|open| lpn == self.next_lpn && !open.is_empty()),
        }
    }
}
