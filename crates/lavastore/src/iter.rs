//! Iterators over keys from both ends, and cursors that seek.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::{Error, Result};
use lavakv::DbIterator;
use std::iter::FusedIterator;

/// A double-ended iterator over keys and values in byte order, for scans; `.rev()` descends.
///
/// [`Iter::keys`] reads no values, and [`Iter::cursor`] seeks in the same keys and copies nothing.
/// Each item copies its key and value.
///
/// * **Visibility.** The iterator shows the state of its creation, or of its snapshot. Later writes
///   stay invisible to it.
/// * **Cost.** `next` may block on the device; sequential items are read ahead.
///   [`ReadOptions`](crate::ReadOptions) tune that.
/// * **End.** An error is the last item: make another iterator behind the last key, or use a
///   [`Cursor`] to pass damage. After [`Db::close`](crate::Db::close) that error is `Closed`. A
///   range without keys yields nothing.
/// * **Space.** The iterator keeps superseded files on disk and the store open: drop it when it is
///   done.
///
/// ```
/// # let db = lavastore::testing::store();
/// for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
///     db.put(day, "sunny")?;
/// }
/// for entry in db.prefix("2024-01") {
///     let (day, weather) = entry?;
///     assert!(day.starts_with(b"2024-01-3") && weather == b"sunny");
/// }
/// let (last, _) = db.iter().next_back().expect("there are three")?;
/// assert_eq!(last, b"2024-02-01");
/// let backward: Vec<_> = db.range(.."2024-02").rev().collect::<Result<_, _>>()?;
/// assert_eq!(backward[0].0, b"2024-01-31");
/// # Ok::<(), lavastore::Error>(())
/// ```
///
/// ```
/// # let db = lavastore::testing::store();
/// db.put("a", "1")?;
/// let scan = db.iter();
/// db.put("b", "2")?;
/// assert_eq!(scan.count(), 1, "later writes are invisible to the iterator");
/// # Ok::<(), lavastore::Error>(())
/// ```
#[must_use = "an iterator does nothing until it is asked"]
pub struct Iter {
    // Dropped before the family: this may be the handle that keeps the store open.
    /// The front end; like the back end it stands on its last returned entry.
    front: Option<DbIterator>,
    back: Option<DbIterator>,
    /// The unpositioned iterator from the constructor; the end that is advanced first takes it.
    fresh: Option<DbIterator>,
    /// The error of the constructor, returned as the first item.
    refused: Option<Error>,
    done: bool,
    family: FamilyHandle,
    /// Options to create the iterator of the other end.
    options: lavakv::ReadOptions,
}

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Iter {
    pub(crate) fn new(family: &FamilyHandle, options: lavakv::ReadOptions) -> Iter {
        let mut made = Iter {
            front: None,
            back: None,
            fresh: None,
            refused: None,
            done: false,
            family: family.clone(),
            options,
        };
        match family.kv().iter_cf(family.inner(), made.options.clone()) {
            Ok(fresh) => made.fresh = Some(fresh),
            Err(e) => made.refused = Some(e),
        }
        made
    }

    /// Narrows a scan to a range, to continue a paged scan behind the last key of a page, as of the
    /// same moment.
    ///
    /// The iterator restarts at both ends of the intersection with its former range. The former
    /// bounds stay in force, so the call never widens a scan; for another range make a new
    /// iterator. An empty intersection yields nothing. An iterator that has reached its end or an
    /// error stays at its end. The call cannot fail: an error is the next item.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use std::ops::Bound;
    /// for user in ["user/7", "user/8", "user/9", "video/1"] {
    ///     db.put(user, "")?;
    /// }
    /// let page = db.prefix("user/").within((Bound::Excluded("user/7"), Bound::Unbounded));
    /// assert_eq!(page.count(), 2);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn within(mut self, range: impl KeyRange) -> Iter {
        let (lower, upper) = half_open(&range);
        let options = &mut self.options;
        options.lower_bound = lower.into_iter().chain(options.lower_bound.take()).max();
        options.upper_bound = upper.into_iter().chain(options.upper_bound.take()).min();
        let standing = self.fresh.take().or(self.front.take()).or(self.back.take());
        if let Some(standing) = standing {
            match standing.beside(self.family.inner(), self.options.clone()) {
                Ok(fresh) => (self.fresh, self.done) = (Some(fresh), false),
                Err(e) => (self.refused, self.done) = (Some(e), false),
            }
        }
        self.back = None;
        self
    }

    /// Turns the iterator into one over keys only, for counts and listings: it reads no separated
    /// values from the device. It continues at the same position, as of the same moment. The call
    /// reads nothing and cannot fail. Damage to separated values (512 bytes and more by default)
    /// stays undetected.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("user/7", "ada")?;
    /// let users: Vec<Vec<u8>> = db.prefix("user/").keys().collect::<Result<_, _>>()?;
    /// assert_eq!(users, [b"user/7"]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn keys(self) -> Keys {
        Keys(self)
    }

    /// Turns the iterator into a cursor over the same keys and the same moment, where a program
    /// seeks, changes direction, or avoids copies.
    ///
    /// The cursor keeps the store open. The cursor has no position yet: call a `seek` method first.
    /// Call this before the iterator has reached its end or an error: afterwards the cursor of an
    /// iterator without a snapshot shows the present state.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("b", "2")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek("a")?;
    /// assert_eq!(cursor.key(), b"b");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`, `Io`: files cannot be opened. Repeat after `Io` with another iterator; for
    ///   damage see [`Db::damaged_files`](crate::Db::damaged_files).
    /// * `NotFound`: the family was dropped.
    /// * `InvalidArgument`: the snapshot belongs to another store.
    /// * `Closed`, `Forked`: the store was closed, or a parent process opened it. Open it again.
    pub fn cursor(mut self) -> Result<Cursor> {
        let iterator = self.another()?;
        Ok(Cursor { iterator, _family: self.family })
    }

    /// Returns an unpositioned engine iterator.
    fn another(&mut self) -> Result<DbIterator> {
        if let Some(e) = self.refused.take() {
            return Err(e);
        }
        if let Some(fresh) = self.fresh.take() {
            return Ok(fresh);
        }
        match self.front.as_ref().or(self.back.as_ref()) {
            Some(other) => other.beside(self.family.inner(), self.options.clone()),
            None => self.family.kv().iter_cf(self.family.inner(), self.options.clone()),
        }
    }

    /// Moves one end to its next entry, unless the other end has returned it already.
    fn advance(&mut self, end: End) -> Result<Option<&DbIterator>> {
        if self.done {
            return Ok(None);
        }
        // An error is the last item.
        self.done = true;
        let fresh = match end {
            End::Front if self.front.is_none() => Some(self.another()?),
            End::Back if self.back.is_none() => Some(self.another()?),
            _ => None,
        };
        let (own, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        let moved = match (fresh, own) {
            (Some(fresh), own) => {
                let fresh = own.insert(fresh);
                match end {
                    End::Front => fresh.seek_to_first()?,
                    End::Back => fresh.seek_to_last()?,
                }
                fresh
            }
            (None, Some(standing)) => {
                match end {
                    End::Front => standing.next()?,
                    End::Back => standing.prev()?,
                }
                standing
            }
            (None, None) => return Ok(None),
        };
        let met = other.as_ref().is_some_and(|other| match end {
            End::Front => moved.key() >= other.key(),
            End::Back => moved.key() <= other.key(),
        });
        if met || !moved.valid() {
            return Ok(None);
        }
        self.done = false;
        Ok(Some(moved))
    }

    fn entry(&mut self, end: End) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        let read = |it: &DbIterator| it.value().map(|value| (it.key().to_vec(), value.to_vec()));
        let found = self.advance(end).and_then(|it| it.map(read).transpose());
        self.done |= found.is_err();
        self.let_go_if_done();
        found.transpose()
    }

    fn key(&mut self, end: End) -> Option<Result<Vec<u8>>> {
        let found = self.advance(end).map(|it| it.map(|it| it.key().to_vec()));
        self.let_go_if_done();
        found.transpose()
    }

    /// Releases the files at the end.
    fn let_go_if_done(&mut self) {
        if self.done {
            (self.front, self.back, self.fresh) = (None, None, None);
        }
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry(End::Front)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entry(End::Back)
    }
}

