//! The level iterator: the disjoint files of one level as one cursor.
//!
//! The files of a level below 0 are sorted and share no user key, so at most one of them is open at
//! a time. A seek finds its file by binary search over the largest keys and opens only that file.
//! Stepping off the end of a file opens its neighbor. Files without point entries (only range
//! tombstones) are skipped.
//!
//! A file that ends with a range tombstone has an exclusive largest key. It sorts before every
//! entry of its user key, so comparing internal keys is right for both kinds of ends.

use base::{Error, Gap, InternalIterator, Result, key};
use std::ops::Range;
use std::sync::Arc;
use table::{FetchedBlocks, IterOptions, Ksst, KsstIter, ScanBounds, SeekTarget};
use version::{FileMeta, Level};

/// Opens tables. The engine owns the table cache; merge jobs and scans see only this trait, so they
/// also run on files that a test builds.
pub trait TableSource: Send + Sync {
    /// Returns the open table of `file`.
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>>;

    /// Reports that a scan passes over this many streams of a table, because a filter excludes the
    /// prefix of its keys.
    fn excludes(&self, _streams: u64) {}
}

/// Opens a cursor over the point entries of a file, for a level iterator.
pub trait CursorSource: Send {
    /// Type of the cursors.
    type Cursor: InternalIterator;
    /// Returns a cursor over `file`, not positioned yet.
    fn open(&self, file: &FileMeta) -> Result<Self::Cursor>;
}

/// Opens cursors over tables, all with the same options.
#[derive(Clone)]
pub struct TableCursors {
    /// Opens tables.
    pub source: Arc<dyn TableSource>,
    /// Read options of the cursors.
    pub options: IterOptions,
    /// Bounds beyond which the cursors do not read ahead.
    pub borders: Arc<ScanBounds>,
}

impl CursorSource for TableCursors {
    type Cursor = KsstIter;
    fn open(&self, file: &FileMeta) -> Result<KsstIter> {
        open_cursor(&*self.source, file, self.options, &self.borders)
    }
}

/// Opens a cursor over a table.
pub(crate) fn open_cursor(
    source: &dyn TableSource,
    file: &FileMeta,
    options: IterOptions,
    borders: &Arc<ScanBounds>,
) -> Result<KsstIter> {
    let cursor = source.table(file)?.iter_within(options, borders);
    if cursor.excluded_streams() > 0 {
        source.excludes(cursor.excluded_streams());
    }
    Ok(cursor)
}

/// A range `[lower, upper)` of user keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds<'a> {
    /// First user key in the range; `None`: no lower bound.
    pub lower: Option<&'a [u8]>,
    /// First user key after the range; `None`: no upper bound.
    pub upper: Option<&'a [u8]>,
}

impl Bounds<'_> {
    /// Returns an owned copy.
    pub fn borders(&self) -> ScanBounds {
        let (lower, upper) = (self.lower.map(<[u8]>::to_vec), self.upper.map(<[u8]>::to_vec));
        ScanBounds { lower, upper, ..ScanBounds::default() }
    }

    /// Returns true if `file` may hold a key in the range.
    pub fn meet(&self, file: &FileMeta) -> bool {
        self.lower.is_none_or(|lower| !file.ends_before(lower))
            && self.upper.is_none_or(|upper| file.smallest_user_key() < upper)
    }

    /// Returns the indexes of the files of a level (sorted and disjoint) that may hold a key in the
    /// range.
    pub fn range_in(&self, files: &[Arc<FileMeta>]) -> Range<usize> {
        let from = self.lower.map_or(0, |lower| files.partition_point(|f| f.ends_before(lower)));
        let to =
            self.upper.map_or(files.len(), |upper| files.partition_point(|f| f.smallest_user_key() < upper));
        from..to.max(from)
    }
}

/// One cursor over the files of a level: see the module.
pub struct LevelIterator<S: CursorSource = TableCursors> {
    files: Level,
    /// Indexes of the files to read.
    range: Range<usize>,
    source: S,
    /// Index of the file that `cursor` reads.
    at: usize,
    cursor: Option<S::Cursor>,
    /// Keys left out by the last failure.
    gap: Option<Gap>,
}

impl<S: CursorSource> LevelIterator<S> {
    /// Returns a cursor over those `files` (sorted and disjoint) that overlap `bounds`. Files are
    /// read whole, so the cursor may return keys outside the bounds.
    pub fn new(files: Level, bounds: Bounds<'_>, source: S) -> Self {
        debug_assert!(
            files.windows(2).all(|w| w[0].ends_before(w[1].smallest_user_key())),
            "the files of a level are not sorted and disjoint"
        );
        let range = bounds.range_in(&files);
        LevelIterator { files, range, source, at: 0, cursor: None, gap: None }
    }

    /// Returns the cursor of file `at`, and opens the file if needed. Returns `None` for an index
    /// outside the range.
    fn cursor_of(&mut self, at: usize) -> Result<Option<&mut S::Cursor>> {
        if !self.range.contains(&at) {
            self.cursor = None;
            return Ok(None);
        }
        if self.at != at || self.cursor.is_none() {
            self.cursor = None;
            self.at = at;
            self.cursor = Some(self.source.open(&self.files[at])?);
        }
        Ok(self.cursor.as_mut())
    }

