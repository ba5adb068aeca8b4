//! A cursor over one stream: top index, index partition, data block.
//!
//! [`StreamIter`] records the gap of a failed move. [`moves`] goes from entry to entry and waits
//! for reads. [`blocks`] finds the block in the index and loads it. [`runs`] reads it, with its
//! successors.

mod blocks;
mod moves;
mod runs;

use crate::cursor::BlockCursor;
use crate::file::BlockKind;
use crate::options::{IterOptions, ReadCounters, SeekTarget};
use crate::readahead::ScanBounds;
use crate::reader::Ksst;
use crate::source::FetchedBlocks;
use base::{Error, Gap, Result, key};
use moves::Moves;
use std::sync::Arc;

/// A cursor over the blocks of one stream.
pub(crate) struct StreamIter<C> {
    moves: Moves<C>,
    /// Gap of the last move, if it failed and the index has bounds for it.
    gap: Option<Gap>,
}

impl<C: BlockCursor> StreamIter<C> {
    pub(crate) fn new(
        table: Arc<Ksst>,
        role: BlockKind,
        options: IterOptions,
        borders: Option<Arc<ScanBounds>>,
    ) -> Self {
        StreamIter { moves: Moves::new(table, role, options, borders), gap: None }
    }

    /// Returns the cursor in the current block.
    #[inline]
    pub(crate) fn cursor(&self) -> &C {
        self.moves.blocks().cursor()
    }

    /// After an error no loaded data is trusted.
    #[inline(always)]
    fn guard(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            self.fail(e);
        }
        result
    }

    #[cold]
    fn fail(&mut self, e: &Error) {
        self.gap = self.moves.blocks().unread();
        if e.is_waiting() { self.moves.pause() } else { self.moves.reset() }
    }

    #[cold]
    pub(crate) fn reset(&mut self) {
        self.moves.reset();
    }

    /// Continues a move that waits.
    pub(crate) fn resume(&mut self) -> Result<()> {
        let Some((at, sought)) = self.moves.waits().and_then(|waits| waits.take()) else { return Ok(()) };
        let done = self.moves.go_on(at, sought.as_deref());
        let done = self.guard(done);
        if let (Some(waits), Some(sought)) = (self.moves.waits(), sought) {
            self.gap.take_if(|gap| key::compare(&gap.last, &sought).is_lt());
            waits.keep(Some(sought).filter(|_| done.is_err()));
        }
        done
    }

    /// Returns the read buffer of the stream, if the caller performs the reads.
    pub(crate) fn fetched(&mut self) -> Option<&mut FetchedBlocks> {
        self.moves.waits().map(|waits| &mut waits.fetched)
    }

    /// Returns the bytes of blocks that the caller read and the cursor holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.moves.held_bytes()
    }

    /// Returns the cost of the reads.
    pub(crate) fn cost(&self) -> ReadCounters {
        self.moves.cost()
    }

    /// Returns the gap of the failed move, or `None` if its bounds are unknown.
    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        self.gap.take()
    }

    /// Prepares a seek; see [`crate::KsstIter::prepare`].
    pub(crate) fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        self.moves.prepare(place, fetched);
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.moves.waits().into_iter().for_each(|waits| waits.begin(None));
        let done = self.moves.first();
        self.guard(done)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        let done = self.moves.last();
        self.guard(done)
    }

    pub(crate) fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.moves.waits().into_iter().for_each(|waits| waits.begin(Some(target)));
        let done = self.moves.forward_to(target);
        let done = self.guard(done);
        if let Some(waits) = self.moves.waits().filter(|_| done.is_ok()) {
            waits.begin(None);
        }
        // Contradictory separators may put the end of the gap before the sought key: then its end
        // is unknown.
        self.gap.take_if(|gap| key::compare(&gap.last, target).is_lt());
        done
    }

    pub(crate) fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let done = self.moves.backward_to(target);
        let done = self.guard(done);
        self.gap.take_if(|gap| key::compare(&gap.first, target).is_gt());
        done
    }

    /// Moves one entry forward, or backward.
    #[inline]
    pub(crate) fn step(&mut self, forward: bool) -> Result<()> {
        if forward { self.next() } else { self.prev() }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        let done = self.moves.forward();
        self.guard(done)
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        let done = self.moves.backward();
        self.guard(done)
    }
}
