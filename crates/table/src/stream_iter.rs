//! A cursor over one stream: top index, index partition, data block.

use crate::cursor::BlockCursor;
use crate::file::{Caching, Role, Window};
use crate::frame::BlockHandle;
use crate::options::{IterOptions, Place, ReadCounters};
use crate::readahead::{BEYOND_MIN, Beyond, Borders};
use crate::reader::Ksst;
use crate::source::{Extent, Fetched, Source, Stop, Stopped};
use crate::stream::{Partition, Stream};
use crate::waits::{Await, Go, Waits};
use base::key::{self, encode_into};
use base::{Error, Gap, MAX_SEQ, Result, ValueKind};
use cache::Block;
use std::sync::Arc;

/// Read-ahead below this many bytes would cost more requests than it saves.
const READAHEAD_MIN: usize = 16 << 10;

/// The seek whose first block is loaded already, if there is one.
#[derive(Default)]
struct Prepared {
    /// Which way, and whether to `target`; `None`: no seek.
    seek: Option<(bool, bool)>,
    target: Vec<u8>,
}

impl Prepared {
    fn is(&self, place: Place<'_>) -> bool {
        let (forward, target) = (place.is_forward(), place.target());
        self.seek == Some((forward, target.is_some())) && target.is_none_or(|target| *target == *self.target)
    }

    fn note(&mut self, place: Place<'_>) {
        self.seek = Some((place.is_forward(), place.target().is_some()));
        self.target.clear();
        self.target.extend_from_slice(place.target().unwrap_or_default());
    }

    fn forget(&mut self) {
        self.seek = None;
    }
}

/// Which block is loaded.
#[derive(Clone, Copy)]
enum Load<'k> {
    /// That where a seek begins.
    At(Place<'k>),
    /// Of a row of the present partition; true: by a scan that goes backward.
    Row(usize, bool),
    /// The first of a partition, or the last for a scan that goes backward.
    Partition(usize, bool),
}

/// A cursor over the blocks of one stream.
pub(crate) struct StreamIter<C> {
    table: Arc<Ksst>,
    role: Role,
    caching: Caching,
    /// What was asked for; 0: as [`Beyond`] finds right.
    readahead: u64,
    beyond: Beyond,
    borders: Option<Arc<Borders>>,
    pub(crate) counters: ReadCounters,
    partition: Option<usize>,
    /// The partition asked for last, loaded or not; `None` when what the index says cannot be right.
    asked: Option<usize>,
    /// What the last move could not read, if it failed and the index tells.
    gap: Option<Gap>,
    index: Partition,
    row: usize,
    /// The block the cursor has loaded.
    loaded: Option<BlockHandle>,
    /// The block that was not in the cache when the seek to it had to stop for reads.
    awaited: Option<BlockHandle>,
    prepared: Prepared,
    cursor: C,
    window: Window,
    /// What the window held when a block was loaded last. (One that waits for a read holds nothing, and the same step begins again.)
    span: (u64, u64),
    /// Where somebody else does the reads: what the cursor waits for, and what it was given.
    waits: Option<Box<Waits>>,
    /// The run that it wanted before it comes to it.
    ahead: Option<Extent>,
}

impl<C: BlockCursor> StreamIter<C> {
    pub(crate) fn new(
        table: Arc<Ksst>,
        role: Role,
        options: IterOptions,
        borders: Option<Arc<Borders>>,
    ) -> Self {
        let caching = match options {
            IterOptions { fill_cache: true, readahead_bytes: 0 } => Caching::Fill,
            _ => Caching::Peek,
        };
        let readahead =
            if options.readahead_bytes == 0 { 0 } else { options.readahead_bytes.max(READAHEAD_MIN) };
        StreamIter {
            beyond: Beyond::of(&*table.file.file),
            table,
            role,
            caching,
            readahead: readahead as u64,
            ahead: None,
            waits: borders.as_deref().is_some_and(|borders| borders.wants).then(Box::default),
            borders,
            counters: ReadCounters::default(),
            partition: None,
            asked: None,
            gap: None,
            index: Partition::default(),
            row: 0,
            loaded: None,
            awaited: None,
            prepared: Prepared::default(),
            cursor: C::default(),
            window: Window::default(),
            span: (0, 0),
        }
    }

    fn stream(&self) -> &Stream {
        let stream = if self.role == Role::References { &self.table.references } else { &self.table.inline };
        stream.as_ref().expect("an iterator is made only over a stream that is there")
    }

