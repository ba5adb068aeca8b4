//! The keys of all inputs, merged into one order and cut into windows.
//!
//! The dense partitions of a vSST list its keys and the places of its records without the values (the lazy read of
//! Scavenger+). The cursors of all inputs are merged, so that a lookup passes over each table once, and survivors come
//! out in the order in which the output wants them. A [`Window`] holds as many keys as are judged together, at a bounded
//! cost of memory.

use base::hash::key_hash;
use base::{Error, Result, SeqNo};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use table::{ReadCounters, Vsst, VsstKeys};

/// One record of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    key_at: u32,
    key_len: u32,
    pub(crate) seq: SeqNo,
    /// Hash of the user key, for the filters of tables.
    pub(crate) hash: u64,
    /// Which input holds it.
    pub(crate) input: u32,
    /// Bytes of the record.
    pub(crate) stored_len: u32,
    /// Where it begins.
    pub(crate) offset: u64,
    pub(crate) live: bool,
}

/// Keys that are judged together, in the order of internal keys. Two inputs may hold records of the same key.
#[derive(Default)]
pub(crate) struct Window {
    keys: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

impl Window {
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The user key of an entry.
    #[inline]
    pub(crate) fn user_key(&self, entry: &Entry) -> &[u8] {
        &self.keys[entry.key_at as usize..][..entry.key_len as usize]
    }

    /// The entries whose user keys are in `[low, high]`; with `exclusive`, below `high`.
    pub(crate) fn range(&self, low: &[u8], high: &[u8], exclusive: bool) -> Range<usize> {
        let from = self.entries.partition_point(|e| self.user_key(e) < low);
        let to = self.entries.partition_point(|e| match self.user_key(e).cmp(high) {
            Ordering::Less => true,
            Ordering::Equal => !exclusive,
            Ordering::Greater => false,
        });
        from..to.max(from)
    }

    fn push(&mut self, input: usize, cursor: &VsstKeys) -> Result<()> {
        let key = cursor.entry();
        if let Some(last) = self.entries.last() {
            let order = self.user_key(last).cmp(key.user_key).then(key.seq.cmp(&last.seq));
            if order.is_gt() {
                return Err(Error::corruption("the keys of a vSST are not in order"));
            }
        }
        let entry = Entry {
            key_at: self.keys.len() as u32,
            key_len: key.user_key.len() as u32,
            seq: key.seq,
            hash: key_hash(key.user_key),
            input: input as u32,
            // The cursor stands on no record that is longer than any can be.
            stored_len: key.stored_len as u32,
            offset: key.offset,
            live: false,
        };
        self.keys.extend_from_slice(key.user_key);
        self.entries.push(entry);
        Ok(())
    }
}

/// The merged cursors of all inputs.
#[derive(Default)]
pub(crate) struct MergedKeys {
    inputs: Vec<Arc<Vsst>>,
    cursors: Vec<VsstKeys>,
    /// Inputs that have keys left, the one with the smallest last.
    order: Vec<usize>,
}

impl MergedKeys {
    /// Opens a cursor over one more input.
    pub(crate) fn add(&mut self, input: &Arc<Vsst>) -> Result<()> {
        self.cursors.push(input.keys()?);
        self.inputs.push(input.clone());
        self.insert(self.cursors.len() - 1);
        Ok(())
    }

    /// True if all keys were taken.
    pub(crate) fn is_done(&self) -> bool {
        self.order.is_empty()
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (x, y) = (self.cursors[a].entry(), self.cursors[b].entry());
        x.user_key.cmp(y.user_key).then(y.seq.cmp(&x.seq)).then(a.cmp(&b))
    }

    fn insert(&mut self, input: usize) {
        if self.cursors[input].valid() {
            let at = self.order.partition_point(|&other| self.compare(other, input).is_gt());
            self.order.insert(at, input);
        }
    }

    /// Moves the next keys into `window`: `count` of them, or all there are, or until it is full, which it is with so
    /// many keys or bytes of them. True if it is.
    pub(crate) fn fill(
        &mut self,
        window: &mut Window,
        count: usize,
        (keys_max, bytes_max): (usize, usize),
    ) -> Result<bool> {
        let is_full = |window: &Window| window.len() >= keys_max || window.keys.len() >= bytes_max;
        for _ in 0..count {
            if is_full(window) {
                break;
            }
            let Some(&input) = self.order.last() else { break };
            let cursor = &mut self.cursors[input];
            let moved = window.push(input, cursor).and_then(|()| cursor.next());
            moved.map_err(|e| e.at_file(self.inputs[input].file().path()))?;
            // Neighbours mostly come from one input: compare with the second only.
            let stays = cursor.valid()
                && (self.order.len() < 2 || {
                    let second = self.order[self.order.len() - 2];
                    self.compare(second, input).is_gt()
                });
            if !stays {
                self.order.pop();
                self.insert(input);
            }
        }
        Ok(is_full(window))
    }

    /// What reading the keys has cost.
    pub(crate) fn counters(&self) -> ReadCounters {
        let mut sum = ReadCounters::default();
        self.cursors.iter().for_each(|c| sum.add(c.counters()));
        sum
    }
}
