//! Syncs, and the writes of the holder of the token.
//!
//! A sync whose pages are new, in one group, and fit one write, writes them without the token and
//! beside other rounds (`commit::rounds_in_flight`). All other work holds the token alone.

use super::{Position, WalOptions};
use crate::commit::{Commit, Token, Took, Turn};
use crate::counters::{Counters, Times, add};
use crate::groups::Segment;
use crate::page::{self, Owner};
use crate::tail::{ClosedPage, Surroundings, Tail};
use base::completion::Completer;
use base::sync::{Mutex, lock, rank};
use base::{Error, Result, Uid};
use io::{AlignedBuf, Clock, Env, PAGE};
use std::sync::Arc;

/// Time after a durable write with a waiter in which more are expected.
const ASKED_NS: u64 = 10_000_000_000;

/// Makes the pages of a log durable.
#[derive(Debug)]
pub struct Syncer {
    /// Tail of the log: open pages, the buffer of closed ones, and their groups.
    tail: Arc<Mutex<Tail, rank::LogTail>>,
    commit: Arc<Commit>,
    /// Free buffers for writes to the device.
    bufs: Mutex<Vec<AlignedBuf>, rank::LogBuffer>,
    store: Uid,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    times: Arc<Times>,
    /// Bytes for which one page number stands.
    unit: u64,
    /// Largest write to the device, bytes.
    write_len_max: usize,
    /// Shortest write whose time measures the rate of the device, bytes.
    measured_len_min: usize,
    /// Pages stay in the tail buffer as long as allowed.
    keeps_pages: bool,
}

impl Syncer {
    pub(super) fn new(
        options: &WalOptions,
        store: Uid,
        env: &Env,
        tail: &Arc<Mutex<Tail, rank::LogTail>>,
        commit: &Arc<Commit>,
        counters: &Arc<Counters>,
        times: &Arc<Times>,
    ) -> Self {
        Syncer {
            tail: Arc::clone(tail),
            commit: Arc::clone(commit),
            bufs: Mutex::new(Vec::new()),
            store,
            clock: env.clock.clone(),
            counters: Arc::clone(counters),
            times: Arc::clone(times),
            unit: options.lane.unit() as u64,
            write_len_max: options.write_len_max,
            // Where few pages may be kept, they are written in halves of a worthwhile write.
            measured_len_min: options.write_len_min / 2,
            keeps_pages: options.keeps_pages(),
        }
    }

    /// Returns when every page up to `position` is durable. Only then may the batch, and all
    /// batches before it, be acknowledged as durable.
    ///
    /// # Errors
    /// The original error for the caller that met the first failure, `Poisoned` for all others, and
    /// for every caller once the domain failed. The contents of the device are then unknown until a
    /// restart.
    pub fn sync(&self, position: Position) -> Result<()> {
        loop {
            match self.commit.lead_or_wait(position.lpn)? {
                Turn::Durable => return self.commit.acknowledge(),
                Turn::Lead(token) => {
                    self.expects_more();
                    self.lead(token, position)?;
                }
            }
            // The pages are durable once all earlier ones are, which may be in flight.
        }
    }

    /// Resolves `completer` when [`Syncer::sync`] of this position would return, without blocking a
    /// thread. Some thread has to call [`Syncer::sync_wanted`]. Returns true if no completer waited
    /// before, so that thread may be asleep.
    pub fn when_durable(&self, position: Position, completer: Completer<()>) -> bool {
        self.counters.waits_for_durable();
        self.commit.when_durable(position.lpn, completer)
    }

    /// Refuses all asynchronous waiters whose page is not durable: no thread will sync any more.
    pub fn refuse_wanted(&self, why: &Error) {
        self.commit.refuse_wanted(why);
    }

    /// Returns true if a completer waits for a durable write.
    pub fn is_wanted(&self) -> bool {
        self.commit.last_wanted().is_some()
    }

    /// Makes the log durable up to the last write that a completer waits for.
    ///
    /// # Errors
    /// As [`Syncer::sync`].
    pub fn sync_wanted(&self) -> Result<()> {
        self.commit.last_wanted().map_or(Ok(()), |lpn| self.sync(Position { lpn }))
    }

    /// Returns true if every page up to `position` is already durable.
    pub fn is_durable(&self, position: Position) -> bool {
        position.lpn < self.commit.frontier.durable_end()
    }

