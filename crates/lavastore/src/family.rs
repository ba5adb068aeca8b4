//! Column family handles.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::read::Reader;
use crate::write::Writer;
use crate::{
    CompactProgress, CompactRequest, FamilyOptions, Iter, ReadOptions, Result, Value, ValueReader,
    ValueWriter, WriteOptions,
};

/// A column family: a key space of its own in a store, with its own options.
///
/// Use families for data that differs in options, or that is dropped as a whole. All families share
/// the log, so one [`WriteBatch`](crate::WriteBatch) changes several of them atomically, and one
/// snapshot covers them.
///
/// [`Db::family`](crate::Db::family) returns the handle. The handle is cheap to clone and usable
/// from any thread. Like a clone of the [`Db`](crate::Db) it keeps the store open. Once the family
/// is dropped, every use of the handle fails with `NotFound`.
///
/// ```
/// # let db = lavastore::testing::store();
/// let users = db.family("users")?;
/// users.put("7", "ada")?;
/// assert_eq!(users.get("7")?.as_deref(), Some(&b"ada"[..]));
/// for entry in users.prefix("7") {
///     let (_id, name) = entry?;
///     assert_eq!(name, b"ada");
/// }
/// assert!(db.get("7")?.is_none(), "the default family is another");
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
pub struct Family(FamilyHandle);

impl Family {
    pub(crate) fn new(handle: FamilyHandle) -> Family {
        Family(handle)
    }

    pub(crate) fn handle(&self) -> &FamilyHandle {
        &self.0
    }

