//! Scans that ask for separated values read them in batches.
//!
//! The entries of a scan lie side by side; the values behind their references lie wherever they were when their keys
//! were written, in as many files as there were flushes. Read one by one, each costs the whole latency of the device,
//! which has nothing else to do meanwhile. So an iterator that is being asked for one separated value after another
//! looks ahead: it moves the view beneath by a window of entries, keeps their keys and references in a [`Queue`], and
//! the first value asked for in the window is read together with all that follow in it ([`batch`]).
//!
//! How far: the window begins with [`WINDOW_MIN`] entries and doubles up to [`WINDOW_MAX`], so that a scan that stops
//! early has read for nothing about as much as it has used. It never holds more than [`BYTES_MAX`] of values
//! ([`BYTES_LIMIT`] where the device has to have so much in flight to be busy). It starts
//! again with every seek and turn, and is given up where less than half of what was read is asked for: a scan that
//! looks at few values pays for those only. Who says beforehand how many entries he will look at ([`Reach::expected`]) gets
//! just these: they are looked up by the seek, and read together with the first. Entries with inline values pass through the window as
//! they are.
//!
//! A long scan has the next window read while it goes through this one ([`ahead`]): in the middle of a window, if windows have come to
//! [`AHEAD_MIN`] entries, the next one is filled, and the reads of its values begin. They are waited for where the scan comes
//! to it; of windows of full length, the one behind is begun before, so that the device always has something to do. There are at most two
//! windows, and the scan has looked at as much as was read for nothing, should it end there.
//!
//! Looking ahead only ever brings values earlier. An error met by it is told where it belongs: one of reading keys when
//! the scan comes there, one of reading a value when that value is asked for, by reading it again alone. A value goes to the cache
//! when it is asked for, not when it was read along: what a scan does not look at pushes nothing out.
//!
//! Invariant: where the queue is empty, the view beneath stands on the entry shown. Else the front of the queue is the
//! entry shown, the next window follows behind the back of it, and the view stands behind the back of both, in the direction of the
//! scan, or nowhere if it ended there.

mod ahead;
pub(crate) mod batch;
mod queue;

use crate::read::options::ReadOptions;
use base::{InternalIterator, Result, SeqNo, ValueKind};
use cache::{BlockSlice, CacheKey};
use io::ReadCosts;
use lsm::{MergingIterator, VisibleIterator};
use queue::Queue;
use std::cell::OnceCell;
use std::sync::Arc;

/// Entries of the first window.
const WINDOW_MIN: usize = 4;
/// Entries of the longest. The longer a window, the more of its values lie side by side in their files: with values of
/// 1 KiB in 22 files, windows of 256 made a third more entries a second than windows of 64.
pub(crate) const WINDOW_MAX: usize = 256;
/// Bytes of values in a window, of which there are two at most.
pub(crate) const BYTES_MAX: u64 = 1 << 20;
/// The same of an iterator where the device moves more than that while a read is waited for.
const BYTES_LIMIT: u64 = 2 << 20;
/// A scan whose windows are so long has the next one read while it goes through this one. Shorter scans would gain less than a queue of reads
/// costs to make.
const AHEAD_MIN: usize = 128;
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

/// A separated value that was read along with others.
#[derive(Debug)]
pub(crate) struct Found {
    pub value: BlockSlice,
    /// Where it goes in the cache once it is asked for; `None`: it comes from there, or is not to go there.
    pub keep_at: Option<CacheKey>,
}

/// Is handed what was found, each with the number of its entry.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, Found);

