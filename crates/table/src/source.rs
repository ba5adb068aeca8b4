//! Sources of bytes for reads of a table that miss the cache.
//!
//! Every function of a point read is written once, generic over [`Source`], which has two
//! implementations. [`ReadCounters`] reads at once, on the caller's thread, and counts.
//! [`FetchedBlocks`] never reads: it records missing bytes as wanted, and the read stops with
//! [`Stopped::Wanting`]. The driver of the read then fetches the bytes, possibly for many reads
//! together, delivers them, and restarts the step. Bytes pass the same checks either way, at the
//! place of their use.
//!
//! A restarted step takes the same path as before, so [`FetchedBlocks`] keeps the blocks that the
//! step has used, delivered ones and those found in the cache. So a cache that evicts at once
//! causes no second read, each restart gets further, and the cache counts each lookup once.

use crate::file::BlockKind;
use crate::options::ReadCounters;
use base::{Error, HashMap, Result};
use cache::Block;
use io::ReadFile;
use std::sync::Arc;

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Number of the file.
    pub file: u64,
    /// Start of the range.
    pub offset: u64,
    /// Length of the range.
    pub len: u64,
}

/// Bytes that a read needs before it can continue.
#[derive(Clone, Debug)]
pub struct BlockRequest {
    /// The open file.
    pub file: Arc<dyn ReadFile>,
    /// The wanted range.
    pub extent: Extent,
    /// Kind of the bytes.
    pub role: BlockKind,
}

/// Reason why a read has no result.
pub trait Stop: From<Error> {
    /// Returns the error, or `Err(self)` if the read only has to wait.
    ///
    /// # Errors
    /// `self`, which is not a failure: the read has to wait.
    fn into_error(self) -> Result<Error, Self>;

    /// Returns true if there is no error, and the read has to wait.
    fn is_wait(&self) -> bool;

    /// Converts the error with `say`, if there is one.
    fn map(self, say: impl FnOnce(Error) -> Error) -> Self {
        match self.into_error() {
            Ok(e) => say(e).into(),
            Err(waiting) => waiting,
        }
    }
}

impl Stop for Error {
    fn into_error(self) -> Result<Error, Self> {
        Ok(self)
    }

    fn is_wait(&self) -> bool {
        false
    }
}

/// Reason why a step of a nonblocking read has no result.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// The step needs the bytes in [`FetchedBlocks::take_wanted`]; if there are none, it needs a
    /// thread that may block.
    Wanting,
    /// The step failed.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(e: Error) -> Self {
        Stopped::Failed(e)
    }
}

impl Stop for Stopped {
    fn into_error(self) -> Result<Error, Self> {
        match self {
            Stopped::Failed(e) => Ok(e),
            Stopped::Wanting => Err(self),
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self, Stopped::Wanting)
    }
}

/// A source of bytes: see the module.
pub trait Source {
    /// Reason why a read has no result.
    type Stop: Stop;

    /// True if a step can stop in the middle and restart.
    const RESUMES: bool;

    /// Returns the cost of the read.
    fn counters(&mut self) -> &mut ReadCounters;

    /// Called before a system call other than a read that may block, such as opening a file.
    ///
    /// # Errors
    /// A stop if the step may not block on this thread.
    fn may_block(&mut self) -> Result<(), Self::Stop>;

    /// Returns a file opened by `open`, or the file that the step opened before it stopped.
    ///
    /// # Errors
    /// The errors of `open`, and of [`Source::may_block`].
    fn file(
        &mut self,
        number: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>, Self::Stop>;

    /// Returns true if these bytes were delivered, or the step used the block before it stopped.
    fn has(&self, extent: &Extent) -> bool;

    /// Returns a block that the step used before it stopped.
    fn held(&self, extent: &Extent) -> Option<Block>;

    /// Records a block that the step uses.
    fn hold(&mut self, extent: Extent, block: &Block);

    /// Returns the bytes of a file as they are there.
    ///
    /// # Errors
    /// The errors of the file.
    fn bytes(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: BlockKind,
    ) -> Result<Block, Self::Stop>;

    /// Reads the bytes into the start of `buf`, which only ever grows.
    ///
    /// # Errors
    /// The errors of the file; `buf` is unspecified then.
    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: BlockKind,
        buf: &mut Vec<u8>,
    ) -> Result<(), Self::Stop>;
}

