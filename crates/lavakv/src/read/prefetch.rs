//! Scans that ask for separated values read them in batches.
//!
//! The entries of a scan lie side by side; the values behind their references lie wherever they were when their keys
//! were written, in as many files as there were flushes. Read one by one, each costs the whole latency of the device,
//! which has nothing else to do meanwhile. So an iterator that is being asked for one separated value after another
//! looks ahead: it moves the view beneath by a window of entries, keeps their keys and references in a [`Queue`], and
//! the first value asked for in the window is read together with all that follow in it ([`batch`]).
//!
//! How far: the window begins with [`WINDOW_MIN`] entries and doubles up to [`WINDOW_MAX`], so that a scan that stops
//! early has read for nothing about as much as it has used. It never holds more than [`BYTES_MAX`] of values. It starts
//! again with every seek and turn, and is given up where less than half of what was read is asked for: a scan that
//! looks at few values pays for those only. Entries with inline values pass through the window as they are.
//!
//! Looking ahead only ever brings values earlier. An error met by it is told where it belongs: one of reading keys when
//! the scan comes there, one of reading a value when that value is asked for, by reading it again alone.
//!
//! Invariant: where the queue is empty, the view beneath stands on the entry shown. Else the front of the queue is the
//! entry shown, and the view stands behind the back of it, in the direction of the scan, or nowhere if it ended there.

pub(crate) mod batch;
mod queue;

use base::{InternalIterator, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use lsm::{MergingIterator, VisibleIterator};
use queue::Queue;
use std::cell::OnceCell;
use std::sync::Arc;

/// Entries of the first window.
const WINDOW_MIN: usize = 4;
/// Entries of the longest. The longer a window, the more of its values lie side by side in their files: with values of
/// 1 KiB in 22 files, windows of 256 made a third more entries a second than windows of 64.
pub(crate) const WINDOW_MAX: usize = 256;
/// Bytes of values in a window.
pub(crate) const BYTES_MAX: u64 = 2 << 20;
/// So many separated values in a row must have been asked for. A seek counts as one: most scans look at values.
const STREAK_MIN: u32 = 2;

/// An entry as the view has it: its value, or the reference that leads there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub user_key: &'a [u8],
    pub seq: SeqNo,
    pub kind: ValueKind,
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// True if its value lies elsewhere.
    fn is_separated(&self) -> bool {
        matches!(self.kind, ValueKind::Reference | ValueKind::PlacedReference)
    }
}

/// Reads separated values.
pub(crate) trait FetchValues: Send + Sync {
    /// The value of one entry.
    fn read(&self, entry: &Entry<'_>) -> Result<BlockSlice>;

    /// The values of many, each handed over with the number of its entry. What cannot be read is left out: reading it
    /// alone tells why.
    fn read_many(&self, entries: &[Entry<'_>], found: &mut dyn FnMut(usize, BlockSlice));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// How far to look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Entries of the first window; 0: do not look ahead.
    pub first: usize,
    /// Bytes of values in a window.
    pub bytes_max: u64,
}

impl Reach {
    /// What [`crate::ReadOptions::readahead_bytes`] means here: whoever states a length wants all of it at once.
    pub fn for_readahead(bytes: usize) -> Self {
        match bytes as u64 {
            0 => Reach { first: WINDOW_MIN, bytes_max: BYTES_MAX },
            bytes => Reach { first: WINDOW_MAX, bytes_max: bytes.min(BYTES_MAX) },
        }
    }
}

/// A user's view whose separated values are fetched, in batches where a scan asks for many. See the module.
pub(crate) struct Prefetch<I = MergingIterator> {
    inner: VisibleIterator<I>,
    values: Arc<dyn FetchValues>,
    reach: Reach,
    queue: Queue,
    /// The separated value of the position, where the queue is empty.
    fetched: OnceCell<BlockSlice>,
    direction: Direction,
    streak: u32,
    window: usize,
}

impl<I: InternalIterator> Prefetch<I> {
    pub fn new(inner: VisibleIterator<I>, values: Arc<dyn FetchValues>, reach: Reach) -> Self {
        Prefetch {
            inner,
            values,
            reach,
            queue: Queue::default(),
            fetched: OnceCell::new(),
            direction: Direction::Forward,
            streak: 0,
            window: reach.first,
        }
    }

    pub fn valid(&self) -> bool {
        !self.queue.is_empty() || self.inner.valid()
    }

    /// The user key. Must be valid.
    pub fn key(&self) -> &[u8] {
        self.queue.front().map_or_else(|| self.inner.key(), |entry| entry.user_key)
    }

    /// The value. Must be valid.
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

    fn inner_entry(&self) -> Entry<'_> {
        let inner = &self.inner;
        Entry { user_key: inner.key(), seq: inner.seq(), kind: inner.value_kind(), value: inner.value() }
    }

    fn queued_value(&self) -> Result<&[u8]> {
        let front = self.queue.front().expect("the caller looked");
        if !front.is_separated() {
            return Ok(front.value);
        }
        if self.queue.ask() {
            let (entries, numbers) = self.queue.unread();
            if entries.len() > 1 {
                self.values.read_many(&entries, &mut |nth, value| self.queue.put(numbers[nth], value));
            }
        }
        match self.queue.value() {
            Some(value) => Ok(value),
            None => {
                let value = self.values.read(&front)?;
                Ok(self.queue.put_front(value))
            }
        }
    }

    /// Moves to the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.restart();
        self.inner.seek_to_first()
    }

    /// Moves to the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.restart();
        self.inner.seek_to_last()
    }

