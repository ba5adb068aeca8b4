//! Reads blocks of an open table: through the cache, past it, or in large runs.
//!
//! A block is read with its trailer in one request, then verified and decompressed, and only then
//! used or cached. Errors name the file and the offset of the block.

use crate::compress::decompress;
use crate::footer::{FOOTER_LEN, FileKind, Footer};
use crate::frame::{self, BlockHandle, FRAME_LEN_MAX, TRAILER_LEN};
use crate::next_run::NextRun;
use crate::options::ReadCounters;
use crate::source::{Extent, Source, Stop};
use base::{Error, Result, Uid};
use cache::{Block, Cache, CacheKey, Segment};
use io::{ReadFile, ReadQueues};
use std::path::Path;
use std::sync::Arc;

/// Kind of a block, for the cache and the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Index partitions.
    Index,
    /// Filter partitions.
    Filter,
    /// Reference blocks.
    References,
    /// Data blocks.
    Inline,
    /// Index frames and directories of a vSST.
    VsstIndex,
    /// Records of a vSST.
    Record,
    /// Dense partitions of a vSST: never cached.
    Dense,
    /// Blocks read to open a file. They are not counted.
    Tail,
}

impl BlockKind {
    pub(crate) fn segment(self) -> Segment {
        match self {
            // Reference blocks count as index: they lead to values, and every lookup in the table
            // reads them first.
            BlockKind::Index | BlockKind::Filter | BlockKind::References | BlockKind::VsstIndex => {
                Segment::Index
            }
            BlockKind::Inline | BlockKind::Record | BlockKind::Dense | BlockKind::Tail => Segment::Data,
        }
    }

    fn count_cached(self, counters: &mut ReadCounters) {
        match self {
            BlockKind::Index | BlockKind::Filter | BlockKind::VsstIndex => counters.index_blocks_cached += 1,
            BlockKind::References | BlockKind::Inline | BlockKind::Dense => counters.data_blocks_cached += 1,
            BlockKind::Record => counters.values_cached += 1,
            BlockKind::Tail => {}
        }
    }

    /// Counts a block that was read; the request is counted separately.
    pub(crate) fn count_read(self, counters: &mut ReadCounters) {
        match self {
            BlockKind::Index => counters.index_reads += 1,
            BlockKind::Filter => counters.filter_reads += 1,
            BlockKind::References | BlockKind::Inline | BlockKind::Dense => counters.data_reads += 1,
            BlockKind::VsstIndex => counters.vsst_index_reads += 1,
            BlockKind::Record => counters.value_reads += 1,
            BlockKind::Tail => {}
        }
    }
}

/// Use of the cache by a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Look up and fill.
    Fill,
    /// Look up only.
    Peek,
    /// Neither: the bytes must come from the device.
    Bypass,
}

/// An open file with the data needed to read its blocks.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) file: Arc<dyn ReadFile>,
    pub(crate) uid: Uid,
    pub(crate) number: u64,
    /// End of the frames, where the footer begins.
    pub(crate) frames_end: u64,
    pub(crate) cache: Shared,
}

/// A cache with an opaque `Debug` form.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<Cache>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

impl TableFile {
    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Adds the file, and the offset of the damaged block, to an error.
    #[cold]
    pub(crate) fn locate(&self, e: Error, offset: u64) -> Error {
        e.at_offset(offset).at_file(self.file.path())
    }

    fn check(&self, handle: BlockHandle) -> Result<usize> {
        let fits = handle.end() <= self.frames_end && handle.len <= FRAME_LEN_MAX as u64;
        if !fits || handle.len < TRAILER_LEN as u64 {
            let why = format!(
                "the index leads to a block of {} bytes that ends at byte {}: blocks have {TRAILER_LEN} to \
                 {FRAME_LEN_MAX} bytes and end by byte {}; other blocks stay readable",
                handle.len,
                handle.end(),
                self.frames_end
            );
            return Err(self.locate(Error::corruption(why), handle.offset));
        }
        Ok(handle.len as usize)
    }