impl FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter(family {:?}{})", self.family.inner().name(), if self.done { ", done" } else { "" })
    }
}

/// An iterator over keys without their values, for counts and listings; [`Iter::keys`] returns it.
///
/// It is as [`Iter`]: it shows one moment, `.rev()` descends, and an error is the last item. It
/// keeps superseded files on disk and the store open. Damage to separated values stays undetected.
///
/// ```
/// # let db = lavastore::testing::store();
/// db.put("a", "large value")?;
/// db.put("b", "larger value")?;
/// assert_eq!(db.iter().keys().next_back().transpose()?, Some(b"b".to_vec()));
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct Keys(Iter);

impl Iterator for Keys {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.key(End::Front)
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.key(End::Back)
    }
}

impl FusedIterator for Keys {}

/// A cursor over the keys of an [`Iter`], for joins and merges, where most keys are skipped, and to
/// avoid copies: it seeks, moves in both directions, and lends keys and values.
///
/// [`Iter::cursor`] returns it without a position: call a `seek` method first. After an error of a
/// move it has none either, and stays usable. It shows one moment, keeps superseded files on disk,
/// and keeps the store open. Moves may block on the device; one thread at a time moves it. After
/// [`Db::close`](crate::Db::close) moves fail with `Closed`.
///
/// ```
/// # let db = lavastore::testing::store();
/// for key in ["a1", "a2", "b1"] {
///     db.put(key, "value of ".to_owned() + key)?;
/// }
/// let mut cursor = db.range(.."b").cursor()?;
/// cursor.seek_to_last()?;
/// assert_eq!((cursor.key(), cursor.value()?), (&b"a2"[..], &b"value of a2"[..]));
/// cursor.prev()?;
/// cursor.prev()?;
/// assert!(!cursor.valid());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[must_use = "a cursor stands nowhere until it seeks"]
pub struct Cursor {
    iterator: DbIterator,
    // Dropped last: this may be the handle that keeps the store open.
    _family: FamilyHandle,
}