    fn partitions(&self) -> usize {
        self.stream().partitions()
    }

    /// Loads a block, reading what that takes at once and counted, or waiting for it where somebody else does the reads.
    fn reading(&mut self, load: Load<'_>) -> Result<bool> {
        let Some(mut waits) = self.waits.take() else {
            let mut counters = self.counters;
            let done = self.load(load, &mut counters);
            self.counters = counters;
            return done;
        };
        let done = self.load(load, &mut waits.fetched);
        match &done {
            Ok(_) => {
                let is_before = |ahead: &Extent| self.loaded.is_none_or(|block| block.end() <= ahead.offset);
                self.ahead = self.ahead.filter(is_before);
                waits.loaded(self.ahead.as_ref());
            }
            Err(Stopped::Wanting) => self.want_behind(&mut waits),
            Err(Stopped::Failed(_)) => {}
        }
        self.waits = Some(waits);
        done.map_err(|stop| stop.into_error().unwrap_or_else(|_| Error::waiting()))
    }

    fn load<S: Source>(&mut self, load: Load<'_>, source: &mut S) -> Result<bool, S::Stop> {
        match load {
            Load::At(place) => return self.open_at(place, source),
            Load::Row(row, backward) => self.open_block(row, backward, source)?,
            Load::Partition(p, backward) => {
                self.open_partition(p, source)?;
                let row = if backward { self.index.shape.rows().saturating_sub(1) } else { 0 };
                self.open_block(row, backward, source)?;
            }
        }
        Ok(true)
    }

    /// The cursor waits for a run: a long scan wants the run behind it, too.
    fn want_behind(&mut self, waits: &mut Waits) {
        let (Some(borders), Some(_)) =
            (self.borders.as_deref().filter(|_| self.readahead == 0), self.awaited)
        else {
            return;
        };
        let run = self.beyond.run(&self.index, self.row, false, Some(borders));
        let mut beyond = self.beyond;
        beyond.grow();
        if let Some((start, end)) = beyond.behind(&self.index, self.row, run, false, borders)
            && start < end
            && end <= self.table.file.frames_end
        {
            let extent = Extent { file: self.table.file.number, offset: start, len: end - start };
            waits.fetched.want_ahead(&self.table.file.file, extent, self.role);
            self.ahead = Some(extent);
        }
    }

    /// Loads an index partition, if it is not the present one.
    fn open_partition<S: Source>(&mut self, p: usize, source: &mut S) -> Result<(), S::Stop> {
        if self.partition == Some(p) {
            return Ok(());
        }
        (self.partition, self.asked) = (None, Some(p));
        self.index = self.stream().partition_to_keep(&self.table.file, p, self.caching, source)?;
        self.partition = Some(p);
        Ok(())
    }

    /// Loads the data block of a row of the present partition, if the cursor does not have it.
    fn open_block<S: Source>(&mut self, row: usize, backward: bool, source: &mut S) -> Result<(), S::Stop> {
        let handle = self.index.handle(row);
        self.row = row;
        if self.loaded == Some(handle) {
            return Ok(());
        }
        self.loaded = None;
        let mut window = std::mem::take(&mut self.window);
        let reads = window.reads();
        let block = if self.readahead > 0 {
            let (stream, partition) = (self.stream(), self.partition.unwrap_or(0));
            let span = || stream.span(partition, handle, self.readahead, backward);
            window.block(&self.table.file, handle, self.role, source, span)
        } else {
            self.cached_or_run(&mut window, row, backward, source)
        };
        if window.reads() > reads {
            self.beyond.grow();
            self.begin_next(&mut window, row, backward);
        }
        self.window = window;
        if block.is_ok() {
            self.span = self.window.span();
        }
        self.awaited = block.as_ref().is_err_and(S::Stop::is_wait).then_some(handle);
        let table = &self.table;
        self.cursor.load(block?, table.global_seq).map_err(|e| table.file.locate(e, handle.offset))?;
        self.loaded = Some(handle);
        Ok(())
    }

