//! Moves from entry to entry, across block boundaries.

use super::blocks::{Blocks, Load};
use crate::cursor::BlockCursor;
use crate::file::BlockKind;
use crate::frame::BlockHandle;
use crate::options::{IterOptions, ReadCounters, SeekTarget};
use crate::readahead::ScanBounds;
use crate::reader::Ksst;
use crate::source::{FetchedBlocks, Stop, Stopped};
use crate::waits::{Await, Go, Waits};
use base::{Error, Result, key};
use std::sync::Arc;

/// The seek whose first block is already loaded, if there is one.
#[derive(Default)]
struct Prepared {
    /// Direction, and whether the seek has a `target`; `None`: no seek.
    seek: Option<(bool, bool)>,
    target: Vec<u8>,
}

impl Prepared {
    fn is(&self, place: SeekTarget<'_>) -> bool {
        let (forward, target) = (place.is_forward(), place.target());
        self.seek == Some((forward, target.is_some())) && target.is_none_or(|target| *target == *self.target)
    }

    fn note(&mut self, place: SeekTarget<'_>) {
        self.seek = Some((place.is_forward(), place.target().is_some()));
        self.target.clear();
        self.target.extend_from_slice(place.target().unwrap_or_default());
    }

    fn forget(&mut self) {
        self.seek = None;
    }
}

/// The moves of a cursor, and their pending reads.
pub(super) struct Moves<C> {
    blocks: Blocks<C>,
    counters: ReadCounters,
    prepared: Prepared,
    /// State of the reads, if the caller performs them: pending and delivered bytes.
    waits: Option<Box<Waits>>,
}

impl<C: BlockCursor> Moves<C> {
    pub fn new(
        table: Arc<Ksst>,
        role: BlockKind,
        options: IterOptions,
        borders: Option<Arc<ScanBounds>>,
    ) -> Self {
        Moves {
            waits: borders.as_deref().is_some_and(|borders| borders.wants).then(Box::default),
            blocks: Blocks::new(table, role, options, borders),
            counters: ReadCounters::default(),
            prepared: Prepared::default(),
        }
    }

    /// Returns the blocks.
    #[inline]
    pub fn blocks(&self) -> &Blocks<C> {
        &self.blocks
    }

    /// Returns the state of the reads, if the caller performs them.
    pub fn waits(&mut self) -> Option<&mut Waits> {
        self.waits.as_deref_mut()
    }

    /// Returns the bytes of blocks that the caller read and the cursor holds.
    pub fn held_bytes(&self) -> u64 {
        self.waits.as_ref().map_or(0, |waits| waits.fetched.held_bytes() + self.blocks.held_bytes())
    }

    /// Returns the cost of the reads.
    pub fn cost(&self) -> ReadCounters {
        let mut sum = self.counters;
        self.waits.iter().for_each(|waits| sum.add(waits.fetched.cost()));
        sum
    }

    /// Loads a block. Reads and counts at once, or waits if the caller performs the reads.
    fn reading(&mut self, load: Load<'_>) -> Result<bool> {
        let Some(waits) = &mut self.waits else { return self.blocks.load(load, &mut self.counters) };
        let done = self.blocks.load(load, &mut waits.fetched);
        match &done {
            Ok(_) => waits.loaded(self.blocks.ahead()),
            Err(Stopped::Wanting) => self.blocks.want_behind(&mut waits.fetched),
            Err(Stopped::Failed(_)) => {}
        }
        done.map_err(|stop| stop.into_error().unwrap_or_else(|_| Error::waiting()))
    }

    /// Moves to the first entry after the current block.
    fn next_block(&mut self) -> Result<()> {
        while !self.blocks.cursor().valid() {
            let Some(go) = self.blocks.following() else { return Ok(()) };
            self.enter_block(self.blocks.loaded(), go)?;
        }
        Ok(())
    }

    /// Moves to the first entry of a block after the previous one.
    fn enter_block(&mut self, left: Option<BlockHandle>, go: Go) -> Result<()> {
        let done = self.reading(Load::To(go, false));
        if let (Some(waits), Err(_)) = (&mut self.waits, &done) {
            waits.stop(Await::Block { left, go });
        }
        done?;
        self.blocks.check_order(left, self.blocks.loaded())?;
        self.blocks.within(C::seek_to_first)
    }

