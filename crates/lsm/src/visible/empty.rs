//! Ranges without a visible key: a long walk over hidden entries is made once, and later moves seek past its range.
//!
//! A queue is the usual case: its head is a run of tombstones, and every read of the first key passes all of them. A `Walk` counts the keys
//! that a move passes in a row. After `ASK_AFTER` it asks the [`EmptyRanges`] of the family for a range around the key, and the move seeks
//! to the border of that range. A walk of `TELL_AFTER` keys or more reports its own range. Short walks, so most moves, do neither.

use base::SeqNo;
use std::sync::Arc;

/// After so many hidden keys in a row a move asks for a known range, and again after each [`ASK_EVERY`].
const ASK_AFTER: u64 = 8;
const ASK_EVERY: u64 = 64;
/// Walks over fewer hidden keys are not reported.
const TELL_AFTER: u64 = 16;

/// User keys from `low` on, up to but without `high`; no `high`: all from `low` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The first key behind the range.
    pub high: Option<Vec<u8>>,
}

impl KeyRange {
    /// True if the key lies in the range.
    pub fn contains(&self, user_key: &[u8]) -> bool {
        self.low.as_slice() <= user_key && self.high.as_deref().is_none_or(|high| user_key < high)
    }
}

/// The ranges without a visible key that are known of a family.
pub trait EmptyRanges: Send + Sync {
    /// A range around `user_key` in which `snapshot` sees no key. `None`: none is known.
    fn around(&self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange>;

    /// `snapshot` sees no key in `range`: a move has passed `keys` hidden ones there, beside those of ranges that were known.
    fn found(&self, range: KeyRange, snapshot: SeqNo, keys: u64);
}

/// The hidden keys that one move passes in a row.
#[derive(Default)]
pub(super) struct Walk {
    known: Option<Arc<dyn EmptyRanges>>,
    /// Since the move began, or since it left a known range.
    keys: u64,
    /// The first key from which on all are counted; none before [`ASK_AFTER`] keys.
    from: Option<Vec<u8>>,
}

impl Walk {
    pub fn new(known: Option<Arc<dyn EmptyRanges>>) -> Walk {
        Walk { known, keys: 0, from: None }
    }

    /// A move begins, or goes on behind an entry that is shown.
    #[inline]
    pub fn begin(&mut self) {
        self.keys = 0;
        self.from = None;
    }

    /// A hidden key was passed. Returns a known range around it, at whose border the move goes on.
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

    /// A move forward ends at `border`, the first key that it did not pass; `None`: it passed all keys.
    #[inline]
    pub fn end_forward(&mut self, border: Option<&[u8]>, snapshot: SeqNo) {
        if self.keys >= TELL_AFTER {
            self.tell(snapshot, |from| KeyRange { low: from, high: border.map(<[u8]>::to_vec) });
        }
    }

    /// A move backward ends at `low`, the first key that it passed or could have passed.
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

/// The first key behind a key.
pub fn successor(mut user_key: Vec<u8>) -> Vec<u8> {
    user_key.push(0);
    user_key
}
