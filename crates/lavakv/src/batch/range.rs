//! Range deletions whose ends are any bounds, as half-open ranges, which is all that the formats have.
//!
//! Keys have at most [`KEY_LEN_MAX`] bytes, so each key but the last one of all has a successor. A range without an end is the one
//! up to the last key of all, and that key.

use base::limits::KEY_LEN_MAX;
use std::borrow::Cow;
use std::ops::Bound;

/// The last of all keys.
static LAST_KEY: [u8; KEY_LEN_MAX] = [0xff; KEY_LEN_MAX];

/// What to delete for a range.
pub(crate) struct Deletion<'a> {
    /// The first key.
    pub start: Cow<'a, [u8]>,
    /// The first key behind the range.
    pub end: Cow<'a, [u8]>,
    /// A key that belongs to the range as well.
    pub last: Option<&'static [u8]>,
}

impl<'a> Deletion<'a> {
    /// Of the keys between two bounds. `None`: no key lies there, whatever the end is.
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

/// The first key behind one; `None`: it is the last. A key that is too long stays too long.
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