    /// Moves to the last entry before the current block.
    fn prev_block(&mut self) -> Result<()> {
        while !self.blocks.cursor().valid() {
            let Some(go) = self.blocks.preceding() else { return Ok(()) };
            let left = self.blocks.loaded();
            self.reading(Load::To(go, true))?;
            self.blocks.check_order(self.blocks.loaded(), left)?;
            self.blocks.within(C::seek_to_last)?;
        }
        Ok(())
    }

    /// Continues a move that waits.
    pub fn go_on(&mut self, at: Await, sought: Option<&[u8]>) -> Result<()> {
        match (at, sought) {
            (Await::Seek, Some(target)) => return self.forward_to(target),
            (Await::Seek, None) => return self.first(),
            (Await::Block { left, go }, _) => {
                self.enter_block(left, go)?;
                self.next_block()?;
            }
        }
        sought.map_or(Ok(()), |target| self.reach(target))
    }

    /// Makes the cursor not valid until a waiting move continues.
    #[cold]
    pub fn pause(&mut self) {
        self.blocks.clear();
    }

    /// After a failure no loaded data is trusted.
    #[cold]
    pub fn reset(&mut self) {
        self.blocks.reset();
        self.prepared.forget();
        self.waits.iter_mut().for_each(|waits| waits.reset());
    }

    /// Loads the first block of a seek, without reading. Missing bytes are requested through
    /// `fetched`, and the same call continues once they are delivered. The seek itself reports any
    /// error, since it takes the same path.
    pub fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        if self.prepared.is(place) {
            return;
        }
        self.prepared.forget();
        match self.blocks.load(Load::At(place), fetched) {
            Ok(true) => self.prepared.note(place),
            Ok(false) if !place.is_forward() => self.prepare(SeekTarget::Last, fetched),
            Ok(false) | Err(_) => {}
        }
    }

    /// Makes the first step of a seek: loads its first block, unless it is prepared. Returns false
    /// if all blocks end before the target.
    fn begin(&mut self, place: SeekTarget<'_>) -> Result<bool> {
        let is_prepared = self.prepared.is(place);
        self.prepared.forget();
        if is_prepared {
            return Ok(true);
        }
        let done = self.reading(Load::At(place));
        if let (Some(waits), Err(_)) = (&mut self.waits, &done) {
            waits.stop(Await::Seek);
        }
        done
    }

    /// Moves to the first entry.
    pub fn first(&mut self) -> Result<()> {
        self.begin(SeekTarget::First)?;
        self.blocks.within(C::seek_to_first)?;
        self.next_block()
    }

    /// Moves to the last entry.
    pub fn last(&mut self) -> Result<()> {
        self.begin(SeekTarget::Last)?;
        self.blocks.within(C::seek_to_last)?;
        self.prev_block()
    }

    /// Moves to the first entry at or after an internal key.
    pub fn forward_to(&mut self, target: &[u8]) -> Result<()> {
        if !self.begin(SeekTarget::From(target))? {
            self.blocks.clear();
            return Ok(());
        }
        self.blocks.within(|c| c.seek(target))?;
        self.next_block()?;
        self.reach(target)
    }

    fn reach(&mut self, target: &[u8]) -> Result<()> {
        while self.is_on_entry(|key| key::compare(key, target).is_lt()) {
            self.forward()?;
        }
        Ok(())
    }

    /// Moves to the last entry at or before an internal key.
    pub fn backward_to(&mut self, target: &[u8]) -> Result<()> {
        if !self.begin(SeekTarget::UpTo(target))? {
            return self.last();
        }
        self.blocks.within(|c| c.seek_for_prev(target))?;
        self.prev_block()?;
        while self.is_on_entry(|key| key::compare(key, target).is_gt()) {
            self.backward()?;
        }
        Ok(())
    }

    fn is_on_entry(&self, is_short: impl FnOnce(&[u8]) -> bool) -> bool {
        let cursor = self.blocks.cursor();
        cursor.valid() && is_short(cursor.key())
    }

    /// Moves one entry forward.
    #[inline(always)]
    pub fn forward(&mut self) -> Result<()> {
        self.blocks.within(C::next)?;
        if self.blocks.cursor().valid() { Ok(()) } else { self.next_block() }
    }

    /// Moves one entry backward.
    pub fn backward(&mut self) -> Result<()> {
        self.blocks.within(C::prev)?;
        if self.blocks.cursor().valid() { Ok(()) } else { self.prev_block() }
    }
}
