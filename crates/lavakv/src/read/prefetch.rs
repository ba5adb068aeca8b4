//! Batched reads of separated values for scans.
//!
//! The entries of a scan are adjacent; the values behind their references are spread over as many
//! files as there were flushes. Read one by one, each costs the full latency of an otherwise idle
//! device. So an iterator whose values are read one after another looks ahead. It moves the
//! underlying view by a window of entries and keeps their keys and references in a
//! [`PrefetchQueue`]. The first value read in the window is fetched together with all that follow
//! in it ([`batch`]).
//!
//! The window begins with [`WINDOW_MIN`] entries and doubles up to [`WINDOW_MAX`], so that a scan
//! that stops early has wasted about as much as it has used. It never holds more than [`BYTES_MAX`]
//! of values ([`BYTES_LIMIT`] if the device needs as much in flight to be busy). It is reset by
//! every seek and change of direction, and given up if fewer than half of its values are used. So a
//! scan that uses few values pays for those only. If the caller states the number of entries
//! ([`Reach::expected`]), exactly these are looked up by the seek and read with the first value.
//! Entries with inline values pass through the window unchanged.
//!
//! A long scan reads the next window while it consumes the current one ([`ahead`]). In the middle
//! of a window, once windows have reached [`AHEAD_MIN`] entries, the next one is filled and the
//! reads of its values begin. The scan waits for them when it arrives there. With windows of full
//! length it first starts the window after that, so that the device always has work. There are at
//! most two windows, and at most as many values are wasted as were used.
//!
//! Looking ahead only makes values available earlier. Errors are reported at their entry. An error
//! of reading keys is reported when the scan arrives there, an error of reading a value when that
//! value is used, after a second read of it alone. A value enters the cache on its first use, not
//! when it was read ahead: unused values evict nothing.
//!
//! Invariant: while the queue is empty, the underlying view is at the current entry. Otherwise the
//! front of the queue is the current entry, and the next window follows its back. The view is then
//! after both in the direction of the scan, or has no position if the data ended there.

mod ahead;
pub(crate) mod batch;
mod queue;

use crate::read::options::ReadOptions;
use base::{InternalIterator, Result, SeqNo, ValueKind};
use cache::{BlockSlice, CacheKey};
use io::ReadCosts;
use lsm::{MergingIterator, VisibleIterator};
use queue::PrefetchQueue;
use std::cell::OnceCell;
use std::sync::Arc;

/// Entries of the first window.
const WINDOW_MIN: usize = 4;
/// Entries of the longest window. The longer a window, the more of its values are adjacent in their
/// files. With values of 1 KiB in 22 files, windows of 256 read a third more entries per second
/// than windows of 64.
pub(crate) const WINDOW_MAX: usize = 256;
/// Bytes of values in a window. There are at most two windows.
pub(crate) const BYTES_MAX: u64 = 1 << 20;
/// The same where the device transfers more than [`BYTES_MAX`] during one read latency.
const BYTES_LIMIT: u64 = 2 << 20;
/// Window length from which the next window is read during the current one. Shorter scans would
/// gain less than a read queue costs to create.
const AHEAD_MIN: usize = 128;
/// Separated values used in a row before the scan looks ahead. A seek counts as one: most scans use
/// values.
const STREAK_MIN: u32 = 2;

/// An entry of the view: its value, or the reference to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewEntry<'a> {
    pub user_key: &'a [u8],
    pub seq: SeqNo,
    pub kind: ValueKind,
    pub value: &'a [u8],
}

impl ViewEntry<'_> {
    /// True if its value is separated.
    fn is_separated(&self) -> bool {
        matches!(self.kind, ValueKind::Reference | ValueKind::PlacedReference)
    }
}

/// A separated value that was read ahead.
#[derive(Debug)]
pub(crate) struct PrefetchedValue {
    pub value: BlockSlice,
    /// Its cache key for the first use; `None`: it came from the cache, or must not enter it.
    pub keep_at: Option<CacheKey>,
}

/// Receives found values, each with the index of its entry.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, PrefetchedValue);

