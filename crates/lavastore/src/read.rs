//! Reads of one column family, as of a snapshot or now, with options.

use crate::handle::FamilyHandle;
use crate::iter::Iter;
use crate::range::{KeyRange, half_open};
use crate::{Result, Value, ValueReader};
use lavakv::ReadAt;

/// Options of reads, for a scan that must not displace the cache or needs larger device reads; see
/// [`Db::reading`](crate::Db::reading).
///
/// The default suits point reads and short scans. Point reads use `fill_cache` only; the other
/// fields concern iterators.
///
/// ```
/// # let db = lavastore::testing::store();
/// // A scan that will not come again: large reads, and nothing is put into the cache.
/// let once = lavastore::ReadOptions { readahead_bytes: 1 << 20, fill_cache: false, ..Default::default() };
/// assert_eq!(db.reading(&once).iter().count(), 0);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Name of an iterator in [`Space::holders`](crate::Space::holders), so that a leaked one can
    /// be found. Any string. It has no effect on point reads. Default: empty, no name.
    pub name: String,
    /// Whether blocks that a read fetches enter the block cache. Set `false` for a scan of data
    /// that will not be read again soon. Cached blocks are used in either case, unless
    /// `readahead_bytes` bypasses the cache. Default: true.
    pub fill_cache: bool,
    /// Read-ahead of an iterator in bytes, bypassing the block cache: for a long scan, for example
    /// 1 MiB. A larger one costs memory, and is wasted if the scan ends soon. 0 reads through the
    /// cache, in runs that start at 16 KiB after a seek and grow to 256 KiB. Default: 0.
    ///
    /// Consecutive calls for separated values prefetch the next ones in batches, from 4 entries
    /// growing to 256 (at most 1 MiB). A long scan reads the next batch while it consumes the
    /// present one. With a length given here, the first batch already holds as many of the next 256
    /// values as fit. Separated values always pass through the cache, and enter it on demand if
    /// `fill_cache` is set.
    pub readahead_bytes: usize,
    /// Expected number of entries that an iterator reads with their values after each seek, for
    /// short scans of a known length; 0: unknown. The separated values of these entries are read in
    /// one batch with the first (at most 256 and 1 MiB), and none beyond. Reading more entries is
    /// allowed and costs slightly more. Default: 0.
    pub expected_entries: usize,
}

/// Default options as a static, so that a reader can borrow them.
static DEFAULT: ReadOptions =
    ReadOptions { name: String::new(), fill_cache: true, readahead_bytes: 0, expected_entries: 0 };

impl Default for ReadOptions {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

/// Reads of one column family as of now or as of a [`Snapshot`](crate::Snapshot), with options.
///
/// [`Db::reading`](crate::Db::reading), [`Family::reading`](crate::Family::reading) and
/// [`Snapshot::family`](crate::Snapshot::family) return a reader. [`Db`](crate::Db),
/// [`Family`](crate::Family) and [`Snapshot`](crate::Snapshot) have the same methods for default
/// options. A reader borrows its parts and costs nothing to make.
///
/// * **Visibility.** A read without a snapshot sees every write that returned before the read
///   began, of any thread and any durability. It may see a durable write shortly before that write
///   is acknowledged.
/// * **Cost.** A read uses memory and cache, and blocks on the device only if they lack the data. A
///   read does not wait for writes to become durable.
/// * **State of the store.** Reads work in a read-only store, in a full store, and after a failed
///   write has poisoned the store. A closed store answers `Closed`.
///
/// ```
/// # use lavastore::ReadOptions;
/// # let db = lavastore::testing::store();
/// let users = db.family("users")?;
/// users.put("ada", "1815")?;
/// let before = db.snapshot();
/// users.delete("ada")?;
///
/// let then = before.family(&users);
/// assert_eq!(then.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// let uncached = ReadOptions { fill_cache: false, ..Default::default() };
/// assert!(then.reading(&uncached).get("ada")?.is_some());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it reads nothing until it is asked"]
pub struct Reader<'a> {
    family: &'a FamilyHandle,
    snapshot: Option<&'a lavakv::Snapshot>,
    options: &'a ReadOptions,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(family: &'a FamilyHandle, snapshot: Option<&'a lavakv::Snapshot>) -> Reader<'a> {
        Reader { family, snapshot, options: &DEFAULT }
    }

