//! The keys of all inputs, merged into one order and cut into windows.
//!
//! The dense partitions of a vSST list its keys and the places of its records without the values
//! (the lazy read of Scavenger+). The cursors of all inputs are merged, so that a lookup passes
//! over each table once, and live records come out in the key order of the output. A [`Window`]
//! holds the keys that are judged together, in bounded memory.

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
    /// Index of the input that holds it.
    pub(crate) input: u32,
    /// Length of the record, in bytes.
    pub(crate) stored_len: u32,
    /// Offset of the record.
    pub(crate) offset: u64,
    pub(crate) live: bool,
}

/// Keys that are judged together, in the order of internal keys. Two inputs may hold records of the
/// same key.
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

    /// Returns the user key of an entry.
    #[inline]
    pub(crate) fn user_key(&self, entry: &Entry) -> &[u8] {
        &self.keys[entry.key_at as usize..][..entry.key_len as usize]
    }

    /// Returns the entries whose user keys are in `[low, high]`; with `exclusive`, below `high`.
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
                return Err(Error::corruption(format!(
                    "the keys of a value file (vSST) are not in ascending order: \"{}\" (sequence {}) \
                     follows \"{}\" (sequence {})",
                    key.user_key.escape_ascii(),
                    key.seq,
                    self.user_key(last).escape_ascii(),
                    last.seq
                )));
            }
        }
        let entry = Entry {
            key_at: self.keys.len() as u32,
            key_len: key.user_key.len() as u32,
            seq: key.seq,
            hash: key_hash(key.user_key),
            input: input as u32,
            // The cursor rejects records over the maximum length.
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
    /// Inputs with keys left, the one with the smallest key last.
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

    /// Returns true if all keys were taken.
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

    /// Moves at most `count` next keys into `window`. Returns true if the window is full, by its
    /// number of keys or their bytes.
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
            // Neighbors mostly come from one input: compare with the second only.
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

    /// Returns the counters of the key reads.
    pub(crate) fn counters(&self) -> ReadCounters {
        let mut sum = ReadCounters::default();
        self.cursors.iter().for_each(|c| sum.add(c.counters()));
        sum
    }
}