/// Source of separated values.
pub(crate) trait FetchValues: Send + Sync {
    /// Reads the value of one entry.
    fn read(&self, entry: &ViewEntry<'_>) -> Result<BlockSlice>;

    /// Reads the values of many entries, and passes each with the index of its entry. Unreadable
    /// values are left out: a read of one alone reports the reason.
    fn read_many(&self, entries: &[ViewEntry<'_>], put: Put<'_>);

    /// Returns a reader that works in the background; `None`: as many as allowed are running.
    fn ahead(self: Arc<Self>) -> Option<Box<dyn ReadAhead>>;

    /// Lets a value that was read ahead enter the cache, since it was used.
    fn keep(&self, at: CacheKey, value: &BlockSlice);
}

/// Background reads of the values of windows. Dropping it waits for them.
pub(crate) trait ReadAhead: Send {
    /// Starts the reads of the values of `entries`.
    fn begin(&mut self, entries: &[ViewEntry<'_>]);

    /// Waits for the oldest started reads, which had the same `entries`, and passes their values
    /// like [`FetchValues::read_many`].
    fn finish(&mut self, entries: &[ViewEntry<'_>], put: Put<'_>);

    /// Abandons all started reads.
    fn give_up(&mut self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Distance to look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Entries of the first window; 0: no look-ahead.
    pub first: usize,
    /// Bytes of values in a window.
    pub bytes_max: u64,
    /// Number of entries read after a seek; 0: unknown.
    pub expected: usize,
}

impl Reach {
    /// Derives the distance from [`crate::ReadOptions::readahead_bytes`] and
    /// [`crate::ReadOptions::expected_entries`]. A stated length applies to the first window. With
    /// `keys_only` no values are expected. Windows are up to twice as long if the device needs more
    /// bytes in flight to be busy.
    pub fn of(options: &ReadOptions, costs: ReadCosts) -> Self {
        let expected = if options.keys_only { 0 } else { options.expected_entries };
        match options.readahead_bytes as u64 {
            0 => {
                let bytes_max = costs.window_bytes.unwrap_or(0).clamp(BYTES_MAX, BYTES_LIMIT);
                Reach { first: WINDOW_MIN, bytes_max, expected }
            }
            bytes => Reach { first: WINDOW_MAX, bytes_max: bytes.min(BYTES_MAX), expected },
        }
    }
}

/// A view whose separated values are fetched on demand, in batches for scans: see the module.
pub(crate) struct Prefetch<I = MergingIterator> {
    inner: VisibleIterator<I>,
    values: Arc<dyn FetchValues>,
    reach: Reach,
    queue: PrefetchQueue,
    /// The next window, whose values are being read.
    next: PrefetchQueue,
    /// Reads the values of the next window. Created with the first such window.
    ahead: Option<Box<dyn ReadAhead>>,
    /// The separated value of the position, while the queue is empty.
    fetched: OnceCell<BlockSlice>,
    direction: Direction,
    streak: u32,
    window: usize,
    /// Expected entries that were not looked up yet; `None`: unknown.
    expected: Option<usize>,
}

impl<I: InternalIterator> Prefetch<I> {
    pub fn new(inner: VisibleIterator<I>, values: Arc<dyn FetchValues>, reach: Reach) -> Self {
        Prefetch {
            inner,
            values,
            reach,
            queue: PrefetchQueue::default(),
            next: PrefetchQueue::default(),
            ahead: None,
            fetched: OnceCell::new(),
            direction: Direction::Forward,
            streak: 0,
            window: reach.first,
            expected: None,
        }
    }

    pub fn valid(&self) -> bool {
        !self.queue.is_empty() || self.inner.valid()
    }

    /// Returns the user key. Must be valid.
    pub fn key(&self) -> &[u8] {
        self.queue.front().map_or_else(|| self.inner.key(), |entry| entry.user_key)
    }

    /// Returns the value. Must be valid.
    pub fn value(&self) -> Result<&[u8]> {
        if !self.queue.is_empty() {
            return self.queued_value();
        }
        if !self.inner_entry().is_separated() {
            return Ok(self.inner.value());
        }
        if let Some(value) = self.fetched.get() {
            return Ok(value);
        }
        let value = self.values.read(&self.inner_entry())?;
        Ok(self.fetched.get_or_init(|| value))
    }

    fn inner_entry(&self) -> ViewEntry<'_> {
        let inner = &self.inner;
        ViewEntry { user_key: inner.key(), seq: inner.seq(), kind: inner.value_kind(), value: inner.value() }
    }

    fn queued_value(&self) -> Result<&[u8]> {
        let front = self.queue.front().expect("the caller looked");
        if !front.is_separated() {
            return Ok(front.value);
        }
        if self.queue.ask() {
            let (entries, numbers) = self.queue.unread();
            if entries.len() > 1 {
                self.values.read_many(&entries, &mut |nth, found| self.queue.put(numbers[nth], found));
            }
        }
        match self.queue.value() {
            Some((value, keep_at)) => {
                if let Some(at) = keep_at {
                    self.values.keep(at, value);
                }
                Ok(value)
            }
            None => {
                let value = self.values.read(&front)?;
                Ok(self.queue.put_front(value))
            }
        }
    }

    /// Returns the number of entries passed without being returned.
    pub fn hidden_entries(&self) -> u64 {
        self.inner.hidden_entries()
    }

    /// Moves to the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_by(Direction::Forward, VisibleIterator::seek_to_first)
    }

    /// Moves to the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_by(Direction::Backward, VisibleIterator::seek_to_last)
    }

    /// Moves to the first visible key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        self.seek_by(Direction::Forward, |inner| inner.seek(user_key))
    }

    /// Moves to the last visible key at or before `user_key`.
    pub fn seek_for_prev(&mut self, user_key: &[u8]) -> Result<()> {
        self.seek_by(Direction::Backward, |inner| inner.seek_for_prev(user_key))
    }

    /// Continues after the data that the last move could not read. False if its end is unknown.
    pub fn skip_gap(&mut self, forward: bool) -> Result<bool> {
        self.restart();
        self.direction = if forward { Direction::Forward } else { Direction::Backward };
        self.inner.skip_gap(forward)
    }

    /// Moves to the next visible key. Must be valid.
    pub fn next(&mut self) -> Result<()> {
        self.advance(Direction::Forward)
    }

    /// Moves to the previous visible key. Must be valid.
    pub fn prev(&mut self) -> Result<()> {
        self.advance(Direction::Backward)
    }

    fn seek_by(
        &mut self,
        direction: Direction,
        seek: impl FnOnce(&mut VisibleIterator<I>) -> Result<()>,
    ) -> Result<()> {
        self.restart();
        self.direction = direction;
        seek(&mut self.inner)?;
        if self.reach.expected > 0 {
            self.expected = Some(self.reach.expected);
            self.window = self.reach.expected.min(WINDOW_MAX);
            self.streak = STREAK_MIN;
            self.fill();
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.queue.clear();
        if self.next.is_begun() {
            self.ahead.iter_mut().for_each(|ahead| ahead.give_up());
        }
        self.next.clear();
        self.fetched.take();
        self.streak = STREAK_MIN - 1;
        self.window = self.reach.first;
        self.expected = None;
    }

    fn advance(&mut self, direction: Direction) -> Result<()> {
        if direction != self.direction {
            self.turn()?;
            self.direction = direction;
        }
        if self.queue.is_empty() {
            self.count();
            step(&mut self.inner, direction)?;
        } else {
            let left = self.queue.pop();
            if left {
                self.look_ahead();
                return Ok(());
            }
            self.adapt();
            if let Some(error) = self.queue.clear() {
                return Err(error);
            }
            if self.come_to_next() {
                return Ok(());
            }
        }
        if self.streak >= STREAK_MIN {
            self.fill();
        }
        Ok(())
    }

    /// Starts to read the next window if this one belongs to a long scan and is half consumed.
    fn look_ahead(&mut self) {
        if self.window >= AHEAD_MIN && self.queue.asked().0 > 0 && !self.queue.is_first_half() {
            self.begin_next();
        }
    }

    /// Starts to read the next window, unless one exists or it has nothing to read.
    fn begin_next(&mut self) {
        let has_end = self.expected == Some(0) || self.queue.has_failed() || !self.inner.valid();
        if has_end || !self.next.is_empty() {
            return;
        }
        if self.ahead.is_none() {
            self.ahead = self.values.clone().ahead();
        }
        let Some(ahead) = &mut self.ahead else { return };
        let lengths = (self.window, self.expected);
        self.expected = fill(&mut self.inner, &mut self.next, self.direction, self.reach, lengths);
        let (entries, _) = self.next.unread();
        if !entries.is_empty() {
            ahead.begin(&entries);
            self.next.set_begun();
        }
    }

    /// Switches to the next window; false if there is none.
    fn come_to_next(&mut self) -> bool {
        if self.next.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.queue, &mut self.next);
        // Only at full length, when windows grow no more: the device gets the window after this one
        // before the wait.
        if self.window == WINDOW_MAX && self.streak >= STREAK_MIN {
            self.begin_next();
        }
        if let Some(ahead) = self.ahead.as_mut().filter(|_| self.queue.is_begun()) {
            let (entries, numbers) = self.queue.unread();
            ahead.finish(&entries, &mut |nth, found| self.queue.put(numbers[nth], found));
        }
        true
    }

    /// Moves the underlying view back to the current entry.
    fn turn(&mut self) -> Result<()> {
        let back_to = self.queue.front().map(|entry| entry.user_key.to_vec());
        let asked = self.fetched.take();
        self.restart();
        if let Some(key) = back_to {
            self.inner.seek(&key)?;
            debug_assert!(self.inner.valid() && self.inner.key() == key, "shown once, gone now");
        } else if let Some(value) = asked {
            // The position has not changed, and its value counts as used at the next step.
            let _ = self.fetched.set(value);
        }
        Ok(())
    }

    /// Counts whether the value of the entry was used, before a step without a queue.
    fn count(&mut self) {
        let asked = self.fetched.take().is_some();
        if self.inner_entry().is_separated() {
            self.streak = if asked { self.streak.saturating_add(1) } else { 0 };
        }
    }

    /// Adapts the window at the end of a queue to the part of its values that was used.
    fn adapt(&mut self) {
        let (asked, separated) = self.queue.asked();
        if asked > 0 && asked * 2 >= separated {
            self.window = (self.window * 2).min(WINDOW_MAX);
        } else {
            self.streak = 0;
            self.window = self.reach.first;
        }
    }

    /// Moves entries from the underlying view to the queue.
    fn fill(&mut self) {
        // At 0 the caller has read more entries than expected.
        let expected = self.expected.filter(|&left| left > 0);
        let lengths = (self.window, expected);
        self.expected = fill(&mut self.inner, &mut self.queue, self.direction, self.reach, lengths);
    }
}

/// Moves one window of entries from a view to a queue: no more entries than expected, and no more
/// bytes of values than `reach` allows. Returns the number of entries still expected.
fn fill<I: InternalIterator>(
    view: &mut VisibleIterator<I>,
    queue: &mut PrefetchQueue,
    direction: Direction,
    reach: Reach,
    (window, expected): (usize, Option<usize>),
) -> Option<usize> {
    let window = expected.map_or(window, |left| window.min(left));
    while view.valid() && queue.len() < window {
        let (user_key, seq, kind) = (view.key(), view.seq(), view.value_kind());
        if !queue.push(&ViewEntry { user_key, seq, kind, value: view.value() }, reach.bytes_max) {
            break;
        }
        if let Err(error) = step(view, direction) {
            queue.fail(error);
            break;
        }
    }
    expected.map(|left| left.saturating_sub(queue.len()))
}

fn step<I: InternalIterator>(inner: &mut VisibleIterator<I>, direction: Direction) -> Result<()> {
    match direction {
        Direction::Forward => inner.next(),
        Direction::Backward => inner.prev(),
    }
}

#[cfg(test)]
mod tests;
