//! Gaps in scans over unreadable or partly unreadable tables: the keys left out, and how to
//! continue after them.
//!
//! A cursor that fails knows which keys of its table it leaves out ([`Gap`]). These are the keys of
//! the unreadable block or index part, as bounded by the separators around it. If the bounds are
//! unknown, they are the keys of the whole table. The end of a gap need not be the key of an entry.
//! Then it leaves its user key out: the trailer of `first` is 0, or the trailer of `last` is the
//! largest. The merged cursor treats a gap like an entry: it fails on reaching the gap, not before,
//! and continues when positioned after it.

use base::key::{self, TRAILER_LEN};
use base::{Error, Gap, InternalIterator, Result};
use std::sync::Arc;
use table::{FetchedBlocks, KsstIter, SeekTarget};
use version::FileMeta;

/// Returns a gap of all keys of a table.
pub(crate) fn of_file(file: &FileMeta) -> Gap {
    Gap { first: file.smallest.clone(), last: file.largest.clone() }
}

/// Returns the keys that a cursor over `file` left out, clipped to the file.
pub(crate) fn within_file(gap: Option<Gap>, file: &FileMeta) -> Gap {
    let whole = of_file(file);
    let Some(gap) = gap else { return whole };
    Gap {
        first: if key::compare(&whole.first, &gap.first).is_lt() { gap.first } else { whole.first },
        last: if key::compare(&whole.last, &gap.last).is_lt() { whole.last } else { gap.last },
    }
}

/// Returns true if the gap contains neither `user_key` nor any key before it.
pub(crate) fn begins_behind(gap: &Gap, user_key: &[u8]) -> bool {
    let (first, trailer) = key::split(&gap.first);
    first > user_key || first == user_key && trailer == 0
}

/// Returns true if the gap contains neither `user_key` nor any key after it.
pub(crate) fn ends_before(gap: &Gap, user_key: &[u8]) -> bool {
    let (last, trailer) = key::split(&gap.last);
    last < user_key || last == user_key && trailer == u64::MAX
}

/// Sets `key` to the position at which a cursor meets the gap: before every entry of its first user
/// key going forward, after every entry of its last user key going backward. A user key at an end
/// that is not in the gap is passed first.
pub(crate) fn meeting_point(gap: &Gap, forward: bool, key: &mut Vec<u8>) {
    let (user_key, trailer) = match (forward, key::split(&gap.first), key::split(&gap.last)) {
        (true, (user_key, 0), _) => (user_key, [0; TRAILER_LEN]),
        (true, (user_key, _), _) => (user_key, [0xff; TRAILER_LEN]),
        (false, _, (user_key, u64::MAX)) => (user_key, [0xff; TRAILER_LEN]),
        (false, _, (user_key, _)) => (user_key, [0; TRAILER_LEN]),
    };
    key.clear();
    key.extend_from_slice(user_key);
    key.extend_from_slice(&trailer);
}

/// A cursor over one table that knows which keys a failure leaves out.
pub struct TableCursor {
    pub(crate) cursor: KsstIter,
    pub(crate) file: Arc<FileMeta>,
}

impl TableCursor {
    /// Returns true if the key range of the table excludes all entries at `place`, so the table
    /// need not be read.
    fn ends_before(&self, place: SeekTarget<'_>) -> bool {
        match place {
            SeekTarget::From(target) => key::compare(&self.file.largest, target).is_lt(),
            SeekTarget::UpTo(target) => key::compare(target, &self.file.smallest).is_lt(),
            SeekTarget::First | SeekTarget::Last => false,
        }
    }

    pub(crate) fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        if !self.ends_before(place) {
            self.cursor.prepare(place, fetched);
        }
    }
}

impl InternalIterator for TableCursor {
    fn resume(&mut self) -> Result<()> {
        self.cursor.resume()
    }
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last()
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        if self.ends_before(SeekTarget::From(target)) {
            self.cursor.clear();
            return Ok(());
        }
        self.cursor.seek(target)
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        if self.ends_before(SeekTarget::UpTo(target)) {
            self.cursor.clear();
            return Ok(());
        }
        self.cursor.seek_for_prev(target)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }
    #[inline]
    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        self.cursor.next_key()
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }
    fn gap(&self) -> Option<Gap> {
        Some(within_file(self.cursor.gap(), &self.file))
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}

/// A cursor over a table that cannot be opened. It fails wherever the table may have an entry.
pub(crate) struct Unreadable {
    pub file: Arc<FileMeta>,
    pub error: Error,
}

impl Unreadable {
    fn fails(&self, meets: bool) -> Result<()> {
        if meets { Err(self.error.clone()) } else { Ok(()) }
    }
}

impl InternalIterator for Unreadable {
    fn valid(&self) -> bool {
        false
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.fails(true)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.fails(true)
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.fails(key::compare(&self.file.largest, target).is_ge())
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.fails(key::compare(&self.file.smallest, target).is_le())
    }
    fn next(&mut self) -> Result<()> {
        self.fails(true)
    }
    fn prev(&mut self) -> Result<()> {
        self.fails(true)
    }
    fn gap(&self) -> Option<Gap> {
        Some(of_file(&self.file))
    }
    fn key(&self) -> &[u8] {
        &[]
    }
    fn value(&self) -> &[u8] {
        &[]
    }
}
