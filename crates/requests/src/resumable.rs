//! Resumable reads: state machines whose device reads the driver runs. The driver knows neither
//! keys nor tables. It runs a step of a read, reads the wanted bytes, delivers them, and finally
//! makes the read resolve its request.
//!
//! A step never waits for the device. A step that may not block only uses reads of wanted bytes. It
//! leaves other slow work undone: opening a file, reading a large value, a long lookup. A read that
//! is not done, and has no outstanding wants, needs a step that may block.

use base::Result;
use cache::Block;
use table::{BlockRequest, FetchCost};

/// Progress of a step.
pub enum ReadStep {
    /// These bytes are wanted, each once.
    Wants(Vec<BlockRequest>),
    /// The answer is known: [`ResumableRead::resolve`] hands it out.
    Done,
}

/// A read in flight, of any kind.
pub trait ResumableRead: Send {
    /// Continues as far as possible without a read; if it may not block, without anything else that
    /// waits.
    fn step(&mut self, may_block: bool) -> ReadStep;
    /// Hands over the bytes of a want, or why they could not be read.
    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost);
    /// Closes files that were opened for a step.
    fn close_files(&mut self);
    /// Forgets all wanted and delivered bytes: the next step wants them again.
    fn forget(&mut self);
    /// Returns true if the next step waits until all wants are delivered.
    fn needs_all(&self) -> bool;
    /// Returns a number that changes when the read releases delivered bytes.
    fn phase(&self) -> usize;
    /// Returns the delivered bytes that the read still holds, where that may be less than all of
    /// them.
    fn held_bytes(&mut self) -> Option<u64> {
        None
    }
    /// Releases all that it has pinned, then resolves the request with the answer.
    fn resolve(self: Box<Self>);
}
