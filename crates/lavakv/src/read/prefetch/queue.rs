//! The entries between the position of a scan and the end of its look-ahead.

use super::{PrefetchedValue, ViewEntry};
use base::{Error, SeqNo, ValueKind};
use cache::{BlockSlice, CacheKey};
use std::cell::{Cell, OnceCell};
use std::ops::Range;
use table::Reference;

/// Entries in the order of the scan, consumed from the front. Once empty, the queue is filled
/// again.
#[derive(Default)]
pub(super) struct PrefetchQueue {
    /// Keys and values (or references) of all entries, concatenated.
    bytes: Vec<u8>,
    slots: Vec<QueuedEntry>,
    /// The index of the front.
    at: usize,
    /// Bytes of all values after their reads.
    value_bytes: u64,
    separated: usize,
    asked: Cell<usize>,
    read: Cell<bool>,
    begun: bool,
    /// The error that ended its filling.
    error: Option<Error>,
}

struct QueuedEntry {
    key: Range<usize>,
    /// The value, or the reference.
    value: Range<usize>,
    seq: SeqNo,
    kind: ValueKind,
    fetched: OnceCell<BlockSlice>,
    /// The cache key of the value until its first use.
    keep_at: Cell<Option<CacheKey>>,
    asked: Cell<bool>,
}

impl PrefetchQueue {
    pub fn is_empty(&self) -> bool {
        self.at >= self.slots.len()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.at
    }

    /// Empties the queue. Returns the error that ended its filling, if any.
    pub fn clear(&mut self) -> Option<Error> {
        self.bytes.clear();
        self.slots.clear();
        (self.at, self.value_bytes, self.separated) = (0, 0, 0);
        self.asked.set(0);
        self.read.set(false);
        self.begun = false;
        self.error.take()
    }

    /// Appends an entry; false if the queue is not empty and the value would exceed `bytes_max`.
    pub fn push(&mut self, entry: &ViewEntry<'_>, bytes_max: u64) -> bool {
        let value_bytes = self.value_bytes.saturating_add(value_len(entry));
        if value_bytes > bytes_max && !self.is_empty() {
            return false;
        }
        self.value_bytes = value_bytes;
        self.separated += usize::from(entry.is_separated());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(entry.user_key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        self.slots.push(QueuedEntry {
            key: start..middle,
            value: middle..self.bytes.len(),
            seq: entry.seq,
            kind: entry.kind,
            fetched: OnceCell::new(),
            keep_at: Cell::new(None),
            asked: Cell::new(false),
        });
        true
    }

    /// Records the error that ends its filling.
    pub fn fail(&mut self, error: Error) {
        self.error = Some(error);
    }

    /// Removes the front; false if that was the last.
    pub fn pop(&mut self) -> bool {
        if let Some(slot) = self.slots.get_mut(self.at) {
            slot.fetched.take();
            self.at += 1;
        }
        !self.is_empty()
    }

    /// Returns the front.
    pub fn front(&self) -> Option<ViewEntry<'_>> {
        self.slots.get(self.at).map(|slot| self.entry(slot))
    }

    fn entry(&self, slot: &QueuedEntry) -> ViewEntry<'_> {
        let (user_key, value) = (&self.bytes[slot.key.clone()], &self.bytes[slot.value.clone()]);
        ViewEntry { user_key, seq: slot.seq, kind: slot.kind, value }
    }

    /// Marks the value of the front as used. True for the first use in the queue, unless its values
    /// are already being read.
    pub fn ask(&self) -> bool {
        if self.slots.get(self.at).is_some_and(|slot| !slot.asked.replace(true)) {
            self.asked.set(self.asked.get() + 1);
        }
        !self.read.replace(true) && !self.begun
    }

    /// True if the front is before the middle.
    pub fn is_first_half(&self) -> bool {
        self.at * 2 < self.slots.len()
    }

    /// True if an error follows the last entry.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Marks the values of the present entries as being read in the background.
    pub fn set_begun(&mut self) {
        self.begun = true;
    }

    /// True if its values are read in the background, or were.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Returns the number of values used, and of separated values.
    pub fn asked(&self) -> (usize, usize) {
        (self.asked.get(), self.separated)
    }

    /// Returns the entries without a value, from the front on, and their indexes for
    /// [`PrefetchQueue::put`].
    pub fn unread(&self) -> (Vec<ViewEntry<'_>>, Vec<usize>) {
        let numbered = self.slots.iter().enumerate().skip(self.at);
        let entries = numbered.filter(|(_, slot)| slot.fetched.get().is_none());
        let entries = entries.map(|(nth, slot)| (self.entry(slot), nth));
        entries.filter(|(entry, _)| entry.is_separated()).unzip()
    }

    /// Stores a value.
    pub fn put(&self, nth: usize, found: PrefetchedValue) {
        if let Some(slot) = self.slots.get(nth)
            && slot.fetched.set(found.value).is_ok()
        {
            slot.keep_at.set(found.keep_at);
        }
    }

    /// Stores the value of the front.
    pub fn put_front(&self, value: BlockSlice) -> &[u8] {
        self.slots[self.at].fetched.get_or_init(|| value)
    }

    /// Returns the value of the front, if it was read; the first time with its cache key.
    pub fn value(&self) -> Option<(&BlockSlice, Option<CacheKey>)> {
        let slot = self.slots.get(self.at)?;
        slot.fetched.get().map(|value| (value, slot.keep_at.take()))
    }
}

/// Returns the length of an entry's value according to its reference. A damaged reference is
/// reported on its use.
fn value_len(entry: &ViewEntry<'_>) -> u64 {
    match entry.kind {
        ValueKind::Reference => Reference::decode(entry.value).map_or(0, |r| r.raw_len.max(r.stored_len)),
        _ => entry.value.len() as u64,
    }
}
