//! What a cursor over one stream has where somebody else does its reads.
//!
//! A move that comes to bytes which neither memory nor the cache has notes them as wanted ([`Fetched`]) and stops: it *waits*, and its cursor stands
//! nowhere. Once the bytes were handed over it is gone on with from the block it stopped at, so nothing is looked up or read twice. What was
//! handed over is let go of when the block is loaded; a run of blocks is in the cursor's window then.
//!
//! A long scan wants the run behind the one it waits for along with that (`readahead`), so that it stops half as often.
//!
//! Moves that wait go forward: nobody scans backward but on a thread of his own.

use crate::frame::BlockHandle;
use crate::source::{Extent, Fetched};

/// The step of a move that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Await {
    /// The block where a seek begins.
    Seek,
    /// The block behind this one.
    Block { left: Option<BlockHandle>, go: Go },
}

/// From block to block, forward.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Go {
    /// To a row of the present partition.
    Row(usize),
    /// To the first row of another.
    Partition(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) fetched: Fetched,
    /// The step that waits.
    at: Option<Await>,
    /// Where the seek under way goes; `None`: to the first entry, or there is no seek.
    sought: Option<Vec<u8>>,
}

impl Waits {
    /// A move begins: a seek, where there is a target.
    pub(crate) fn begin(&mut self, sought: Option<&[u8]>) {
        self.at = None;
        // What a move wanted that was given up.
        self.fetched.take_wanted();
        self.sought = sought.map(<[u8]>::to_vec);
    }

    /// The move stopped here.
    pub(crate) fn stop(&mut self, at: Await) {
        self.at = Some(at);
    }

    /// The step that waits, and where the move goes.
    pub(crate) fn take(&mut self) -> Option<(Await, Option<Vec<u8>>)> {
        Some((self.at.take()?, self.sought.take()))
    }

    /// The move goes on to there, if it has to wait again.
    pub(crate) fn keep(&mut self, sought: Option<Vec<u8>>) {
        self.sought = sought;
    }

    /// A block was loaded: what was handed over for it is let go of, but a run behind it.
    pub(crate) fn loaded(&mut self, ahead: Option<&Extent>) {
        self.fetched.forget_but(ahead);
    }

    /// Nothing waits any more.
    pub(crate) fn reset(&mut self) {
        (self.at, self.sought) = (None, None);
        self.fetched.forget_but(None);
    }
}