    /// Moves to the first entry of the next file while the current one has ended.
    fn skip_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|c| !c.valid()) {
            if let Some(cursor) = self.cursor_of(self.at + 1)? {
                cursor.seek_to_first()?;
            }
        }
        Ok(())
    }

    /// Moves to the last entry of the previous file while the current one has ended.
    fn skip_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|c| !c.valid()) {
            if let Some(cursor) = self.cursor_of(self.at.wrapping_sub(1))? {
                cursor.seek_to_last()?;
            }
        }
        Ok(())
    }

    /// Records an error before returning it; the iterator is not valid after an error.
    fn settle(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            self.fail(e);
        }
        result
    }

    #[cold]
    fn fail(&mut self, e: &Error) {
        let told = self.cursor.as_ref().and_then(|cursor| cursor.gap());
        // A cursor that waits for a read continues later.
        self.cursor.take_if(|_| !e.is_waiting());
        self.gap = self.files.get(self.at).map(|file| crate::gap::within_file(told, file));
    }

    /// Returns the index of the file in which a seek begins, or an index outside the range if there
    /// is none.
    fn first_file(&self, place: SeekTarget<'_>) -> usize {
        let files_before = |is_before: &dyn Fn(&FileMeta) -> bool| {
            self.range.start + self.part().partition_point(|f| is_before(f))
        };
        match place {
            SeekTarget::First => self.range.start,
            SeekTarget::Last => self.range.end.wrapping_sub(1),
            SeekTarget::From(target) => files_before(&|f| key::compare(&f.largest, target).is_lt()),
            SeekTarget::UpTo(target) => {
                files_before(&|f| key::compare(&f.smallest, target).is_le()).wrapping_sub(1)
            }
        }
    }

    /// Moves the cursor of the file in which a seek begins.
    fn seek_in(
        &mut self,
        place: SeekTarget<'_>,
        seek: impl FnOnce(&mut S::Cursor) -> Result<()>,
    ) -> Result<()> {
        let cursor = self.cursor_of(self.first_file(place))?;
        cursor.map_or(Ok(()), seek)
    }

    /// Returns the files to read.
    fn part(&self) -> &[Arc<FileMeta>] {
        &self.files[self.range.clone()]
    }

    fn present(&self) -> &S::Cursor {
        self.cursor.as_ref().expect("used an iterator that is not valid")
    }
}

impl LevelIterator {
    /// Prepares the file in which the seek begins, and opens it: see [`KsstIter::prepare`].
    pub(crate) fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        if let Ok(Some(cursor)) = self.cursor_of(self.first_file(place)) {
            cursor.prepare(place, fetched);
        }
    }

    /// See [`KsstIter::each_fetched`].
    pub(crate) fn each_fetched(&mut self, visit: &mut dyn FnMut(&mut FetchedBlocks)) {
        self.cursor.iter_mut().for_each(|cursor| cursor.each_fetched(visit));
    }

    /// See [`KsstIter::held_bytes`].
    pub(crate) fn held_bytes(&self) -> u64 {
        self.cursor.as_ref().map_or(0, KsstIter::held_bytes)
    }
}

impl<S: CursorSource> InternalIterator for LevelIterator<S> {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(|c| c.valid())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        let moved = self.seek_in(SeekTarget::First, S::Cursor::seek_to_first);
        let moved = moved.and_then(|()| self.skip_forward());
        self.settle(moved)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        let moved = self.seek_in(SeekTarget::Last, S::Cursor::seek_to_last);
        let moved = moved.and_then(|()| self.skip_backward());
        self.settle(moved)
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let moved = self.seek_in(SeekTarget::From(target), |c| c.seek(target));
        let moved = moved.and_then(|()| self.skip_forward());
        self.settle(moved)
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let moved = self.seek_in(SeekTarget::UpTo(target), |c| c.seek_for_prev(target));
        let moved = moved.and_then(|()| self.skip_backward());
        self.settle(moved)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        let cursor = self.cursor.as_mut().expect("moved an iterator that is not valid");
        let moved = cursor.next();
        if moved.is_ok() && cursor.valid() {
            return Ok(());
        }
        let moved = moved.and_then(|()| self.skip_forward());
        self.settle(moved)
    }
    fn resume(&mut self) -> Result<()> {
        let moved = self.cursor.as_mut().map_or(Ok(()), InternalIterator::resume);
        let moved = moved.and_then(|()| self.skip_forward());
        self.settle(moved)
    }
    fn prev(&mut self) -> Result<()> {
        let cursor = self.cursor.as_mut().expect("moved an iterator that is not valid");
        let moved = cursor.prev();
        let moved = moved.and_then(|()| self.skip_backward());
        self.settle(moved)
    }
    fn gap(&self) -> Option<Gap> {
        self.gap.clone()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.present().key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.present().value()
    }
}

#[cfg(test)]
mod tests;
