//! Where a read of a table takes bytes from that no cache holds.
//!
//! Every function on the way of a point read is written once, for any [`Source`], and there are two. [`ReadCounters`]
//! reads at once, on the caller's thread, and counts. [`Fetched`] never reads: what it does not have it notes as wanted,
//! and the read stops with [`Stopped::Wanting`]. Whoever drives the read then has the bytes read, of many reads together
//! and by whatever way, hands them over, and begins the step again. Bytes go through the same checks either way, at the
//! place where they are used.
//!
//! A step that begins again goes the way that it went before, so [`Fetched`] keeps what the step has used: blocks that
//! it was given and those that it found in the cache. A cache that evicts at once costs no second read, the step gets further
//! each time, and the cache counts each lookup once.

use crate::file::Role;
use crate::options::ReadCounters;
use base::{Error, HashMap, Result};
use cache::Block;
use io::ReadFile;
use std::sync::Arc;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// The number of the file.
    pub file: u64,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
}

/// Bytes that a read needs before it can go on.
#[derive(Clone, Debug)]
pub struct Want {
    /// The open file.
    pub file: Arc<dyn ReadFile>,
    /// Which of its bytes.
    pub extent: Extent,
    /// What they are.
    pub role: Role,
}

/// Why a read has no result.
pub trait Stop: From<Error> {
    /// The error; `Err` with itself if there is none, and the read has to wait.
    ///
    /// # Errors
    /// See above: not a failure.
    fn into_error(self) -> Result<Error, Self>;

    /// True if there is no error, and the read has to wait.
    fn is_wait(&self) -> bool;

    /// The same with what `say` makes of the error.
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

/// Why a step of a read that does not wait has no result.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// It needs bytes first, of which [`Fetched::take_wanted`] tells; none: it needs a thread that may block.
    Wanting,
    /// It failed.
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

/// See the module.
pub trait Source {
    /// Why a read gives nothing.
    type Stop: Stop;

    /// True if a step can stop halfway and begin again.
    const RESUMES: bool;

    /// What the read has cost.
    fn counters(&mut self) -> &mut ReadCounters;

    /// The system is asked next for something that is no read, and may take its time: to open a file.
    ///
    /// # Errors
    /// That the step may not, on this thread.
    fn may_block(&mut self) -> Result<(), Self::Stop>;

    /// A file that is to be opened: `open`, unless the step has it open since before it had to stop.
    ///
    /// # Errors
    /// Those of `open`, and of [`Source::may_block`].
    fn file(
        &mut self,
        number: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>, Self::Stop>;

    /// True if the step was given these bytes, or has used the block before it had to stop.
    fn has(&self, extent: &Extent) -> bool;

    /// A block that the step has used before it had to stop.
    fn held(&self, extent: &Extent) -> Option<Block>;

    /// Notes a block that the step uses.
    fn hold(&mut self, extent: Extent, block: &Block);

    /// The bytes of a file as they lie there.
    ///
    /// # Errors
    /// What the file reports.
    fn bytes(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: Role) -> Result<Block, Self::Stop>;

    /// The same at the beginning of `buf`, which only ever grows.
    ///
    /// # Errors
    /// What the file reports; `buf` is unspecified then.
    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: Role,
        buf: &mut Vec<u8>,
    ) -> Result<(), Self::Stop>;
}

/// Reads at once.
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

    fn bytes(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: Role) -> Result<Block> {
        let bytes = read_now(file, extent)?;
        if role != Role::Tail {
            self.count_request(extent.len);
        }
        role.count_read(self);
        Ok(bytes)
    }

    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: Role,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        file.read_at(first(buf, extent.len), extent.offset)?;
        self.count_request(extent.len);
        role.count_read(self);
        Ok(())
    }
}

/// The first `len` bytes of a buffer that grows to them.
fn first(buf: &mut Vec<u8>, len: u64) -> &mut [u8] {
    let len = len as usize;
    if buf.len() < len {
        buf.resize(len, 0);
    }
    buf.get_mut(..len).unwrap_or_default()
}

/// The bytes of a file, read while the caller waits.
///
/// # Errors
/// What the file reports.
pub fn read_now(file: &Arc<dyn ReadFile>, extent: Extent) -> Result<Block> {
    let mut block = zeroed(extent.len as usize);
    file.read_at(Block::get_mut(&mut block).unwrap_or_default(), extent.offset)?;
    Ok(block)
}

/// A buffer that one read fills and everybody may keep.
pub fn zeroed(len: usize) -> Block {
    std::iter::repeat_n(0, len).collect()
}

/// Share of a delivered read in the requests to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchCost {
    /// One request of this length, bytes.
    Request(u64),
    /// None: the bytes came with another want of the same read, or such reads are not counted as requests.
    Along,
    /// None: another reader paid for the bytes.
    Shared,
}

