//! Provides blocks to a cursor: from the cache, from the read-ahead window, or from the device with
//! some of their neighbors.

use crate::file::{BlockKind, Caching, ReadWindow, TableFile};
use crate::frame::BlockHandle;
use crate::options::IterOptions;
use crate::readahead::{BEYOND_MIN, Beyond, ScanBounds};
use crate::source::{Extent, FetchedBlocks, Source, Stop};
use crate::stream::{Partition, Stream};
use cache::Block;
use std::sync::Arc;

/// Minimum read-ahead in bytes; less would cost more requests than it saves.
const READAHEAD_MIN: usize = 16 << 10;

/// A block by its row in the index, and the direction of the scan.
#[derive(Clone, Copy)]
pub(super) struct BlockRow<'a> {
    pub stream: &'a Stream,
    /// Index of the partition.
    pub partition: usize,
    pub index: &'a Partition,
    pub row: usize,
    pub backward: bool,
}

impl BlockRow<'_> {
    fn handle(&self) -> BlockHandle {
        self.index.handle(self.row)
    }
}

/// The reads of a cursor: its window, and the length of the next read.
pub(super) struct Runs {
    role: BlockKind,
    caching: Caching,
    /// Requested read-ahead; 0: automatic, by [`Beyond`].
    readahead: u64,
    beyond: Beyond,
    borders: Option<Arc<ScanBounds>>,
    window: ReadWindow,
    /// Range of the window after the last load of a block. (While a load waits for a read the
    /// window is empty, and the same step restarts.)
    span: (u64, u64),
    /// The block that was not in the cache when the seek to it had to stop for reads.
    awaited: Option<BlockHandle>,
    /// The run requested ahead of the cursor.
    ahead: Option<Extent>,
}

impl Runs {
    pub fn new(
        file: &TableFile,
        role: BlockKind,
        options: IterOptions,
        borders: Option<Arc<ScanBounds>>,
    ) -> Self {
        let caching = match options {
            IterOptions { fill_cache: true, readahead_bytes: 0 } => Caching::Fill,
            _ => Caching::Peek,
        };
        let readahead =
            if options.readahead_bytes == 0 { 0 } else { options.readahead_bytes.max(READAHEAD_MIN) };
        Runs {
            beyond: Beyond::of(&*file.file),
            role,
            caching,
            readahead: readahead as u64,
            borders,
            window: ReadWindow::default(),
            span: (0, 0),
            awaited: None,
            ahead: None,
        }
    }

    /// Returns the cache use of blocks.
    pub fn caching(&self) -> Caching {
        self.caching
    }

    /// Returns the bytes of the file in the window.
    pub fn held_bytes(&self) -> u64 {
        let (start, end) = self.window.span();
        end - start
    }

    /// Handles a seek to this block: reads begin with few bytes again, unless the previous scan was
    /// already reading here. A merge join with a stream seeks whenever the next key is not near,
    /// and passes all of the stream.
    pub fn seek_to(&mut self, file: &TableFile, block: BlockHandle) {
        let (start, end) = self.span;
        let goes_on = start < end && block.offset >= start && block.offset <= end.saturating_add(BEYOND_MIN);
        if !goes_on {
            self.beyond = Beyond::of(&*file.file);
        }
    }

    /// Returns a block.
    pub fn block<S: Source>(
        &mut self,
        file: &TableFile,
        at: BlockRow<'_>,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        let handle = at.handle();
        let mut window = std::mem::take(&mut self.window);
        let reads = window.reads();
        let block = if self.readahead > 0 {
            let span = || at.stream.span(at.partition, handle, self.readahead, at.backward);
            window.block(file, handle, self.role, source, span)
        } else {
            self.cached_or_run(&mut window, file, at, source)
        };
        if window.reads() > reads {
            self.beyond.grow();
            self.begin_next(&mut window, file, at);
        }
        self.window = window;
        if block.is_ok() {
            self.span = self.window.span();
        }
        self.awaited = block.as_ref().is_err_and(S::Stop::is_wait).then_some(handle);
        block
    }

    /// Returns the block from the cache, from the window, or from the device with some of its
    /// neighbors.
    fn cached_or_run<S: Source>(
        &self,
        window: &mut ReadWindow,
        file: &TableFile,
        at: BlockRow<'_>,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        let handle = at.handle();
        // A block that stopped for a read was already looked up in the cache.
        if self.awaited != Some(handle)
            && let Some(block) = file.cached(handle, self.role, source.counters())
        {
            return Ok(block);
        }
        let has = |run: &Extent| {
            handle.offset >= run.offset && handle.end() <= run.offset + run.len && source.has(run)
        };
        let ahead = self.ahead.filter(has).map(|run| (run.offset, run.offset + run.len));
        let borders = self.borders.as_deref();
        let run = || ahead.unwrap_or_else(|| self.beyond.run(at.index, at.row, at.backward, borders));
        let block = window.block(file, handle, self.role, source, run)?;
        if self.caching == Caching::Fill {
            file.fill(handle, self.role, &block);
        }
        Ok(block)
    }

    /// Starts the next read in the background after a request, if the scan is long and has read
    /// queues.
    fn begin_next(&self, window: &mut ReadWindow, file: &TableFile, at: BlockRow<'_>) {
        let Some(borders) = self.borders.as_deref().filter(|_| self.readahead == 0) else { return };
        let Some(queues) = &borders.queues else { return };
        if let Some(run) = self.beyond.behind(at.index, at.row, window.span(), at.backward, borders) {
            window.begin_next(file, run, queues);
        }
    }

    /// Requests the run after the run of a row, for which the cursor waits, if the scan is long.
    pub fn want_behind(
        &mut self,
        file: &TableFile,
        index: &Partition,
        row: usize,
        fetched: &mut FetchedBlocks,
    ) {
        let (Some(borders), Some(_)) =
            (self.borders.as_deref().filter(|_| self.readahead == 0), self.awaited)
        else {
            return;
        };
        let run = self.beyond.run(index, row, false, Some(borders));
        let mut beyond = self.beyond;
        beyond.grow();
        if let Some((start, end)) = beyond.behind(index, row, run, false, borders)
            && start < end
            && end <= file.frames_end
        {
            let extent = Extent { file: file.number, offset: start, len: end - start };
            fetched.want_ahead(&file.file, extent, self.role);
            self.ahead = Some(extent);
        }
    }

    /// Returns the run requested after the loaded block, if the cursor has not reached it.
    pub fn ahead_of(&mut self, loaded: Option<BlockHandle>) -> Option<&Extent> {
        let is_before = |ahead: &Extent| loaded.is_none_or(|block| block.end() <= ahead.offset);
        self.ahead = self.ahead.filter(is_before);
        self.ahead.as_ref()
    }

    /// Drops pending requests after a failure.
    pub fn reset(&mut self) {
        (self.awaited, self.ahead) = (None, None);
    }
}