    pub(crate) fn into_handle(self) -> FamilyHandle {
        self.0
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0, None)
    }

    fn writer(&self) -> Writer<'_> {
        Writer::new(&self.0, WriteOptions::default())
    }

    /// Returns the read methods of the family with other options, for example for a scan that
    /// bypasses the cache.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(users.reading(&options).get("7")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn reading<'a>(&'a self, options: &'a ReadOptions) -> Reader<'a> {
        self.reader().reading(options)
    }

    /// Returns the write methods of the family with other options: another durability, or a bound
    /// on the wait.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.writing(&lavastore::WriteOptions::durable()).put("7", "ada")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn writing(&self, options: &WriteOptions) -> Writer<'_> {
        Writer::new(&self.0, *options)
    }

    /// Reads the value of one key of the family; returns `None` if the key is absent. Blocks on the
    /// device only if memory and cache lack the value.
    ///
    /// [`Value::into_vec`] returns bytes that may be kept for long.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// assert!(users.get("7")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reader().get(key)
    }

    /// Returns whether a key of the family has a value, at a lower cost than [`Family::get`]: a
    /// separated value is not read, so damage to it stays undetected.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// assert!(!users.contains_key("7")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains_key(key)
    }

    /// Reads many keys of the family at one moment, with their device reads in parallel. The
    /// results are in the order of the keys, each with its own error. All values are in memory at
    /// once: split a very long list.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.put("7", "ada")?;
    /// let names: Result<Vec<_>, _> = users.multi_get(["7", "8"]).into_iter().collect();
    /// assert_eq!(names?.iter().flatten().count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.reader().multi_get(keys)
    }

    /// Reads at most `len` bytes of a value from byte `offset` on; `None` if the key is absent.
    ///
    /// The result is shorter, or empty, if the value ends earlier. Of a value in its own file, the
    /// call reads that part only.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.put("7", "ada")?;
    /// assert_eq!(users.get_range("7", 1, 9)?, Some(b"da".to_vec()));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.reader().get_range(key, offset, len)
    }

    /// Opens a value for reading in pieces, in constant memory if the value is large; `None` if the
    /// key is absent.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let films = db.family("films")?;
    /// assert!(films.get_stream("1")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.reader().get_stream(key)
    }

    /// Iterates over all keys of the family and their values in ascending byte order.
    ///
    /// Later writes stay invisible to the iterator, and an error is its last item; [`Iter::keys`]
    /// reads no values. The iterator keeps superseded files on disk: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// assert_eq!(users.iter().count(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn iter(&self) -> Iter {
        self.reader().iter()
    }

    /// Iterates over a range of keys of the family and their values in ascending byte order.
    ///
    /// An empty range, or a start after the end, yields nothing.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.put("7", "ada")?;
    /// assert_eq!(users.range("5"..).count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.reader().range(range)
    }

    /// Iterates over the keys of the family that begin with `prefix`, with their values, in
    /// ascending byte order.
    ///
    /// An empty prefix selects all keys.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let events = db.family("events")?;
    /// events.put("2024-01-31", "rain")?;
    /// assert_eq!(events.prefix("2024-").count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.reader().prefix(prefix)
    }

    /// Sets a key of the family to a value, and replaces the former value if there is one.
    ///
    /// A value may have up to 1 GiB; [`Family::put_stream`] writes a large one without holding it
    /// in memory. The write has the durability of
    /// [`Options::durability`](field@crate::Options::durability) on return (default: buffered), and
    /// is visible to all readers.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?.put("7", "ada")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1; [upgrade](crate::Db::upgrade) it.
    /// * `TooLarge`: the key is above 64 KiB, or the value above 1 GiB. Split the value.
    /// * `NoSpace`: the limit or the volume is full. Delete data or raise the limit.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writer().put(key, value)
    }

    /// Starts a value of the family that the caller writes in pieces, in constant memory.
    ///
    /// The value appears when [`ValueWriter::finish`] returns; until then readers see the former
    /// one.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut film = db.family("films")?.put_stream("1")?;
    /// film.append(b"frame")?;
    /// film.finish()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1; [upgrade](crate::Db::upgrade) it.
    /// * `TooLarge`: the key is above 64 KiB. Use a shorter one.
    /// * `NoSpace`: there is no room to begin a log. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Poisoned`: an earlier write failed at the device. Close and reopen the store.
    pub fn put_stream(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        self.writer().put_stream(key)
    }

    /// Deletes a key of the family; an absent key is no error. Costs a small write and no read.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?.delete("7")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1; [upgrade](crate::Db::upgrade) it.
    /// * `TooLarge`: the key is above 64 KiB, so it was never there.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.writer().delete(key)
    }

    /// Deletes all keys of a range of the family at the cost of one write, however many keys there
    /// are.
    ///
    /// An empty range deletes nothing; snapshots and iterators that exist still see the keys.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("events")?.delete_range("2023-".."2024-")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
    /// * `TooLarge`: a bound is above 64 KiB. Use a shorter one.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.writer().delete_range(range)
    }

    /// Frees the space of deleted and overwritten keys of a range now, and waits for that.
    ///
    /// Compaction runs in the background anyway; use this call after a mass delete or before a
    /// checkpoint. The call moves the data of the range down, level by level, to the last level in
    /// use. There it rewrites only files with deleted keys, or with versions that snapshots held.
    /// That takes device time and free space. Reads and writes continue; later writes are not
    /// moved. Versions that snapshots see stay. An empty range does nothing.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.delete_range("0".."9")?;
    /// users.compact_range(..)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `NoSpace`: no room for the output. Make room and repeat; no data is lost.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot compact. Completed parts stay.
    /// * The error of a background job, such as `Corruption` of a file in the range.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.compact_range_with(range, &CompactRequest::default(), &mut |_| {})
    }

    /// Compacts as [`Family::compact_range`] does, where data must be rewritten under new options,
    /// or the call needs cancellation or progress.
    ///
    /// [`CompactRequest::rewrite`] rewrites all data of the range under the present options, for
    /// example after a change of compression. `tell` gets the progress on the calling thread, at
    /// the start and after each rewritten table. To continue after an interrupted call, begin the
    /// range at [`CompactProgress::rewritten_to`].
    ///
    /// ```
    /// # use lavastore::{Compression, CompactRequest, FamilyOptions};
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.put("7", "ada")?;
    /// users.set_options(&FamilyOptions { compression: Compression::Zstd, ..users.options() })?;
    /// let mut last = None;
    /// users.compact_range_with(.., &CompactRequest { rewrite: true, ..Default::default() }, &mut |progress| {
    ///     last = progress.rewritten_to.clone().or(last.take());
    /// })?;
    /// assert_eq!(last.as_deref(), Some(&b"7"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `NoSpace`: no room for the output. Make room and repeat; no data is lost.
    /// * `Cancelled`: [`CompactRequest::cancel`] ended the call. Completed parts stay.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot compact. Completed parts stay.
    /// * The error of a background job, such as `Corruption` of a file in the range.
    pub fn compact_range_with(
        &self,
        range: impl KeyRange,
        request: &CompactRequest,
        tell: &mut dyn FnMut(&CompactProgress),
    ) -> Result<()> {
        let (start, end) = half_open(&range);
        let range = (start.as_deref(), end.as_deref());
        self.0.kv().compact_range_with(self.0.inner(), range, request.clone(), tell)
    }

    /// Returns the number of the family, 0 for `default`; the store never reuses a number.
    ///
    /// [`Db::repair`](crate::Db::repair) reports losses by this number.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("default")?.id(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.0.inner().id()
    }

    /// Returns the name of the family, 1 to 1024 bytes.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.name(), "users");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.inner().name()
    }

    /// Returns the present options of the family, with derived values filled in.
    ///
    /// Use them as the base of [`Family::set_options`]. Sizes that the store reduced for a small
    /// volume are returned as given.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.options(), lavastore::FamilyOptions::default().derived());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn options(&self) -> FamilyOptions {
        self.0.inner().options()
    }

    /// Replaces the options of the family, durably, while reads and writes continue.
    ///
    /// New files use the new options at once. Existing data keeps its form until background work
    /// rewrites it; [`Family::compact_range_with`] forces that. The next open replaces the options
    /// of the family `default` by [`Options::family`](crate::Options::family).
    ///
    /// ```
    /// # use lavastore::FamilyOptions;
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// users.set_options(&FamilyOptions { min_blob_size: 4096, ..users.options() })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range; the message names it and its range.
    /// * `Unsupported`: this build lacks the compression.
    /// * `NotFound`: the family was dropped.
    /// * `ReadOnly`, `Closed`: this handle cannot write.
    /// * `NoSpace`: the former options stay. Make room and repeat.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    pub fn set_options(&self, options: &FamilyOptions) -> Result<()> {
        self.0.kv().set_family_options(self.0.inner(), options.clone())
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
