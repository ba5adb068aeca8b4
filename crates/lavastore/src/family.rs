//! Column family handles.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::read::Reader;
use crate::write::Writer;
use crate::{
    CompactProgress, CompactRequest, FamilyOptions, Iter, ReadOptions, Result, Value, ValueReader,
    ValueWriter, WriteOptions,
};

/// A column family: a key space of its own in a store, for data that differs in options, or that is
/// dropped as a whole.
///
/// All families share the log, so one [`WriteBatch`](crate::WriteBatch) changes several of them
/// atomically, and one snapshot covers them. A family has memtables and files of its own: for many
/// small groups of keys use prefixes of one family.
///
/// [`Db::family`](crate::Db::family) returns the handle. The handle is cheap to clone and usable
/// from any thread. Like a clone of the [`Db`](crate::Db) it keeps the store open. Once the family
/// is dropped, every read and write of the handle fails with `NotFound`.
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

    /// Chooses options for reads of the family, for example for a scan that must not displace the
    /// cache. The call reads nothing, costs nothing and cannot fail; plain methods use the
    /// defaults.
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

    /// Chooses options for single writes to the family: another durability, or a bound on the wait.
    /// The call writes nothing, costs nothing and cannot fail; plain methods use the options of the
    /// store.
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

    /// Reads the value of one key of the family; `None` if the key is absent. [`Family::multi_get`]
    /// is faster for many keys; [`Family::get_range`] reads part of a large value.
    ///
    /// The call sees every write that returned before. It blocks on the device only if memory and
    /// cache lack the value. [`Value::into_vec`] returns bytes that may be kept for long.
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
    /// * `NotFound`: the family was dropped; an absent key is no error. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reader().get(key)
    }

    /// Checks whether a key of the family has a value, for a test that does not need the value:
    /// cheaper than [`Family::get`].
    ///
    /// A key with an empty value gives true. A separated value (512 bytes and more by default) is
    /// not read, so damage to it stays undetected.
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
    /// * `NotFound`: the family was dropped; an absent key is no error. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains_key(key)
    }

    /// Reads many keys of the family as of one moment, faster than single reads.
    ///
    /// Up to 256 device reads run in parallel. The results are in the order of the keys, each with
    /// its own error; `None` is an absent key. All values are in memory at once: split a very long
    /// list. For adjacent keys use [`Family::range`].
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
    /// * `NotFound`: the family was dropped; an absent key is no error. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.reader().multi_get(keys)
    }

    /// Reads a part of a value, to keep the rest out of memory: at most `len` bytes from byte
    /// `offset` on; `None` if the key is absent.
    ///
    /// The result is shorter, or empty, if the value ends earlier. Of a value in its own file (over
    /// 4 MiB by default, or a longer stream), the call reads that part only; a shorter value is
    /// read whole. `len` may be larger than the value. For several parts of one version use
    /// [`Family::get_stream`].
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
    /// * `NotFound`: the family was dropped; an absent key is no error. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.reader().get_range(key, offset, len)
    }

    /// Opens a large value for reading in pieces, where the whole does not fit in memory; `None` if
    /// the key is absent. For one small part use [`Family::get_range`].
    ///
    /// The reader shows this version, even if the key is overwritten later, and keeps it on disk
    /// and the store open until its drop. A value without a file of its own (up to 4 MiB by
    /// default) is read at once.
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
    /// * `NotFound`: the family was dropped; an absent key is no error. Get another handle.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.reader().get_stream(key)
    }

    /// Scans all keys of the family and their values in ascending byte order; `.rev()` descends.
    ///
    /// Later writes stay invisible to the iterator. Creation cannot fail: an error is the last
    /// item. [`Iter::keys`] reads no values. The iterator keeps superseded files on disk and the
    /// store open: drop it early.
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

    /// Scans a range of keys of the family, such as a span of time, with their values in ascending
    /// byte order; `.rev()` descends.
    ///
    /// An empty range, or a start after the end, yields nothing. An error is the last item. Later
    /// writes stay invisible. The iterator keeps superseded files on disk and the store open: drop
    /// it early. [`Family::prefix`] selects by a common beginning.
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

    /// Scans the keys of the family that begin with `prefix`, such as all items of a user, with
    /// their values, in ascending byte order.
    ///
    /// An empty prefix selects all keys. An error is the last item. Later writes stay invisible.
    /// The iterator keeps superseded files on disk and the store open: drop it early.
    /// [`Iter::within`] continues a paged scan.
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

    /// Sets one key of the family, and replaces its value; a [`WriteBatch`](crate::WriteBatch) sets
    /// several together.
    ///
    /// On return all readers see the write. It has the durability of
    /// [`Options::durability`](field@crate::Options::durability) (default: buffered, so a loss of
    /// power may take it until [`Db::sync`](crate::Db::sync)). The call may wait for memory,
    /// background work or space: [`Family::writing`] bounds that. A value has at most 1 GiB;
    /// [`Family::put_stream`] writes one that does not fit in memory.
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
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writer().put(key, value)
    }

    /// Starts a value of the family that does not fit in memory: the caller writes it in pieces, up
    /// to 1 GiB. For a value in memory use [`Family::put`].
    ///
    /// The value appears when [`ValueWriter::finish`] returns; until then readers see the former
    /// one. Its durability is that of [`Family::put`]; the writer keeps the store open. A drop
    /// before that leaves the former value. Errors of space and of a dropped family appear with the
    /// pieces and at the end.
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

    /// Deletes one key of the family; an absent key is no error. Costs a small write and no read.
    ///
    /// On return no new read sees the key; existing snapshots and iterators do. Durability is that
    /// of [`Family::put`]. Background work frees the space later. A delete also works in a store at
    /// its space limit. For many adjacent keys use [`Family::delete_range`].
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
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.writer().delete(key)
    }

    /// Deletes all keys of a range of the family at the cost of one write, however many keys there
    /// are.
    ///
    /// On return no new read sees the keys; existing snapshots and iterators do. An empty range
    /// deletes nothing. Durability is that of [`Family::put`]. Background work frees the space
    /// later; [`Family::compact_range`] does it now. [`Db::drop_family`](crate::Db::drop_family)
    /// removes all data of a family.
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
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.writer().delete_range(range)
    }

    /// Drops the deleted and overwritten data of a range now, and waits: after a mass delete, or
    /// before a checkpoint. Compaction runs in the background anyway.
    ///
    /// The call flushes the whole store, then moves the data of the range down, level by level, to
    /// the last level in use, where it lies on return. There it rewrites only files with deleted
    /// keys, or with versions of former snapshots. Files move as a whole, with the keys around the
    /// range. Versions that open snapshots see stay, and later writes are not moved.
    ///
    /// Small values are freed on return. Of separated values (512 bytes and more by default) only
    /// the keys are dropped: [`Db::collect_garbage`](crate::Db::collect_garbage) frees the values.
    /// The call takes device time and free space; reads and writes continue. It skips damaged files
    /// without an error: see [`Db::damaged_files`](crate::Db::damaged_files).
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
    /// * `Io`, `Poisoned`: background work failed. After `Poisoned` close and reopen the store.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.compact_range_with(range, &CompactRequest::default(), &mut |_| {})
    }

    /// Compacts as [`Family::compact_range`] does, where data must be rewritten under new options,
    /// or the call needs cancellation or progress.
    ///
    /// [`CompactRequest::rewrite`] rewrites all data of the range under the present options, for
    /// example after a change of compression. `tell` gets the progress on the calling thread, at
    /// the start and after each rewritten table. Cost and effect are otherwise those of
    /// [`Family::compact_range`]. To continue after an interrupted call, begin the range at
    /// [`CompactProgress::rewritten_to`].
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
    /// * `Io`, `Poisoned`: background work failed. After `Poisoned` close and reopen the store.
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

    /// Returns the number of the family, to find it in the report of
    /// [`Db::repair`](crate::Db::repair), which names families by number.
    ///
    /// The number is 0 for `default`; the store never reuses one. Another store numbers its
    /// families anew. The call reads memory only, also after a drop of the family.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("default")?.id(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.0.inner().id()
    }

    /// Returns the name of the family, for messages and for [`Db::family`](crate::Db::family) after
    /// the next open. It has 1 to 1024 bytes and never changes. The call reads memory only, also
    /// after a drop of the family or a close. A later family of the same name has another
    /// [`Family::id`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.name(), "users");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.inner().name()
    }

    /// Returns the present options of the family, as the base of [`Family::set_options`], with
    /// derived values filled in.
    ///
    /// Sizes that the store reduced for a small volume are returned as given. The call reads memory
    /// only. Without an open store use
    /// [`Db::stored_family_options`](crate::Db::stored_family_options).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.options(), lavastore::FamilyOptions::default().derived());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn options(&self) -> FamilyOptions {
        self.0.inner().options()
    }

    /// Changes the options of an existing family while reads and writes continue, for example its
    /// compression.
    ///
    /// The change is durable on return. New files use the new options at once. Existing data stays
    /// readable in its form until background work rewrites it; [`Family::compact_range_with`]
    /// forces that. All options are replaced: begin with [`Family::options`]. The next open
    /// replaces those of the family `default` by [`Options::family`](crate::Options::family).
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
    /// * `Unsupported`: this build lacks the compression or the policy.
    /// * `NotFound`: the family was dropped.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
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