/// Reads at once, on the caller's thread.
impl Source for ReadCounters {
    type Stop = Error;

    const RESUMES: bool = false;

    #[inline(always)]
    fn counters(&mut self) -> &mut ReadCounters {
        self
    }

    #[inline(always)]
    fn may_block(&mut self) -> Result<()> {
        Ok(())
    }

    fn file(
        &mut self,
        _: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>> {
        open()
    }

    #[inline(always)]
    fn has(&self, _: &Extent) -> bool {
        false
    }

    #[inline(always)]
    fn held(&self, _: &Extent) -> Option<Block> {
        None
    }

    #[inline(always)]
    fn hold(&mut self, _: Extent, _: &Block) {}

    fn bytes(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: BlockKind) -> Result<Block> {
        let bytes = read_now(file, extent)?;
        if role != BlockKind::Tail {
            self.count_request(extent.len);
        }
        role.count_read(self);
        Ok(bytes)
    }

    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: BlockKind,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        file.read_at(first(buf, extent.len), extent.offset)?;
        self.count_request(extent.len);
        role.count_read(self);
        Ok(())
    }
}

/// Returns the first `len` bytes of a buffer, and grows it if needed.
fn first(buf: &mut Vec<u8>, len: u64) -> &mut [u8] {
    let len = len as usize;
    if buf.len() < len {
        buf.resize(len, 0);
    }
    buf.get_mut(..len).unwrap_or_default()
}

/// Reads bytes of a file while the caller waits.
///
/// # Errors
/// The errors of the file.
pub fn read_now(file: &Arc<dyn ReadFile>, extent: Extent) -> Result<Block> {
    let mut block = zeroed(extent.len as usize);
    file.read_at(Block::get_mut(&mut block).unwrap_or_default(), extent.offset)?;
    Ok(block)
}

/// Returns a shareable buffer of zeros for one read to fill.
pub fn zeroed(len: usize) -> Block {
    std::iter::repeat_n(0, len).collect()
}

/// Share of a delivered read in the requests to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchCost {
    /// One request of this length, bytes.
    Request(u64),
    /// None: the bytes came with another wanted extent of the same read, or such reads are not
    /// counted as requests.
    Along,
    /// None: another reader has counted the request.
    Shared,
}

impl FetchCost {
    /// Returns the cost of a wanted extent that is read alone. Ends of files are not counted.
    pub fn alone(want: &BlockRequest) -> FetchCost {
        if want.role == BlockKind::Tail { FetchCost::Along } else { FetchCost::Request(want.extent.len) }
    }
}

/// Bytes delivered to nonblocking steps, for their use only. Several reads may share one
/// `FetchedBlocks`, if one thread drives them.
#[derive(Debug, Default)]
pub struct FetchedBlocks {
    counters: ReadCounters,
    known: HashMap<Extent, Known>,
    files: HashMap<u64, Arc<dyn ReadFile>>,
    wanted: Vec<BlockRequest>,
    /// True if steps run on a thread that must not block.
    never_blocks: bool,
}

#[derive(Debug)]
enum Known {
    /// Bytes of the file, not verified.
    Bytes(Block),
    /// Verified and decompressed.
    Block(Block),
    /// The error of the read.
    Failed(Error),
}

impl FetchedBlocks {
    /// Sets whether steps may make blocking system calls other than reads (initially true). A step
    /// that needs one and may not make it stops without wanting any bytes.
    pub fn set_may_block(&mut self, may_block: bool) {
        self.never_blocks = !may_block;
    }

    /// Returns whether steps may block: see [`FetchedBlocks::set_may_block`].
    pub fn may_block(&self) -> bool {
        !self.never_blocks
    }

    /// Returns the extents wanted since the last call: at least one after a step stopped, unless it
    /// was not allowed to block.
    pub fn take_wanted(&mut self) -> Vec<BlockRequest> {
        std::mem::take(&mut self.wanted)
    }

