//! Converts range deletions with any bounds to half-open ranges, the only ones in the formats.
//!
//! Keys have at most [`KEY_LEN_MAX`] bytes, so each key but the largest one has a successor. A
//! range without an end consists of the range up to the largest key, and of that key.

use base::limits::KEY_LEN_MAX;
use std::borrow::Cow;
use std::ops::Bound;

/// The largest possible key.
static LAST_KEY: [u8; KEY_LEN_MAX] = [0xff; KEY_LEN_MAX];

/// The deletes for a range.
pub(crate) struct Deletion<'a> {
    /// The first key.
    pub start: Cow<'a, [u8]>,
    /// The first key after the range.
    pub end: Cow<'a, [u8]>,
    /// A further key that belongs to the range.
    pub last: Option<&'static [u8]>,
}

impl<'a> Deletion<'a> {
    /// Returns the deletes for the keys between two bounds. `None`: no key lies after the start.
    pub fn of((start, end): (Bound<&'a [u8]>, Bound<&'a [u8]>)) -> Option<Deletion<'a>> {
        let start = match start {
            Bound::Unbounded => Cow::Borrowed(&[][..]),
            Bound::Included(key) => Cow::Borrowed(key),
            Bound::Excluded(key) => Cow::Owned(successor(key)?),
        };
        let end = match end {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(Cow::Borrowed(key)),
            Bound::Included(key) => successor(key).map(Cow::Owned),
        };
        Some(match end {
            Some(end) => Deletion { start, end, last: None },
            None => Deletion { start, end: Cow::Borrowed(&LAST_KEY), last: Some(&LAST_KEY) },
        })
    }
}

/// Returns the successor of a key; `None` for the largest key. For a key over the limit the result
/// is over the limit too.
fn successor(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() != KEY_LEN_MAX {
        return Some([key, &[0]].concat());
    }
    let at = key.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = key.get(..=at)?.to_vec();
    *next.last_mut()? += 1;
    Some(next)
}

#[cfg(test)]
mod tests;