    /// Records a waiter for a durable write, so that more are expected.
    fn expects_more(&self) {
        if self.keeps_pages {
            self.counters.asks_until(self.clock.now_ns().saturating_add(ASKED_NS));
        }
    }

    /// Writes all unwritten pages durably: beside other rounds where one write suffices.
    fn lead(&self, token: Token<'_>, position: Position) -> Result<()> {
        let end = self.take_all(&token);
        assert!(position.lpn < end, "sync of page {}, which was never appended", position.lpn);
        match self.fresh(&token, end) {
            Some(segment) => self.write_beside(token, &segment),
            None => {
                let mut token = token.wait_for_in_flight()?;
                let (outcome, took) = self.timed(|| self.make_durable(&token, end));
                token.took(took);
                token.finish(outcome)
            }
        }
    }

    /// Returns the pages to write, if all of them are new, in one group, and fit one write.
    fn fresh(&self, token: &Token<'_>, end: u64) -> Option<Segment> {
        let start = token.taken_end();
        // In this order: the end of a round in flight moves both.
        let written_end = self.commit.frontier.written_end();
        let durable_end = self.commit.frontier.durable_end();
        let mut segments = lock(&self.tail).groups.segments(durable_end, end);
        // Pages in flight will be durable. Pages written before and not synced need more than this
        // write.
        let unsynced = segments.first().is_some_and(|first| first.start < written_end);
        let segment = segments.pop().filter(|last| last.start <= start && start < last.end)?;
        let segment = Segment { start, ..segment };
        let fits = (end - start) * self.unit <= self.write_len_max as u64;
        (fits && !unsynced).then_some(segment)
    }

    /// Writes a segment durably, without the token.
    fn write_beside(&self, token: Token<'_>, segment: &Segment) -> Result<()> {
        let mut buf = self.take_buf();
        self.fill(&mut buf, segment, segment.start, self.write_len_max);
        let flight = token.release_token_for_write(segment.end, buf.len() as u64 / PAGE as u64);
        add(&self.counters.concurrent_durable_writes, u64::from(flight.is_beside()));
        let (outcome, took) = self.timed(|| self.write_durable(segment, &buf, segment.start));
        self.give_buf(buf);
        flight.complete(outcome, took)
    }

    /// Runs a sync, and measures its duration.
    fn timed(&self, sync: impl FnOnce() -> Result<()>) -> (Result<()>, Took) {
        let begun_ns = self.clock.now_ns();
        let outcome = sync();
        let until_ns = self.clock.now_ns();
        let took = Took { ns: until_ns.saturating_sub(begun_ns), until_ns };
        self.times.sync.record_ns(took.ns);
        add(&self.counters.durable_ns, took.ns);
        (outcome, took)
    }

    /// Writes the buffer durably at the offset of page `start` in the group.
    fn write_durable(&self, segment: &Segment, buf: &AlignedBuf, start: u64) -> Result<()> {
        add(&self.counters.durable_writes, 1);
        let offset = self.offset_of(segment, start);
        segment.file.write_durable(buf, offset)
    }

    fn take_buf(&self) -> AlignedBuf {
        lock(&self.bufs).pop().unwrap_or_else(|| AlignedBuf::zeroed(PAGE))
    }

    fn give_buf(&self, buf: AlignedBuf) {
        lock(&self.bufs).push(buf);
    }

    /// Closes the open page and returns the end of all pages.
    pub(super) fn take_all(&self, token: &Token<'_>) -> u64 {
        let end = {
            let mut tail = lock(&self.tail);
            tail.close_page();
            tail.pages.next_lpn()
        };
        token.covers(end);
        end
    }

    /// Makes all pages below `end` durable: those not written yet by one durable write where they
    /// fit one, else by plain writes and a data sync, which pages written earlier need in any case.
    pub(super) fn make_durable(&self, token: &Token<'_>, end: u64) -> Result<()> {
        let frontier = &self.commit.frontier;
        let segments = lock(&self.tail).groups.segments(frontier.durable_end(), end);
        for segment in segments {
            let start = segment.start.max(frontier.written_end().min(segment.end));
            let fresh_len = (segment.end - start) * self.unit;
            let unsynced = segment.start < start;
            if unsynced || fresh_len > self.write_len_max as u64 {
                self.write_segment(token, &segment, start)?;
                add(&self.counters.syncs, 1);
                segment.file.sync_data()?;
            } else {
                let mut buf = self.take_buf();
                self.fill(&mut buf, &segment, start, fresh_len as usize);
                self.write_durable(&segment, &buf, start)?;
                self.give_buf(buf);
                token.written(segment.end);
            }
            token.durable(segment.end);
        }
        Ok(())
    }