    /// The data block of a row: from the cache, from the window, or from the device with some of its neighbours.
    fn cached_or_run<S: Source>(
        &self,
        window: &mut Window,
        row: usize,
        backward: bool,
        source: &mut S,
    ) -> Result<Block, S::Stop> {
        let (file, handle) = (&self.table.file, self.index.handle(row));
        // What stopped for a read has looked in the cache.
        if self.awaited != Some(handle)
            && let Some(block) = file.cached(handle, self.role, source.counters())
        {
            return Ok(block);
        }
        let has = |run: &Extent| {
            handle.offset >= run.offset && handle.end() <= run.offset + run.len && source.has(run)
        };
        let ahead = self.ahead.filter(has).map(|run| (run.offset, run.offset + run.len));
        let run =
            || ahead.unwrap_or_else(|| self.beyond.run(&self.index, row, backward, self.borders.as_deref()));
        let block = window.block(file, handle, self.role, source, run)?;
        if self.caching == Caching::Fill {
            file.fill(handle, self.role, &block);
        }
        Ok(block)
    }

    /// After a request: begins the next one, if the scan is long and may have reads in flight.
    fn begin_next(&self, window: &mut Window, row: usize, backward: bool) {
        let Some(borders) = self.borders.as_deref().filter(|_| self.readahead == 0) else { return };
        let Some(queues) = &borders.queues else { return };
        if let Some(run) = self.beyond.behind(&self.index, row, window.span(), backward, borders) {
            window.begin_next(&self.table.file, run, queues);
        }
    }