    /// Returns the same reader with other options, for example for a single scan of a snapshot that
    /// must not displace the cache. It keeps the family and the snapshot, and replaces all options.
    /// The call reads nothing and cannot fail.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let snapshot = db.snapshot();
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(snapshot.reading(&options).get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn reading(self, options: &'a ReadOptions) -> Reader<'a> {
        Reader { options, ..self }
    }

    fn at(&self) -> ReadAt<'a> {
        ReadAt { snapshot: self.snapshot, fill_cache: self.options.fill_cache }
    }

    /// Reads the value of one key; returns `None` if the key is absent.
    ///
    /// Without a snapshot the call sees every write that returned before. The value keeps its
    /// memory in use while it lives. [`Value::into_vec`] returns bytes that may be kept for long.
    ///
    /// The call reads the device only if memory and cache lack the value. Use [`Reader::multi_get`]
    /// for many keys, and [`Reader::get_stream`] for a value that should not be in memory as a
    /// whole. Damage to one key leaves other keys readable.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # db.put("key", "value")?;
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert_eq!(db.reading(&options).get("key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped; an absent key is `Ok(None)`. Get another handle.
    /// * `InvalidArgument`: the snapshot or the family is of another store. Use those of one store.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.family.kv().get_at(self.family.inner(), key.as_ref(), self.at())
    }

    /// Returns whether a key has a value, where the value itself is not needed: cheaper than
    /// [`Reader::get`].
    ///
    /// A key with an empty value gives true. The call does not read a separated value (512 bytes
    /// and more by default, see
    /// [`FamilyOptions::min_blob_size`](crate::FamilyOptions::min_blob_size)), so damage to that
    /// value stays undetected.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # db.put("key", "value")?;
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(db.reading(&options).contains_key("key")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped; an absent key is `Ok(false)`. Get another handle.
    /// * `InvalidArgument`: the snapshot or the family is of another store. Use those of one store.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    #[doc(alias = "exists")]
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.family.kv().contains_key_at(self.family.inner(), key.as_ref(), self.at())
    }

    /// Reads many keys as of one moment, with their device reads in parallel.
    ///
    /// The moment is that of the snapshot, or now. The results are in the order of the keys, each
    /// the result of [`Reader::get`]. An error concerns one key only. A duplicate key is read once;
    /// no keys give an empty vector.
    ///
    /// Up to 256 device reads are in flight, in file order, and adjacent reads are merged. So keys
    /// outside the cache are read at the throughput of the device. All values are in memory at
    /// once: split a very long list.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("mars", "2 moons")?;
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// for (key, found) in ["mars", "venus"].iter().zip(db.reading(&options).multi_get(["mars", "venus"])) {
    ///     assert_eq!(found?.is_some(), *key == "mars");
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped; an absent key is `Ok(None)`. Get another handle.
    /// * `InvalidArgument`: the snapshot or the family is of another store. Use those of one store.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.family.kv().multi_get_at(self.family.inner(), &keys, self.at())
    }

    /// Reads a part of a value, where the whole would cost too much memory: at most `len` bytes
    /// from byte `offset` on.
    ///
    /// The result is shorter if the value ends earlier, and empty if the value ends at or before
    /// `offset`. `None` means that the key is absent. Of a value in its own file (by default above
    /// 4 MiB, or streamed and above 256 KiB) the call reads that part only; other values are read
    /// as a whole. For many parts use [`Reader::get_stream`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// let before = db.snapshot();
    /// db.delete("film")?;
    /// let films = db.family("default")?;
    /// assert_eq!(before.family(&films).get_range("film", 2, 3)?, Some(b"ame".to_vec()));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped; an absent key is `Ok(None)`. Get another handle.
    /// * `InvalidArgument`: the snapshot or the family is of another store. Use those of one store.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.family.kv().get_range(self.family.inner(), key.as_ref(), offset, len, self.at())
    }

    /// Opens a value for reading in pieces, in constant memory if the value is large; `None` if the
    /// key is absent.
    ///
    /// The reader shows the value of this moment, even if the key is overwritten or deleted later.
    /// Until its drop it keeps this version on disk and the store open. A value without a file of
    /// its own (up to 4 MiB by default) is read at once. For one small part use
    /// [`Reader::get_range`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(db.reading(&options).get_stream("film")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped; an absent key is `Ok(None)`. Get another handle.
    /// * `InvalidArgument`: the snapshot or the family is of another store. Use those of one store.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        let found = self.family.kv().get_stream(self.family.inner(), key.as_ref(), self.at())?;
        Ok(found.map(|value| ValueReader::new(value, self.family.kv())))
    }

    /// Iterates over all keys and their values in ascending byte order; `.rev()` descends. Use
    /// [`Reader::range`] or [`Reader::prefix`] for a part.
    ///
    /// The iterator shows the state of its creation; later writes stay invisible to it. Creation
    /// reads no data; the first item may read the device. An error, such as `Closed` or a dropped
    /// family, is the last item. An iterator keeps superseded files on disk and the store open:
    /// drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # db.put("key", "value")?;
    /// let named = lavastore::ReadOptions { name: "nightly report".into(), ..Default::default() };
    /// let keys = db.reading(&named).iter();
    /// assert_eq!(db.space()?.holders[0].name, "nightly report");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn iter(&self) -> Iter {
        self.within(None, None, None)
    }

    /// Iterates over a range of keys and their values in ascending byte order; `.rev()` descends.
    /// For a common beginning use [`Reader::prefix`].
    ///
    /// An empty range, or a start after the end, yields nothing. Later writes stay invisible to the
    /// iterator, and an error is its last item. The iterator keeps superseded files on disk and the
    /// store open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # db.put("b", "")?;
    /// let options = lavastore::ReadOptions { readahead_bytes: 1 << 20, ..Default::default() };
    /// assert_eq!(db.reading(&options).range("a".."c").count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Iter {
        let (lower, upper) = half_open(&range);
        self.within(lower, upper, None)
    }

    /// Iterates over the keys that begin with `prefix` and their values, in ascending byte order;
    /// `.rev()` descends. For bounds use [`Reader::range`].
    ///
    /// An empty prefix selects all keys. Later writes stay invisible to the iterator, and an error
    /// is its last item. The iterator keeps superseded files on disk and the store open: drop it
    /// early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # db.put("user/7", "ada")?;
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert_eq!(db.reading(&options).prefix("user/").count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.within(None, None, Some(prefix.as_ref().to_vec()))
    }

    fn within(&self, lower: Option<Vec<u8>>, upper: Option<Vec<u8>>, prefix: Option<Vec<u8>>) -> Iter {
        let options = lavakv::ReadOptions {
            snapshot: self.snapshot.cloned(),
            name: self.options.name.clone(),
            lower_bound: lower,
            upper_bound: upper,
            prefix,
            keys_only: false,
            fill_cache: self.options.fill_cache,
            readahead_bytes: self.options.readahead_bytes,
            expected_entries: self.options.expected_entries,
        };
        Iter::new(self.family, options)
    }
}