    /// As `make_durable`, without a waiter. No other thread writes meanwhile.
    pub(super) fn make_durable_unasked(&self, token: &Token<'_>, end: u64) -> Result<()> {
        let count = || self.counters.read().durable_writes;
        let before = count();
        let outcome = self.make_durable(token, end);
        add(&self.counters.durable_writes_without_waiter, count() - before);
        outcome
    }

    /// Writes all closed pages below `end`, without making them durable.
    pub(super) fn write_pages(&self, token: &Token<'_>, end: u64) -> Result<()> {
        let segments = lock(&self.tail).groups.segments(self.commit.frontier.written_end(), end);
        segments.iter().try_for_each(|segment| self.write_segment(token, segment, segment.start))
    }

    /// Writes the pages of a segment from `start`, in large runs; their slots are then free.
    fn write_segment(&self, token: &Token<'_>, segment: &Segment, mut start: u64) -> Result<()> {
        let mut buf = self.take_buf();
        while start < segment.end {
            let end = self.fill(&mut buf, segment, start, self.write_len_max);
            add(&self.counters.writes, 1);
            self.measured(buf.len(), || segment.file.write_at(&buf, self.offset_of(segment, start)))?;
            start = end;
            token.written(start);
        }
        self.give_buf(buf);
        Ok(())
    }

    /// Runs a write of `len` bytes, and measures the rate of the device if the write is long.
    fn measured(&self, len: usize, write: impl FnOnce() -> Result<()>) -> Result<()> {
        if len < self.measured_len_min {
            return write();
        }
        let begun_ns = self.clock.now_ns();
        write()?;
        self.counters.rate.took(len as u64, self.clock.now_ns().saturating_sub(begun_ns));
        Ok(())
    }

    /// Fills the buffer with pages of a segment from `start` on, in their closed form, up to
    /// `len_max` bytes. Returns the number after the last.
    fn fill(&self, buf: &mut AlignedBuf, segment: &Segment, start: u64, len_max: usize) -> u64 {
        let owner = Owner { store: self.store, group: Some(segment.group) };
        let page = |page: &ClosedPage| (page.lpn, page.len, Arc::clone(&page.bytes));
        let pages: Vec<_> = lock(&self.tail).pages.run(start, segment.end, len_max).map(page).collect();
        let len = pages.iter().map(|(_, len, _)| len).sum();
        buf.resize(len);
        let durable_end = self.commit.frontier.durable_end();
        let mut rest = buf.as_mut_slice();
        for (lpn, len, bytes) in pages {
            let (out, behind) = rest.split_at_mut(len);
            out[..bytes.len()].copy_from_slice(&bytes);
            page::close(out, bytes.len() as u16, durable_end, owner, lpn);
            rest = behind;
        }
        add(&self.counters.written_bytes, len as u64);
        start + len as u64 / self.unit
    }

    /// Returns the offset of a page in the file of its group.
    fn offset_of(&self, segment: &Segment, lpn: u64) -> u64 {
        (lpn - segment.first_lpn) * self.unit
    }

    /// Writes a page without batches, which confirms all pages before it. Returns false if there is
    /// nothing to confirm.
    pub(super) fn write_watermark(&self, token: &Token<'_>) -> Result<bool> {
        let frontier = &self.commit.frontier;
        let watermark = frontier.durable_end();
        let mut buf = self.take_buf();
        let (lpn, end, data_end, segments) = {
            let mut tail = lock(&self.tail);
            if tail.data_end() == tail.confirmed_end && !tail.groups.release_waits(watermark) {
                return Ok(false);
            }
            let data_end = tail.data_end();
            let around = Surroundings { durable_end: watermark, witness_edit: 0 };
            let (lpn, end) = tail.watermark_page(around, &mut buf);
            (lpn, end, data_end, tail.groups.segments(lpn, end))
        };
        for segment in segments {
            let offset = self.offset_of(&segment, lpn);
            assert!(offset + buf.len() as u64 <= segment.file.len(), "room was kept for it");
            add(&self.counters.durable_writes, 1);
            add(&self.counters.written_bytes, buf.len() as u64);
            segment.file.write_durable(&buf, offset)?;
        }
        self.give_buf(buf);
        token.written(end);
        token.durable(end);
        lock(&self.tail).confirmed_end = data_end;
        Ok(true)
    }
}
