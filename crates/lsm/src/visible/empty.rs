//! Ranges without a visible key: a long walk over hidden entries is made once, and later moves seek
//! past its range.
//!
//! A queue is the usual case: its head is a run of tombstones, and every read of the first key
//! passes all of them. A `Walk` counts the keys that a move passes in a row. After `ASK_AFTER` it
//! asks the [`EmptyRanges`] of the family for a range around the key, and the move seeks to the
//! border of that range. A walk of `TELL_AFTER` keys or more reports its own range. Short walks, so
//! most moves, do neither.

use base::SeqNo;
use std::sync::Arc;

/// Number of consecutive hidden keys after which a move asks for a known range. It asks again after
/// each [`ASK_EVERY`] keys.
const ASK_AFTER: u64 = 8;
const ASK_EVERY: u64 = 64;
/// Minimum number of hidden keys in a walk that is reported.
const TELL_AFTER: u64 = 16;

/// User keys from `low` to before `high`, or all from `low` on without `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The first key after the range.
    pub high: Option<Vec<u8>>,
}

impl KeyRange {
    /// True if the key lies in the range.
    pub fn contains(&self, user_key: &[u8]) -> bool {
        self.low.as_slice() <= user_key && self.high.as_deref().is_none_or(|high| user_key < high)
    }
}

/// Known ranges of a family without a visible key.
pub trait EmptyRanges: Send + Sync {
    /// Returns a range around `user_key` in which `snapshot` sees no key, or `None` if none is
    /// known.
    fn around(&self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange>;

    /// Reports a range in which `snapshot` sees no key. A move has passed `keys` hidden keys there,
    /// not counting those of known ranges.
    fn found(&self, range: KeyRange, snapshot: SeqNo, keys: u64);
}

/// The hidden keys that one move passes in a row.
#[derive(Default)]
pub(super) struct Walk {
    known: Option<Arc<dyn EmptyRanges>>,
    /// Number of hidden keys since the move began, or since it left a known range.
    keys: u64,
    /// First key of the counted range; `None` before [`ASK_AFTER`] keys.
    from: Option<Vec<u8>>,
}

impl Walk {
    pub fn new(known: Option<Arc<dyn EmptyRanges>>) -> Walk {
        Walk { known, keys: 0, from: None }
    }

    /// Starts a move, or continues after an entry that was shown.
    #[inline]
    pub fn begin(&mut self) {
        self.keys = 0;
        self.from = None;
    }

    /// Counts a hidden key that was passed. Returns a known range around it, at whose bound the
    /// move continues.
    #[inline]
    pub fn pass(&mut self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange> {
        self.keys += 1;
        if self.keys % ASK_EVERY == ASK_AFTER { self.ask(user_key, snapshot) } else { None }
    }

    #[cold]
    fn ask(&mut self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange> {
        let known = self.known.as_ref()?;
        self.from.get_or_insert_with(|| user_key.to_vec());
        let range = known.around(user_key, snapshot)?;
        self.keys = 0;
        Some(range)
    }

    /// Ends a forward move at `border`, the first key that it did not pass; `None`: it passed all
    /// keys.
    #[inline]
    pub fn end_forward(&mut self, border: Option<&[u8]>, snapshot: SeqNo) {
        if self.keys >= TELL_AFTER {
            self.tell(snapshot, |from| KeyRange { low: from, high: border.map(<[u8]>::to_vec) });
        }
    }

    /// Ends a backward move at `low`, the first key that it passed or could have passed.
    #[inline]
    pub fn end_backward(&mut self, low: impl FnOnce() -> Vec<u8>, snapshot: SeqNo) {
        if self.keys >= TELL_AFTER {
            self.tell(snapshot, |from| KeyRange { low: low(), high: Some(successor(from)) });
        }
    }

    #[cold]
    fn tell(&mut self, snapshot: SeqNo, range: impl FnOnce(Vec<u8>) -> KeyRange) {
        if let (Some(known), Some(from)) = (&self.known, self.from.take()) {
            known.found(range(from), snapshot, self.keys);
        }
    }
}

/// Returns the smallest key after a key.
pub fn successor(mut user_key: Vec<u8>) -> Vec<u8> {
    user_key.push(0);
    user_key
}