    /// Verifies and decompresses a frame.
    pub(crate) fn decode(&self, frame: &[u8], offset: u64) -> Result<Block> {
        frame::open(frame, self.uid, offset)
            .and_then(|(codec, payload)| decompress(codec, payload))
            .map_err(|e| self.locate(e, offset))
    }

    /// Returns the extent of a block.
    pub(crate) fn extent(&self, handle: BlockHandle) -> Extent {
        Extent { file: self.number, offset: handle.offset, len: handle.len }
    }

    /// Returns the bytes of a frame as they are in the file.
    pub(crate) fn bytes<S: Source>(
        &self,
        handle: BlockHandle,
        role: BlockKind,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        let bytes = source.bytes(&self.file, self.extent(handle), role);
        bytes.map_err(|stop| stop.map(|e| self.locate(e, handle.offset)))
    }

    /// Reads a block, ignoring the cache.
    pub(crate) fn read<S: Source>(
        &self,
        handle: BlockHandle,
        role: BlockKind,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        self.check(handle)?;
        let frame = self.bytes(handle, role, source)?;
        Ok(self.decode(&frame, handle.offset)?)
    }

    /// Checks that frames follow each other without gaps from `start` to the footer.
    pub(crate) fn check_filled(&self, start: u64, mut handles: Vec<BlockHandle>) -> Result<()> {
        handles.sort_unstable_by_key(|h| h.offset);
        let mut end = start;
        let ends = handles.iter().map(BlockHandle::end);
        for (begin, next) in handles.iter().map(|h| h.offset).chain([self.frames_end]).zip(ends.chain([0])) {
            if begin != end {
                let why = format!(
                    "blocks of the file overlap or leave a gap: one ends at byte {end}, the next one \
                     begins at byte {begin}; all listed blocks are readable"
                );
                return Err(self.locate(Error::corruption(why), end));
            }
            end = next;
        }
        Ok(())
    }

    /// Reads and checks the footer.
    pub(crate) fn check_footer(&self, kind: FileKind) -> Result<()> {
        let mut footer = [0; FOOTER_LEN];
        let here = |e| self.locate(e, self.frames_end);
        self.file.read_at(&mut footer, self.frames_end).map_err(here)?;
        let len = self.frames_end + FOOTER_LEN as u64;
        Footer::decode_as(kind, &footer, self.uid, len).map(|_| ()).map_err(here)
    }

    /// Returns a block if it is in the cache.
    #[inline]
    pub(crate) fn cached(
        &self,
        handle: BlockHandle,
        role: BlockKind,
        counters: &mut ReadCounters,
    ) -> Option<Block> {
        let key = CacheKey { file: self.number, offset: handle.offset };
        let block = self.cache.0.get(role.segment(), &key)?;
        role.count_cached(counters);
        Some(block)
    }

    /// Returns true if a block is in the cache. Does not count as a lookup.
    pub(crate) fn is_cached(&self, handle: BlockHandle, role: BlockKind) -> bool {
        let key = CacheKey { file: self.number, offset: handle.offset };
        self.cache.0.contains(role.segment(), &key)
    }

    /// Puts a verified block into the cache.
    pub(crate) fn fill(&self, handle: BlockHandle, role: BlockKind, block: &Block) {
        let key = CacheKey { file: self.number, offset: handle.offset };
        self.cache.0.insert(role.segment(), key, block);
    }

    /// Returns a block, from the cache if it is there.
    #[inline]
    pub(crate) fn fetch<S: Source>(
        &self,
        handle: BlockHandle,
        role: BlockKind,
        caching: Caching,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        let extent = self.extent(handle);
        if let Some(block) = source.held(&extent) {
            return Ok(block);
        }
        let block = self.cached_or_read(handle, role, caching, source)?;
        source.hold(extent, &block);
        Ok(block)
    }