    /// Delivers the bytes of a request that another read, which wanted the same at the same time,
    /// has counted.
    pub fn share(&mut self, want: &BlockRequest, read: Result<Block>) {
        self.known.insert(want.extent, read.map_or_else(Known::Failed, Known::Bytes));
    }

    /// Delivers wanted bytes, or the error of their read. Requests to the device are counted
    /// separately, since one may deliver several extents ([`ReadCounters::count_request`]).
    pub fn put(&mut self, want: &BlockRequest, read: Result<Block>) {
        if read.is_ok() {
            want.role.count_read(&mut self.counters);
        }
        self.share(want, read);
    }

    /// Delivers wanted bytes, or the error of their read, and counts their cost.
    pub fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        match cost {
            FetchCost::Shared => return self.share(want, read),
            FetchCost::Request(bytes) if read.is_ok() => self.counters.count_request(bytes),
            FetchCost::Request(_) | FetchCost::Along => {}
        }
        self.put(want, read);
    }

    /// Requests bytes ahead of their use, unless they are already there.
    pub(crate) fn want_ahead(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: BlockKind) {
        if !self.has(&extent) && self.wanted.iter().all(|want| want.extent != extent) {
            self.wanted.push(BlockRequest { file: file.clone(), extent, role });
        }
    }

    /// Drops all delivered data except `kept`.
    pub(crate) fn forget_but(&mut self, kept: Option<&Extent>) {
        self.known.retain(|extent, _| Some(extent) == kept);
    }

    /// Returns the counters so far.
    pub(crate) fn cost(&self) -> &ReadCounters {
        &self.counters
    }

    /// Returns the number of delivered bytes that it holds.
    pub fn held_bytes(&self) -> u64 {
        let lens = self.known.iter().map(|(extent, known)| match known {
            Known::Bytes(_) => extent.len,
            Known::Block(_) | Known::Failed(_) => 0,
        });
        lens.sum()
    }

    /// Closes the files opened for steps that stopped. Steps that still need them open them again.
    pub fn close_files(&mut self) {
        self.files.clear();
    }

    /// Drops all data, for use by other reads; the counters stay.
    pub fn clear(&mut self) {
        self.known.clear();
        self.files.clear();
        self.wanted.clear();
    }
}

impl Source for FetchedBlocks {
    type Stop = Stopped;

    const RESUMES: bool = true;

    fn counters(&mut self) -> &mut ReadCounters {
        &mut self.counters
    }

    fn may_block(&mut self) -> Result<(), Stopped> {
        if self.never_blocks { Err(Stopped::Wanting) } else { Ok(()) }
    }

    fn file(
        &mut self,
        number: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>, Stopped> {
        if let Some(file) = self.files.get(&number) {
            return Ok(file.clone());
        }
        self.may_block()?;
        let file = open()?;
        self.files.insert(number, file.clone());
        Ok(file)
    }

    fn has(&self, extent: &Extent) -> bool {
        self.known.contains_key(extent)
    }

    fn held(&self, extent: &Extent) -> Option<Block> {
        match self.known.get(extent) {
            Some(Known::Block(block)) => Some(block.clone()),
            _ => None,
        }
    }

    fn hold(&mut self, extent: Extent, block: &Block) {
        self.known.insert(extent, Known::Block(block.clone()));
    }

    fn bytes(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: BlockKind) -> Result<Block, Stopped> {
        match self.known.get(&extent) {
            Some(Known::Bytes(bytes)) => Ok(bytes.clone()),
            Some(Known::Failed(e)) => Err(e.clone().into()),
            // A verified block of this extent does not contain its raw bytes.
            Some(Known::Block(_)) | None => {
                self.wanted.push(BlockRequest { file: file.clone(), extent, role });
                Err(Stopped::Wanting)
            }
        }
    }

    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: BlockKind,
        buf: &mut Vec<u8>,
    ) -> Result<(), Stopped> {
        let bytes = self.bytes(file, extent, role)?;
        first(buf, bytes.len() as u64).copy_from_slice(&bytes);
        Ok(())
    }
}