impl FetchCost {
    /// The cost of a want that is read alone. Ends of files are not counted.
    pub fn alone(want: &Want) -> FetchCost {
        if want.role == Role::Tail { FetchCost::Along } else { FetchCost::Request(want.extent.len) }
    }
}

/// What was read for steps that do not wait, theirs alone. Several reads may share one, if one thread drives them.
#[derive(Debug, Default)]
pub struct Fetched {
    counters: ReadCounters,
    known: HashMap<Extent, Known>,
    files: HashMap<u64, Arc<dyn ReadFile>>,
    wanted: Vec<Want>,
    /// Steps are taken where nobody may wait for the system.
    never_blocks: bool,
}

#[derive(Debug)]
enum Known {
    /// As it lies in the file, not verified.
    Bytes(Block),
    /// Verified and decompressed.
    Block(Block),
    /// It could not be read.
    Failed(Error),
}

impl Fetched {
    /// Whether steps may ask the system for what is no read and takes its time (at first they may). One that may not and has to stops, and
    /// wants nothing.
    pub fn set_may_block(&mut self, may_block: bool) {
        self.never_blocks = !may_block;
    }

    /// See [`Fetched::set_may_block`].
    pub fn may_block(&self) -> bool {
        !self.never_blocks
    }

    /// What the step that stopped last needs, and all before it since the last call: at least one read, unless it was not allowed to block.
    pub fn take_wanted(&mut self) -> Vec<Want> {
        std::mem::take(&mut self.wanted)
    }

    /// Hands over what another read has paid for, which wanted the same at the same time.
    pub fn share(&mut self, want: &Want, read: Result<Block>) {
        self.known.insert(want.extent, read.map_or_else(Known::Failed, Known::Bytes));
    }

    /// Hands over what was wanted, or why it could not be read. Requests to the device are counted apart: one may bring several
    /// ([`ReadCounters::count_request`]).
    pub fn put(&mut self, want: &Want, read: Result<Block>) {
        if read.is_ok() {
            want.role.count_read(&mut self.counters);
        }
        self.share(want, read);
    }

    /// Hands over the bytes of a want, or why they could not be read, and counts their cost.
    pub fn deliver(&mut self, want: &Want, read: Result<Block>, cost: FetchCost) {
        match cost {
            FetchCost::Shared => return self.share(want, read),
            FetchCost::Request(bytes) if read.is_ok() => self.counters.count_request(bytes),
            FetchCost::Request(_) | FetchCost::Along => {}
        }
        self.put(want, read);
    }

    /// Wants what nothing waits for yet, unless it is there.
    pub(crate) fn want_ahead(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: Role) {
        if !self.has(&extent) && self.wanted.iter().all(|want| want.extent != extent) {
            self.wanted.push(Want { file: file.clone(), extent, role });
        }
    }

    /// Forgets what was handed over, but this.
    pub(crate) fn forget_but(&mut self, kept: Option<&Extent>) {
        self.known.retain(|extent, _| Some(extent) == kept);
    }

    /// What was counted so far.
    pub(crate) fn cost(&self) -> &ReadCounters {
        &self.counters
    }

    /// How many bytes it holds that were handed over.
    pub fn held_bytes(&self) -> u64 {
        let lens = self.known.iter().map(|(extent, known)| match known {
            Known::Bytes(_) => extent.len,
            Known::Block(_) | Known::Failed(_) => 0,
        });
        lens.sum()
    }

    /// Lets go of files that were opened for steps that stopped. Those that are still to be opened are opened again.
    pub fn close_files(&mut self) {
        self.files.clear();
    }

    /// Forgets what was read, for other reads; what it cost stays counted.
    pub fn clear(&mut self) {
        self.known.clear();
        self.files.clear();
        self.wanted.clear();
    }
}

impl Source for Fetched {
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

    fn bytes(&mut self, file: &Arc<dyn ReadFile>, extent: Extent, role: Role) -> Result<Block, Stopped> {
        match self.known.get(&extent) {
            Some(Known::Bytes(bytes)) => Ok(bytes.clone()),
            Some(Known::Failed(e)) => Err(e.clone().into()),
            // A block in its place says nothing of the bytes.
            Some(Known::Block(_)) | None => {
                self.wanted.push(Want { file: file.clone(), extent, role });
                Err(Stopped::Wanting)
            }
        }
    }

    fn bytes_into(
        &mut self,
        file: &Arc<dyn ReadFile>,
        extent: Extent,
        role: Role,
        buf: &mut Vec<u8>,
    ) -> Result<(), Stopped> {
        let bytes = self.bytes(file, extent, role)?;
        first(buf, bytes.len() as u64).copy_from_slice(&bytes);
        Ok(())
    }
}