impl Cursor {
    /// Tells whether the cursor is on an entry, to end a loop of moves: false before the first
    /// seek, past an end, and after an error of a move. The `Result` of the move distinguishes an
    /// end from an error. The call reads nothing.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert!(!cursor.valid(), "there is nothing");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn valid(&self) -> bool {
        self.iterator.valid()
    }

    /// Moves to the first key of the range, to scan upward with [`Cursor::next`]. [`Cursor::seek`]
    /// begins at another key. Without keys the call succeeds and the cursor has no position. It may
    /// block on the device; a separated value is not read.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.key(), b"a");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. Any `seek` method starts anew, and the cursor stays usable.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.iterator.seek_to_first()
    }

    /// Moves to the last key of the range, to scan downward with [`Cursor::prev`].
    /// [`Cursor::seek_for_prev`] begins at another key. Without keys the call succeeds and the
    /// cursor has no position. It may block on the device; a separated value is not read.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("z", "26")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"z");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. Any `seek` method starts anew, and the cursor stays usable.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.iterator.seek_to_last()
    }

    /// Moves to the first key at or after `key`, to begin a scan there or to skip keys in a join;
    /// [`Cursor::seek_for_prev`] finds the last key at or before it.
    ///
    /// Without such a key in the range the call succeeds and the cursor has no position. It needs
    /// no former position, may block on the device, and does not read a separated value. A key
    /// before the range leads to its first key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("m", "13")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek("a")?;
    /// assert_eq!(cursor.key(), b"m");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. Any `seek` method starts anew, and the cursor stays usable.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.iterator.seek(key.as_ref())
    }

    /// Moves to the last key at or before `key`, to find the newest entry up to a time, or to scan
    /// downward; [`Cursor::seek`] finds the first key at or after it.
    ///
    /// Without such a key in the range the call succeeds and the cursor has no position. It needs
    /// no former position, may block on the device, and does not read a separated value. A key
    /// behind the range leads to its last key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("m", "13")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_for_prev("z")?;
    /// assert_eq!(cursor.key(), b"m");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. Any `seek` method starts anew, and the cursor stays usable.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.iterator.seek_for_prev(key.as_ref())
    }

    /// Moves to the next key of an upward scan; behind the last key the call succeeds and the
    /// cursor has no position. Entries in order are read ahead, so most calls do not block. It
    /// reads no separated value. It costs more after a [`Cursor::prev`], for the change of
    /// direction. To skip many keys use [`Cursor::seek`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_first()?;
    /// cursor.next()?;
    /// assert!(!cursor.valid() && cursor.next().is_err());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the cursor has no position. Seek first.
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. To retry, seek to the last key read: `next` and `prev` need a position.
    #[expect(clippy::should_implement_trait, reason = "a cursor, as `prev` is; `Iter` is the Iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.iterator.next()
    }

    /// Moves to the previous key of a downward scan; before the first key the call succeeds and the
    /// cursor has no position. It may block on the device, and reads no separated value. It costs
    /// more after a [`Cursor::next`], for the change of direction. To skip many keys use
    /// [`Cursor::seek_for_prev`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// db.put("b", "2")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_last()?;
    /// cursor.prev()?;
    /// assert_eq!(cursor.key(), b"a");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the cursor has no position. Seek first.
    /// * `Corruption`: stored bytes are damaged. [`Cursor::skip_damaged`] continues behind them.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error the cursor has no position: [`Cursor::valid`] is false, and [`Cursor::key`]
    /// is empty. To retry, seek to the last key read: `next` and `prev` need a position.
    pub fn prev(&mut self) -> Result<()> {
        self.iterator.prev()
    }

    /// Salvages the rest of a scan: continues behind damaged bytes after a move that failed with
    /// `Corruption`, in the same direction.
    ///
    /// The cursor skips every key that the damaged part may hold: one block of a file if its end is
    /// known, otherwise the whole file (from [`crate::DamagedFile::first_key`] to `last_key`).
    /// Entries of other files between these keys are skipped too, since newer damaged entries may
    /// replace them. After a key whose merge operands could not be folded, it skips that key. Read single keys with [`crate::Db::get`]. [`Db::repair`](crate::Db::repair)
    /// salvages a whole store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut cursor = db.iter().cursor()?;
    /// let mut moved = cursor.seek_to_first();
    /// loop {
    ///     match &moved {
    ///         Err(e) if e.is_corruption() => moved = cursor.skip_damaged(),
    ///         _ if cursor.valid() => moved = cursor.next(),
    ///         _ => break,
    ///     }
    /// }
    /// moved?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the last move did not fail in a file. Move or seek instead.
    /// * `Corruption`: the next part is damaged too. Call again.
    /// * `Io`: the system refused a read. Seek again.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    ///
    /// After an error of a read the cursor has no position: [`Cursor::valid`] is false.
    pub fn skip_damaged(&mut self) -> Result<()> {
        self.iterator.skip_damaged()
    }

    /// Lends the key at the position until the next move, without a copy and without a read. Empty
    /// if the cursor has no position; a stored key may be empty too, so check [`Cursor::valid`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.iter().cursor()?.key(), b"");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn key(&self) -> &[u8] {
        self.iterator.key()
    }

    /// Lends the value at the position until the next move, without a copy; empty if the cursor has
    /// no position, and for an empty value. To pass values without reading them use [`Cursor::key`]
    /// alone.
    ///
    /// A separated value (512 bytes and more by default) is read by the first call at a position,
    /// which may block on the device. Moves do not read it. Calls at consecutive positions read the
    /// next values ahead.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("a", "1")?;
    /// let mut cursor = db.iter().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.value()?, b"1");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: the separated value is damaged. Move on.
    /// * `Io`: the system refused a read. Repeat the call or move on.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the value. Use one that has it.
    ///
    /// The cursor keeps its position after an error, so [`Cursor::next`] continues the scan.
    pub fn value(&self) -> Result<&[u8]> {
        self.iterator.value()
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.valid() {
            true => write!(f, "Cursor(at \"{}\")", self.key().escape_ascii()),
            false => f.write_str("Cursor(nowhere)"),
        }
    }
}
