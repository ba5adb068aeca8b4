//! Key ranges: any Rust range of any type of bytes.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Selects the keys of a range read or a range delete: `"a".."c"`, `"a"..="c"`, `"a"..`, `.."c"`,
/// `..`, or a pair of [`Bound`]s, of strings, arrays, slices, vectors or any other
/// [`AsRef<[u8]>`](AsRef).
///
/// Keys compare byte by byte. A start after the end is an empty range for a read, and
/// `InvalidArgument` for a delete. For all keys with a common beginning use
/// [`Db::prefix`](crate::Db::prefix). The trait is implemented for the ranges of the standard
/// library only; a program cannot implement it.
///
/// ```
/// # let db = lavastore::testing::store();
/// for key in ["a", "b", "c"] {
///     db.put(key, "")?;
/// }
/// assert_eq!(db.range("a".."c").count(), 2);
/// assert_eq!(db.range(b"a"..=b"c").count(), 3);
/// assert_eq!(db.range(vec![b'b']..).count(), 2);
/// assert_eq!(db.range(..).count(), 3);
/// assert_eq!(db.range("c".."a").count(), 0, "a start after the end is an empty range");
/// # Ok::<(), lavastore::Error>(())
/// ```
pub trait KeyRange: sealed::Bounds {}

impl<T: sealed::Bounds> KeyRange for T {}

mod sealed {
    use std::ops::Bound;

    /// The bounds of a range.
    pub trait Bounds {
        fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
    }
}

use sealed::Bounds;

impl Bounds for RangeFull {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> Bounds for Range<K> {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start.as_ref()), Bound::Excluded(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> Bounds for RangeInclusive<K> {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start().as_ref()), Bound::Included(self.end().as_ref()))
    }
}

impl<K: AsRef<[u8]>> Bounds for RangeFrom<K> {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start.as_ref()), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> Bounds for RangeTo<K> {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Excluded(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> Bounds for RangeToInclusive<K> {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Included(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> Bounds for (Bound<K>, Bound<K>) {
    fn ends(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.0.as_ref().map(AsRef::as_ref), self.1.as_ref().map(AsRef::as_ref))
    }
}

/// Returns the bounds of a range.
pub(crate) fn bounds(range: &impl KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    range.ends()
}

/// Returns the first key of the range and the first key behind it; `None` means unbounded.
pub(crate) fn half_open(range: &impl KeyRange) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (start, end) = range.ends();
    let lower = match start {
        Bound::Included(key) => Some(key.to_vec()),
        Bound::Excluded(key) => Some(behind(key)),
        Bound::Unbounded => None,
    };
    let upper = match end {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    (lower, upper)
}

/// Returns the successor of a key.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