/// Reads separated values.
pub(crate) trait FetchValues: Send + Sync {
    /// The value of one entry.
    fn read(&self, entry: &Entry<'_>) -> Result<BlockSlice>;

    /// The values of many, each handed over with the number of its entry. What cannot be read is left out: reading it
    /// alone tells why.
    fn read_many(&self, entries: &[Entry<'_>], put: Put<'_>);

    /// What reads values while the caller does something else; `None`: as many as may do so already.
    fn ahead(self: Arc<Self>) -> Option<Box<dyn ReadAhead>>;

    /// A value that was read along is asked for: it may go to the cache.
    fn keep(&self, at: CacheKey, value: &BlockSlice);
}

/// Reads of the values of windows, which go on while their caller does something else. Dropped, it waits for them.
pub(crate) trait ReadAhead: Send {
    /// Begins to read the values of many.
    fn begin(&mut self, entries: &[Entry<'_>]);

    /// Waits for what was begun first and not waited for yet, for the same entries, and hands it over as [`FetchValues::read_many`] does.
    fn finish(&mut self, entries: &[Entry<'_>], put: Put<'_>);

    /// Forgets what was begun.
    fn give_up(&mut self);
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
    /// How many entries will be looked at from a seek on; 0: nobody knows.
    pub expected: usize,
}

impl Reach {
    /// What [`crate::ReadOptions::readahead_bytes`] and [`crate::ReadOptions::expected_entries`] mean here: whoever states a length wants
    /// all of it at once, and who wants keys only looks at no value.
    /// Where more has to be in flight so that the device is busy, windows are longer, up to twice.
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

/// A user's view whose separated values are fetched, in batches where a scan asks for many. See the module.
pub(crate) struct Prefetch<I = MergingIterator> {
    inner: VisibleIterator<I>,
    values: Arc<dyn FetchValues>,
    reach: Reach,
    queue: Queue,
    /// The next window, whose values are being read.
    next: Queue,
    /// Who reads them, once there was a next window.
    ahead: Option<Box<dyn ReadAhead>>,
    /// The separated value of the position, where the queue is empty.
    fetched: OnceCell<BlockSlice>,
    direction: Direction,
    streak: u32,
    window: usize,
    /// Of the entries that are expected, those that were not looked up; `None`: nobody knows how many will be looked at.
    expected: Option<usize>,
}

impl<I: InternalIterator> Prefetch<I> {
    pub fn new(inner: VisibleIterator<I>, values: Arc<dyn FetchValues>, reach: Reach) -> Self {
        Prefetch {
            inner,
            values,
            reach,
            queue: Queue::default(),
            next: Queue::default(),
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

    /// Entries that were passed and not shown.
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

    /// In a window: begins to read the next one, if this is one of a long scan, half of which is looked at.
    fn look_ahead(&mut self) {
        if self.window >= AHEAD_MIN && self.queue.asked().0 > 0 && !self.queue.is_first_half() {
            self.begin_next();
        }
    }

    /// Begins to read the next window, unless there is one, or nothing to read in it.
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

    /// Goes over to the next window; false if there is none.
    fn come_to_next(&mut self) -> bool {
        if self.next.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.queue, &mut self.next);
        // As long as windows become no longer: the device has the one behind before this one is waited for.
        if self.window == WINDOW_MAX && self.streak >= STREAK_MIN {
            self.begin_next();
        }
        if let Some(ahead) = self.ahead.as_mut().filter(|_| self.queue.is_begun()) {
            let (entries, numbers) = self.queue.unread();
            ahead.finish(&entries, &mut |nth, found| self.queue.put(numbers[nth], found));
        }
        true
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
        // Who has come here looks at more than he said.
        let expected = self.expected.filter(|&left| left > 0);
        let lengths = (self.window, expected);
        self.expected = fill(&mut self.inner, &mut self.queue, self.direction, self.reach, lengths);
    }
}

/// Moves entries from a view to a queue: a window, but no more than are expected, and no more bytes of values than the reach has. How many are
/// still expected then.
fn fill<I: InternalIterator>(
    view: &mut VisibleIterator<I>,
    queue: &mut Queue,
    direction: Direction,
    reach: Reach,
    (window, expected): (usize, Option<usize>),
) -> Option<usize> {
    let window = expected.map_or(window, |left| window.min(left));
    while view.valid() && queue.len() < window {
        let (user_key, seq, kind) = (view.key(), view.seq(), view.value_kind());
        if !queue.push(&Entry { user_key, seq, kind, value: view.value() }, reach.bytes_max) {
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