    /// Moves to the first visible key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        self.restart();
        self.inner.seek(user_key)
    }

    /// Moves to the last visible key at or before `user_key`.
    pub fn seek_for_prev(&mut self, user_key: &[u8]) -> Result<()> {
        self.restart();
        self.inner.seek_for_prev(user_key)
    }

    /// Goes on behind what the last move could not read. False if nobody knows where that ends.
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

    fn restart(&mut self) {
        self.queue.clear();
        self.fetched.take();
        self.streak = STREAK_MIN - 1;
        self.window = self.reach.first;
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
            if self.queue.pop() {
                return Ok(());
            }
            self.adapt();
            if let Some(error) = self.queue.clear() {
                return Err(error);
            }
        }
        if self.streak >= STREAK_MIN {
            self.fill();
        }
        Ok(())
    }

    /// Puts the view beneath back on the entry shown.
    fn turn(&mut self) -> Result<()> {
        let back_to = self.queue.front().map(|entry| entry.user_key.to_vec());
        let asked = self.fetched.take();
        self.restart();
        if let Some(key) = back_to {
            self.inner.seek(&key)?;
            debug_assert!(self.inner.valid() && self.inner.key() == key, "shown once, gone now");
        } else if let Some(value) = asked {
            // It has not moved, and will be asked whether its value was wanted.
            let _ = self.fetched.set(value);
        }
        Ok(())
    }

    /// Before a step without a queue: was the value of the entry wanted?
    fn count(&mut self) {
        let asked = self.fetched.take().is_some();
        if self.inner_entry().is_separated() {
            self.streak = if asked { self.streak.saturating_add(1) } else { 0 };
        }
    }

    /// At the end of a queue: was it worth it?
    fn adapt(&mut self) {
        let (asked, separated) = self.queue.asked();
        if asked > 0 && asked * 2 >= separated {
            self.window = (self.window * 2).min(WINDOW_MAX);
        } else {
            self.streak = 0;
            self.window = self.reach.first;
        }
    }

    /// Moves entries from the view beneath to the queue.
    fn fill(&mut self) {
        while self.inner.valid() && self.queue.len() < self.window {
            let inner = &self.inner;
            let (user_key, seq, kind) = (inner.key(), inner.seq(), inner.value_kind());
            if !self.queue.push(&Entry { user_key, seq, kind, value: inner.value() }, self.reach.bytes_max) {
                break;
            }
            if let Err(error) = step(&mut self.inner, self.direction) {
                self.queue.fail(error);
                break;
            }
        }
    }
}

fn step<I: InternalIterator>(inner: &mut VisibleIterator<I>, direction: Direction) -> Result<()> {
    match direction {
        Direction::Forward => inner.next(),
        Direction::Backward => inner.prev(),
    }
}

#[cfg(test)]
mod tests;