    /// As [`TableFile::fetch`], for callers that keep the block themselves until their step is
    /// done.
    pub(crate) fn cached_or_read<S: Source>(
        &self,
        handle: BlockHandle,
        role: BlockKind,
        caching: Caching,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        // A block that was read after a cache miss is not looked up again.
        if caching != Caching::Bypass
            && !source.has(&self.extent(handle))
            && let Some(block) = self.cached(handle, role, source.counters())
        {
            return Ok(block);
        }
        let block = self.read(handle, role, source)?;
        if caching == Caching::Fill {
            self.fill(handle, role, &block);
        }
        Ok(block)
    }
}

/// A run of the file held in memory, for reading many blocks with large requests.
#[derive(Debug, Default)]
pub(crate) struct ReadWindow {
    bytes: Vec<u8>,
    start: u64,
    len: usize,
    /// Number of reads into the window.
    reads: u64,
    /// Read of the next run in the background, if it was requested.
    next: Option<Box<NextRun>>,
}

impl ReadWindow {
    /// Returns the block at `handle`. If the block is not in the window, the window is first filled
    /// with `span`, which must contain the block and lie in the file. If part of the span is
    /// unreadable, the block is read alone, and the window stays empty.
    pub(crate) fn block<S: Source>(
        &mut self,
        file: &TableFile,
        handle: BlockHandle,
        role: BlockKind,
        source: &mut S,
        span: impl FnOnce() -> (u64, u64),
    ) -> Result<Block, S::Stop> {
        file.check(handle)?;
        if self.frame(handle).is_none() && !self.come_to_next(handle, role, source.counters()) {
            let (start, end) = span();
            let (start, end) = (start.min(handle.offset), end.min(file.frames_end).max(handle.end()));
            let extent = Extent { file: file.number, offset: start, len: end - start };
            self.len = 0;
            match source.bytes_into(&file.file, extent, role, &mut self.bytes).map_err(S::Stop::into_error) {
                Ok(()) => self.reads += 1,
                // An unreadable neighbor must not affect the wanted block.
                Err(Ok(_)) if extent.len > handle.len => {
                    let block = file.read(handle, role, source)?;
                    self.reads += 1;
                    return Ok(block);
                }
                Err(Ok(e)) => return Err(file.locate(e, start).into()),
                Err(Err(waiting)) => return Err(waiting),
            }
            (self.start, self.len) = (start, extent.len as usize);
        }
        let frame = self.frame(handle).unwrap_or_default();
        Ok(file.decode(frame, handle.offset)?)
    }

    /// Takes over the run that was read in the background, if it has the block.
    fn come_to_next(&mut self, handle: BlockHandle, role: BlockKind, counters: &mut ReadCounters) -> bool {
        let Some((start, read)) = self.next.as_mut().and_then(|next| next.take(handle)) else { return false };
        counters.count_request(read.len() as u64);
        role.count_read(counters);
        self.reads += 1;
        self.bytes.clear();
        self.bytes.extend_from_slice(&read);
        (self.start, self.len) = (start, read.len());
        true
    }

    /// Starts to read a run of the file for the cursor to use after this window.
    pub(crate) fn begin_next(&mut self, file: &TableFile, run: (u64, u64), queues: &ReadQueues) {
        // A damaged index may name any range; the error is reported when the cursor reaches the
        // block.
        if run.0 >= run.1 || run.1 > file.frames_end {
            return;
        }
        if self.next.is_none() {
            self.next = queues.lend().map(|reads| Box::new(NextRun::new(reads)));
        }
        if let Some(next) = &mut self.next {
            next.begin(&file.file, run);
        }
    }

    /// Returns the number of reads into the window so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns the range of the file in the window.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start, self.start + self.len as u64)
    }

    fn frame(&self, handle: BlockHandle) -> Option<&[u8]> {
        let from = usize::try_from(handle.offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(handle.len).ok()?)?;
        self.bytes.get(..self.len)?.get(from..to)
    }
}
