//! A cursor over one stream: top index, index partition, data block.

use crate::cursor::BlockCursor;
use crate::file::{Caching, Role, Window};
use crate::frame::BlockHandle;
use crate::options::{IterOptions, ReadCounters};
use crate::readahead::{Beyond, Borders};
use crate::reader::Ksst;
use crate::stream::{Partition, Stream};
use base::key::{self, encode_into};
use base::{Error, Gap, MAX_SEQ, Result, ValueKind};
use cache::Block;
use std::sync::Arc;

/// Read-ahead below this many bytes would cost more requests than it saves.
const READAHEAD_MIN: usize = 16 << 10;

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
    cursor: C,
    window: Window,
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
            table,
            role,
            caching,
            readahead: readahead as u64,
            beyond: Beyond::default(),
            borders,
            counters: ReadCounters::default(),
            partition: None,
            asked: None,
            gap: None,
            index: Partition::default(),
            row: 0,
            loaded: None,
            cursor: C::default(),
            window: Window::default(),
        }
    }

    fn stream(&self) -> &Stream {
        let stream = if self.role == Role::References { &self.table.references } else { &self.table.inline };
        stream.as_ref().expect("an iterator is made only over a stream that is there")
    }

    fn partitions(&self) -> usize {
        self.stream().partitions()
    }

    /// Loads an index partition, if it is not the present one.
    fn open_partition(&mut self, p: usize) -> Result<()> {
        if self.partition == Some(p) {
            return Ok(());
        }
        (self.partition, self.asked) = (None, Some(p));
        let mut counters = self.counters;
        let index = self.stream().partition(&self.table.file, p, self.caching, &mut counters);
        self.counters = counters;
        self.index = index?;
        self.partition = Some(p);
        Ok(())
    }

    /// Loads the data block of a row of the present partition, if the cursor does not have it.
    fn open_block(&mut self, row: usize, backward: bool) -> Result<()> {
        let handle = self.index.handle(row);
        self.row = row;
        if self.loaded == Some(handle) {
            return Ok(());
        }
        self.loaded = None;
        let mut window = std::mem::take(&mut self.window);
        let mut counters = self.counters;
        let block = if self.readahead > 0 {
            let (stream, partition) = (self.stream(), self.partition.unwrap_or(0));
            let span = || stream.span(partition, handle, self.readahead, backward);
            window.block(&self.table.file, handle, self.role, &mut counters, span)
        } else {
            self.cached_or_run(&mut window, row, backward, &mut counters)
        };
        if counters.device_reads > self.counters.device_reads {
            self.beyond.grow();
            self.begin_next(&mut window, row, backward);
        }
        (self.window, self.counters) = (window, counters);
        let table = &self.table;
        self.cursor.load(block?, table.global_seq).map_err(|e| table.file.locate(e, handle.offset))?;
        self.loaded = Some(handle);
        Ok(())
    }

    /// The data block of a row: from the cache, from the window, or from the device with some of its neighbours.
    fn cached_or_run(
        &self,
        window: &mut Window,
        row: usize,
        backward: bool,
        counters: &mut ReadCounters,
    ) -> Result<Block> {
        let (file, handle) = (&self.table.file, self.index.handle(row));
        if let Some(block) = file.cached(handle, self.role, counters) {
            return Ok(block);
        }
        let run = || self.beyond.run(&self.index, row, backward, self.borders.as_deref());
        let block = window.block(file, handle, self.role, counters, run)?;
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
            let left = self.loaded;
            if self.row + 1 < self.index.shape.rows() {
                self.open_block(self.row + 1, false)?;
            } else if p + 1 < self.partitions() {
                self.open_partition(p + 1)?;
                self.open_block(0, false)?;
            } else {
                return Ok(());
            }
            self.check_order(left, self.loaded)?;
            self.within(C::seek_to_first)?;
        }
        Ok(())
    }

    /// Moves to the last entry before the present block.
    fn prev_block(&mut self) -> Result<()> {
        while !self.cursor.valid() {
            let p = self.partition.unwrap_or(0);
            let left = self.loaded;
            if self.row > 0 {
                self.open_block(self.row - 1, true)?;
            } else if p > 0 {
                self.open_partition(p - 1)?;
                self.open_block(self.index.shape.rows().saturating_sub(1), true)?;
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
        if result.is_err() {
            self.gap = self.unread();
            self.reset();
        }
        result
    }

    #[cold]
    pub(crate) fn reset(&mut self) {
        self.cursor.clear();
        self.loaded = None;
        (self.partition, self.asked) = (None, None);
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
        self.beyond = Beyond::default();
        self.open_partition(0)?;
        self.open_block(0, false)?;
        self.within(C::seek_to_first)?;
        self.next_block()
    }

    fn last(&mut self) -> Result<()> {
        self.beyond = Beyond::default();
        self.open_partition(self.partitions().saturating_sub(1))?;
        self.open_block(self.index.shape.rows().saturating_sub(1), true)?;
        self.within(C::seek_to_last)?;
        self.prev_block()
    }

    /// Loads the block for an internal key; false if all blocks end before it.
    fn open_at(&mut self, user_key: &[u8], trailer: u64, backward: bool) -> Result<bool> {
        self.beyond = Beyond::default();
        let p = self.stream().search(user_key, trailer);
        if p >= self.partitions() {
            return Ok(false);
        }
        self.open_partition(p)?;
        let row = self.index.shape.search(&self.index.block, user_key, trailer);
        // The separator of the partition is that of its last row; a damaged index may disagree.
        self.open_block(row.min(self.index.shape.rows().saturating_sub(1)), backward)?;
        Ok(true)
    }

    fn forward_to(&mut self, target: &[u8]) -> Result<()> {
        let (user_key, trailer) = key::split(target);
        // With a global sequence the stored trailers say nothing: begin before all entries of the user key.
        let trailer = if self.table.global_seq.is_some() { u64::MAX } else { trailer };
        if !self.open_at(user_key, trailer, false)? {
            self.cursor.clear();
            self.loaded = None;
            return Ok(());
        }
        self.within(|c| c.seek(target))?;
        self.next_block()?;
        while self.cursor.valid() && key::compare(self.cursor.key(), target).is_lt() {
            self.forward()?;
        }
        Ok(())
    }

    fn backward_to(&mut self, target: &[u8]) -> Result<()> {
        let (user_key, trailer) = key::split(target);
        let trailer = if self.table.global_seq.is_some() { 0 } else { trailer };
        if !self.open_at(user_key, trailer, true)? {
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
        let done = self.first();
        self.guard(done)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        let done = self.last();
        self.guard(done)
    }

    pub(crate) fn seek(&mut self, target: &[u8]) -> Result<()> {
        let done = self.forward_to(target);
        let done = self.guard(done);
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