    /// Runs a movement of the cursor within its block; names the block in the error.
    #[inline(always)]
    fn within(&mut self, movement: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        match movement(&mut self.cursor) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.table.file.locate(e, self.loaded.map_or(0, |h| h.offset))),
        }
    }

    /// Refuses a step from the block at `before` to one that does not lie behind it. The blocks of a stream lie in the
    /// order of their keys; a damaged index that leads back would make a walk nearly endless.
    fn check_order(&mut self, before: Option<BlockHandle>, after: Option<BlockHandle>) -> Result<()> {
        match (before, after) {
            (Some(before), Some(after)) if before.end() > after.offset => {
                (self.partition, self.asked) = (None, None);
                let e = Error::corruption("an index that leads back to an earlier block");
                Err(self.table.file.locate(e, after.offset))
            }
            _ => Ok(()),
        }
    }

    /// Moves to the first entry after the present block.
    fn next_block(&mut self) -> Result<()> {
        while !self.cursor.valid() {
            let p = self.partition.unwrap_or(0);
            let go = if self.row + 1 < self.index.shape.rows() {
                Go::Row(self.row + 1)
            } else if p + 1 < self.partitions() {
                Go::Partition(p + 1)
            } else {
                return Ok(());
            };
            self.enter_block(self.loaded, go)?;
        }
        Ok(())
    }

    /// Moves to the first entry of a block behind the one that it left.
    fn enter_block(&mut self, left: Option<BlockHandle>, go: Go) -> Result<()> {
        let done = self.reading(match go {
            Go::Row(row) => Load::Row(row, false),
            Go::Partition(p) => Load::Partition(p, false),
        });
        if let (Some(waits), Err(_)) = (&mut self.waits, &done) {
            waits.stop(Await::Block { left, go });
        }
        done?;
        self.check_order(left, self.loaded)?;
        self.within(C::seek_to_first)
    }

    /// Moves to the last entry before the present block.
    fn prev_block(&mut self) -> Result<()> {
        while !self.cursor.valid() {
            let p = self.partition.unwrap_or(0);
            let left = self.loaded;
            if self.row > 0 {
                self.reading(Load::Row(self.row - 1, true))?;
            } else if p > 0 {
                self.reading(Load::Partition(p - 1, true))?;
            } else {
                return Ok(());
            }
            self.check_order(self.loaded, left)?;
            self.within(C::seek_to_last)?;
        }
        Ok(())
    }

    /// After an error nothing loaded is trusted.
    #[inline(always)]
    fn guard(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            self.fail(e);
        }
        result
    }

    #[cold]
    fn fail(&mut self, e: &Error) {
        self.gap = self.unread();
        if e.is_waiting() {
            // It goes on from here.
            self.cursor.clear();
            self.loaded = None;
        } else {
            self.reset();
        }
    }

    #[cold]
    pub(crate) fn reset(&mut self) {
        self.cursor.clear();
        (self.loaded, self.awaited) = (None, None);
        self.prepared.forget();
        (self.partition, self.asked) = (None, None);
        self.ahead = None;
        self.waits.iter_mut().for_each(|waits| waits.reset());
    }

    /// Goes on with a move that waits.
    pub(crate) fn resume(&mut self) -> Result<()> {
        let Some((at, sought)) = self.waits.as_mut().and_then(|waits| waits.take()) else { return Ok(()) };
        let done = self.go_on(at, sought.as_deref());
        let done = self.guard(done);
        if let (Some(waits), Some(sought)) = (&mut self.waits, sought) {
            self.gap.take_if(|gap| key::compare(&gap.last, &sought).is_lt());
            waits.keep(Some(sought).filter(|_| done.is_err()));
        }
        done
    }

    fn go_on(&mut self, at: Await, sought: Option<&[u8]>) -> Result<()> {
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

    /// What is to be read for it, and was read, where somebody else does the reads.
    pub(crate) fn fetched(&mut self) -> Option<&mut Fetched> {
        self.waits.as_mut().map(|waits| &mut waits.fetched)
    }

    /// Bytes it holds that somebody else has read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let (start, end) = self.window.span();
        self.waits.as_ref().map_or(0, |waits| waits.fetched.held_bytes() + (end - start))
    }

    /// What its reads have cost.
    pub(crate) fn cost(&self) -> ReadCounters {
        let mut sum = self.counters;
        self.waits.iter().for_each(|waits| sum.add(waits.fetched.cost()));
        sum
    }

    /// What the move that failed could not read; `None`: nobody knows.
    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        self.gap.take()
    }

    /// The entries that the block or the index partition where a move failed may have: those between the separators
    /// around it. All versions of a user key count where a separator is inside of them. Without a separator before it, from
    /// the smallest key there can be.
    #[cold]
    fn unread(&self) -> Option<Gap> {
        let p = self.asked?;
        let stream = self.stream();
        // The rows of the partition, if it is the block that failed.
        let rows = self.partition.map(|_| self.index.shape.rows());
        let mut user_key = Vec::new();
        let before = match rows {
            Some(_) if self.row > 0 => {
                Some(self.index.shape.separator(&self.index.block, self.row - 1, &mut user_key))
            }
            _ if p > 0 => Some(stream.separator(p - 1, &mut user_key)),
            _ => None,
        };
        // Whether a separator inside of a user key is before others cannot be told where its sequences are replaced.
        if self.table.global_seq.is_some() && before.is_some_and(|trailer| trailer != 0) {
            return None;
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        match before {
            Some(0) => encode_into(&mut first, &user_key, 0, ValueKind::Deletion),
            _ => encode_into(&mut first, &user_key, MAX_SEQ, ValueKind::Seek),
        }
        // The separator of a partition is that of its last row.
        match rows {
            Some(rows) if self.row + 1 < rows => {
                self.index.shape.separator(&self.index.block, self.row, &mut user_key)
            }
            _ => stream.separator(p, &mut user_key),
        };
        encode_into(&mut last, &user_key, 0, ValueKind::Deletion);
        key::compare(&first, &last).is_lt().then_some(Gap { first, last })
    }

    fn first(&mut self) -> Result<()> {
        self.begin(Place::First)?;
        self.within(C::seek_to_first)?;
        self.next_block()
    }

    fn last(&mut self) -> Result<()> {
        self.begin(Place::Last)?;
        self.within(C::seek_to_last)?;
        self.prev_block()
    }

    /// Loads the block where a seek begins, as far as that takes no read; what it lacks is wanted of `fetched`, and the same call
    /// goes on once it was handed over. What fails here the seek tells: it goes the same way itself.
    pub(crate) fn prepare(&mut self, place: Place<'_>, fetched: &mut Fetched) {
        if self.prepared.is(place) {
            return;
        }
        match self.open_at(place, fetched) {
            Ok(true) => self.prepared.note(place),
            Ok(false) if !place.is_forward() => self.prepare(Place::Last, fetched),
            Ok(false) | Err(_) => {}
        }
    }

    /// The first step of a seek: loads the block where it begins, unless that was prepared. False if all blocks end before it.
    fn begin(&mut self, place: Place<'_>) -> Result<bool> {
        if self.prepared.is(place) {
            self.prepared.forget();
            return Ok(true);
        }
        let done = self.reading(Load::At(place));
        if let (Some(waits), Err(_)) = (&mut self.waits, &done) {
            waits.stop(Await::Seek);
        }
        done
    }

    /// Loads the block where a seek begins; false if all blocks end before it.
    fn open_at<S: Source>(&mut self, place: Place<'_>, source: &mut S) -> Result<bool, S::Stop> {
        let sought = self.sought(place);
        let p = match sought {
            Some((user_key, trailer)) => self.stream().search(user_key, trailer),
            None if place.is_forward() => 0,
            None => self.partitions().saturating_sub(1),
        };
        if p >= self.partitions() {
            return Ok(false);
        }
        self.prepared.forget();
        self.open_partition(p, source)?;
        let last = self.index.shape.rows().saturating_sub(1);
        let row = match sought {
            // The separator of the partition is that of its last row; a damaged index may disagree.
            Some((user_key, trailer)) => {
                self.index.shape.search(&self.index.block, user_key, trailer).min(last)
            }
            None if place.is_forward() => 0,
            None => last,
        };
        if !self.goes_on(self.index.handle(row)) {
            self.beyond = Beyond::of(&*self.table.file.file);
        }
        self.open_block(row, !place.is_forward(), source)?;
        Ok(true)
    }

    /// True if a seek to this block leads to where the scan before it was going: what joins keys with a stream seeks whenever the next key is
    /// not near, and passes all of the stream.
    fn goes_on(&self, block: BlockHandle) -> bool {
        let (start, end) = self.span;
        start < end && block.offset >= start && block.offset <= end.saturating_add(BEYOND_MIN)
    }

    /// What the index is asked for: with a global sequence the stored trailers say nothing, so that a seek begins before all entries of
    /// the user key, or behind them.
    fn sought<'k>(&self, place: Place<'k>) -> Option<(&'k [u8], u64)> {
        let (user_key, trailer) = place.target().map(key::split)?;
        let trailer = match self.table.global_seq {
            None => trailer,
            Some(_) if place.is_forward() => u64::MAX,
            Some(_) => 0,
        };
        Some((user_key, trailer))
    }

    fn forward_to(&mut self, target: &[u8]) -> Result<()> {
        if !self.begin(Place::From(target))? {
            self.cursor.clear();
            self.loaded = None;
            return Ok(());
        }
        self.within(|c| c.seek(target))?;
        self.next_block()?;
        self.reach(target)
    }

    fn reach(&mut self, target: &[u8]) -> Result<()> {
        while self.cursor.valid() && key::compare(self.cursor.key(), target).is_lt() {
            self.forward()?;
        }
        Ok(())
    }

    fn backward_to(&mut self, target: &[u8]) -> Result<()> {
        if !self.begin(Place::UpTo(target))? {
            return self.last();
        }
        self.within(|c| c.seek_for_prev(target))?;
        self.prev_block()?;
        while self.cursor.valid() && key::compare(self.cursor.key(), target).is_gt() {
            self.backward()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn forward(&mut self) -> Result<()> {
        self.within(C::next)?;
        if self.cursor.valid() { Ok(()) } else { self.next_block() }
    }

    fn backward(&mut self) -> Result<()> {
        self.within(C::prev)?;
        if self.cursor.valid() { Ok(()) } else { self.prev_block() }
    }

    pub(crate) fn valid(&self) -> bool {
        self.cursor.valid()
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.waits.iter_mut().for_each(|waits| waits.begin(None));
        let done = self.first();
        self.guard(done)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        let done = self.last();
        self.guard(done)
    }

    pub(crate) fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.waits.iter_mut().for_each(|waits| waits.begin(Some(target)));
        let done = self.forward_to(target);
        let done = self.guard(done);
        if let Some(waits) = self.waits.as_mut().filter(|_| done.is_ok()) {
            waits.begin(None);
        }
        // Separators that disagree may say that it ends before the key that was sought: then nobody knows where it ends.
        self.gap.take_if(|gap| key::compare(&gap.last, target).is_lt());
        done
    }

    pub(crate) fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let done = self.backward_to(target);
        let done = self.guard(done);
        self.gap.take_if(|gap| key::compare(&gap.first, target).is_gt());
        done
    }

    /// One entry on, or back.
    #[inline]
    pub(crate) fn step(&mut self, forward: bool) -> Result<()> {
        if forward { self.next() } else { self.prev() }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        let done = self.forward();
        self.guard(done)
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        let done = self.backward();
        self.guard(done)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    pub(crate) fn expiry(&self) -> u64 {
        self.cursor.expiry()
    }
}
