//! The staging file: a ring of page slots.

use super::pages::Pages;
use crate::page;
use base::{ErrorKind, Result};
use io::{PAGE, PartialWrite, ScratchFile};
use std::sync::Arc;

/// The file that keeps the pages of the tail for the next process.
#[derive(Debug)]
pub(crate) struct StagingSlots {
    file: Arc<dyn ScratchFile>,
    count: u64,
    /// Staged position: all earlier pages, and this many bytes of this page.
    staged: (u64, usize),
    /// Buffer of a write of several pages.
    run: Vec<u8>,
    /// Bytes of the file left by refused batches, as offset and length. They must be zeroed before
    /// their positions are used again.
    refused: Vec<(usize, usize)>,
}

/// A write of several pages that failed.
struct FailedRun {
    /// Ordinal of the page in which the write began.
    ordinal: u64,
    /// Position in that page where the write began.
    used: usize,
    failure: PartialWrite,
}

impl StagingSlots {
    /// Returns the slots of a file that has no page below `next_lpn`.
    pub fn new(file: Arc<dyn ScratchFile>, next_lpn: u64) -> Self {
        let count = (file.len() / PAGE) as u64;
        StagingSlots { file, count, staged: (next_lpn, 0), run: Vec::new(), refused: Vec::new() }
    }

    /// Returns how many pages the file can hold.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if no refused batch left bytes in the file.
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty()
    }

    /// Returns the pages from `written_end` on that the file holds, each with its staged bytes.
    pub fn staged_from(&self, pages: &Pages, written_end: u64) -> Vec<(u64, usize)> {
        let (last, last_used) = self.staged;
        let whole = pages.run(written_end, last, usize::MAX).map(|page| (page.lpn, page.bytes.len()));
        let part = (last >= pages.first_lpn().max(written_end) && last_used > 0).then_some((last, last_used));
        whole.chain(part).collect()
    }

    /// Writes all pages from `written_end` on to the file. After `NoSpace` their numbers may be
    /// reused, after [`StagingSlots::erase_refused`].
    pub fn stage(&mut self, pages: &Pages, written_end: u64) -> Result<()> {
        let end = (pages.next_lpn(), pages.used());
        let (lpn, used) = self.staged.max((written_end, 0));
        if (lpn, used) >= end {
            return Ok(());
        }
        let ordinal = pages.ordinal(lpn);
        // The last page that has bytes.
        let last = pages.ordinal(end.0) - u64::from(end.1 == 0);
        let staged =
            match ordinal == last {
                true => self
                    .write(ordinal, used, &pages.bytes(ordinal)[used..])
                    .map_err(|failure| FailedRun { ordinal, used, failure }),
                false => self.stage_run(pages, ordinal, used, last),
            };
        if let Err(FailedRun { ordinal: run_ordinal, used: run_used, failure }) = staged {
            let PartialWrite { stored_bytes, error } = failure;
            if error.kind() == ErrorKind::NoSpace {
                let stored_end = (run_ordinal - ordinal) as usize * PAGE + run_used + stored_bytes;
                self.refuse(ordinal, used, stored_end);
                match self.erase_refused() {
                    Err(e) if e.kind() == ErrorKind::NoSpace => {}
                    erased => erased?,
                }
            }
            return Err(error);
        }
        self.staged = end;
        Ok(())
    }

    /// Returns the slot of a page, by its ordinal.
    fn slot(&self, ordinal: u64) -> u64 {
        ordinal % self.count
    }

    fn write(&self, ordinal: u64, at: usize, bytes: &[u8]) -> std::result::Result<(), PartialWrite> {
        self.file.write(self.slot(ordinal) as usize * PAGE + at, bytes)
    }

    /// Writes several pages at once, in one write unless the slots wrap.
    fn stage_run(
        &mut self,
        pages: &Pages,
        mut ordinal: u64,
        mut used: usize,
        last: u64,
    ) -> std::result::Result<(), FailedRun> {
        let mut run = std::mem::take(&mut self.run);
        let mut staged = Ok(());
        while staged.is_ok() && ordinal <= last {
            let (start, start_used) = (ordinal, used);
            run.clear();
            loop {
                run.extend_from_slice(&pages.bytes(ordinal)[used..]);
                (ordinal, used) = (ordinal + 1, 0);
                if ordinal > last || self.slot(ordinal) == 0 {
                    break;
                }
                // Bytes behind the end of a page are never read.
                run.resize((start_used + run.len()).next_multiple_of(PAGE) - start_used, 0);
            }
            let failed = |failure| FailedRun { ordinal: start, used: start_used, failure };
            staged = self.write(start, start_used, &run).map_err(failed);
        }
        self.run = run;
        staged
    }

    /// Notes the bytes to erase of a batch that found no space: the beginning of its fragment in
    /// the first page, and the headers of the following pages. The next batch takes the same
    /// positions. Recovery must find neither these bytes nor a page that continues them. `start`
    /// and `end` count bytes of slots from the page `first` on.
    fn refuse(&mut self, first: u64, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let len = page::HEADER_LEN.min(end - at).min(PAGE - at % PAGE);
            let slot = self.slot(first + (at / PAGE) as u64) as usize;
            self.refused.push((slot * PAGE + at % PAGE, len));
            at = (at / PAGE + 1) * PAGE;
        }
    }

    /// Erases the bytes of refused batches from the file. To be called before a page is begun or
    /// appended to.
    ///
    /// # Errors
    /// Those of the file; after `NoSpace` it may be repeated.
    pub fn erase_refused(&mut self) -> Result<()> {
        while let Some((at, len)) = self.refused.last() {
            self.file.write(*at, &[0; page::HEADER_LEN][..*len]).map_err(|e| e.error)?;
            self.refused.pop();
        }
        Ok(())
    }
}
