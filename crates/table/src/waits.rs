//! State of a cursor over one stream, if the caller performs its reads.
//!
//! A move that needs bytes from neither memory nor the cache records them as wanted
//! ([`FetchedBlocks`]) and stops: it *waits*, and its cursor is not valid. Once the bytes are
//! delivered, the move continues from the block at which it stopped, so nothing is looked up or
//! read twice. Delivered bytes are released when the block is loaded; a run of blocks is in the
//! cursor's window by then.
//!
//! A long scan requests the run after the awaited one together with it (`readahead`), so that it
//! stops half as often.
//!
//! Moves that wait go forward only: backward scans always run on a thread that may block.

use crate::frame::BlockHandle;
use crate::source::{Extent, FetchedBlocks};

/// The step at which a move waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Await {
    /// Loads the block in which a seek begins.
    Seek,
    /// Loads the block after this one.
    Block { left: Option<BlockHandle>, go: Go },
}

/// A step from block to block, forward.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Go {
    /// To a row of the current partition.
    Row(usize),
    /// To the first row of another partition.
    Partition(usize),
}

/// Pending and delivered reads: see the module.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) fetched: FetchedBlocks,
    /// The step that waits.
    at: Option<Await>,
    /// Target of the seek in progress; `None`: the first entry, or there is no seek.
    sought: Option<Vec<u8>>,
}

impl Waits {
    /// Starts a move, which is a seek if it has a target.
    pub(crate) fn begin(&mut self, sought: Option<&[u8]>) {
        self.at = None;
        // Drops the requests of an abandoned move.
        self.fetched.take_wanted();
        self.sought = sought.map(<[u8]>::to_vec);
    }

    /// Records the step at which the move stopped.
    pub(crate) fn stop(&mut self, at: Await) {
        self.at = Some(at);
    }

    /// Takes the step that waits, and the target of the move.
    pub(crate) fn take(&mut self) -> Option<(Await, Option<Vec<u8>>)> {
        Some((self.at.take()?, self.sought.take()))
    }

    /// Keeps the target for a move that may have to wait again.
    pub(crate) fn keep(&mut self, sought: Option<Vec<u8>>) {
        self.sought = sought;
    }

    /// Releases the bytes delivered for a loaded block, except a run after it.
    pub(crate) fn loaded(&mut self, ahead: Option<&Extent>) {
        self.fetched.forget_but(ahead);
    }

    /// Drops all pending state.
    pub(crate) fn reset(&mut self) {
        (self.at, self.sought) = (None, None);
        self.fetched.forget_but(None);
    }
}
