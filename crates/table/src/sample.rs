//! Some of the user keys of a table, evenly spaced, while it is written; and the same of a table that is there.

use crate::options::IterOptions;
use crate::reader::Ksst;
use crate::reference::Reference;
use base::{InternalIterator, Result, TableNotes, ValueKind, key};
use std::sync::Arc;

/// So many keys are kept at most, and at least half as many once there were as many.
const KEYS_MAX: usize = 256;

/// Every `stride`-th key. When there are too many, every second one goes and the stride doubles.
#[derive(Debug)]
pub(crate) struct KeySample {
    keys: Vec<Vec<u8>>,
    stride: u64,
    /// Keys until the next one is kept.
    skips: u64,
}

impl Default for KeySample {
    fn default() -> Self {
        KeySample { keys: Vec::new(), stride: 1, skips: 0 }
    }
}

impl KeySample {
    /// Takes the next user key of the table into account.
    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8]) {
        if self.skips > 0 {
            self.skips -= 1;
        } else {
            self.keep(user_key);
        }
    }

    fn keep(&mut self, user_key: &[u8]) {
        self.keys.push(user_key.to_vec());
        if self.keys.len() > KEYS_MAX {
            let mut nth = 0;
            self.keys.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.stride *= 2;
        }
        self.skips = self.stride - 1;
    }

    pub(crate) fn into_keys(self) -> Vec<Vec<u8>> {
        self.keys
    }
}

/// Bytes that are read at once.
const READAHEAD_LEN: usize = 256 << 10;

impl Ksst {
    /// Reads the whole table for what its builder knew of it: the notes, and a sample of its user keys.
    ///
    /// # Errors
    /// `Corruption` if a block is damaged, and what the file reports.
    pub fn notes(self: &Arc<Self>) -> Result<(TableNotes, Vec<Vec<u8>>)> {
        let (mut notes, mut sample) = (TableNotes::default(), KeySample::default());
        let mut cursor = self.iter(IterOptions { fill_cache: false, readahead_bytes: READAHEAD_LEN });
        let mut last: Option<Vec<u8>> = None;
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (user_key, trailer) = key::split(cursor.key());
            if last.as_deref() != Some(user_key) {
                notes.keys += 1;
                sample.add(user_key);
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(user_key);
            }
            let kind = ValueKind::from_u8(trailer as u8);
            let key_len = cursor.key().len() as u64;
            if kind == Some(ValueKind::Reference) {
                let reference = Reference::decode(cursor.value())?;
                notes.records.add(reference.stored_len);
                notes.values.add(key_len.saturating_add(reference.raw_len));
            } else if kind.is_none_or(|kind| !kind.is_tombstone()) {
                notes.values.add(key_len + cursor.value().len() as u64);
            }
            cursor.next()?;
        }
        Ok((notes, sample.into_keys()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_at_even_distances() {
        for count in [0u32, 1, 255, 256, 257, 1000, 100_000] {
            let mut sample = KeySample::default();
            (0..count).for_each(|i| sample.add(&i.to_be_bytes()));
            let stride = sample.stride as usize;
            let keys = sample.into_keys();
            assert!(keys.len() <= KEYS_MAX && keys.len() >= (count as usize).min(KEYS_MAX / 2));
            let expected: Vec<Vec<u8>> =
                (0..count).step_by(stride).map(|i| i.to_be_bytes().to_vec()).collect();
            assert_eq!(keys, expected, "{count}");
        }
    }
}
