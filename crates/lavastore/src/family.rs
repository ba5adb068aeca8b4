//! Column family handles.

use crate::handle::Handle;
use crate::range::{KeyRange, half_open};
use crate::read::Reader;
use crate::write::Writer;
use crate::{
    CompactProgress, CompactRequest, FamilyOptions, Iter, ReadOptions, Result, Value, ValueReader,
    ValueWriter, WriteOptions,
};

/// A column family: a key space with its own options.
///
/// [`Db::family`](crate::Db::family) returns the handle. It is cheap to clone and usable from any
/// thread, and like a clone of the [`Db`](crate::Db) it keeps the store open. Once the family is
/// dropped, every use of the handle fails with `NotFound`.
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
pub struct Family(Handle);

impl Family {
    pub(crate) fn new(handle: Handle) -> Family {
        Family(handle)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0
    }

    pub(crate) fn into_handle(self) -> Handle {
        self.0
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0, None)
    }

    fn writer(&self) -> Writer<'_> {
        Writer::new(&self.0, WriteOptions::default())
    }

    /// Returns the read methods with other options.
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

    /// Returns the write methods with other options.
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

    /// Reads a key. The value pins its memory; [`Value::into_vec`] copies it.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// assert!(users.get("7")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Reader::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reader().get(key)
    }

    /// Returns whether the key has a value, without reading a separated value.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// assert!(!users.contains_key("7")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Reader::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains_key(key)
    }

    /// Reads many keys as of one moment: see [`Reader::multi_get`].
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
    /// For each key, the errors of [`Reader::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.reader().multi_get(keys)
    }

    /// Reads a part of a value: see [`Reader::get_range`].
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
    /// The errors of [`Reader::get`].
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.reader().get_range(key, offset, len)
    }

    /// Reads the value of a key piece by piece, in constant memory if it is large.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let films = db.family("films")?;
    /// assert!(films.get_stream("1")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Reader::get`].
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.reader().get_stream(key)
    }

    /// Returns an iterator over all keys and values, in order.
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

    /// Returns an iterator over a range of keys and their values, in order.
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

    /// Returns an iterator over the keys with a prefix and their values, in order.
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

    /// Sets a key. A value may have up to 1 GiB; [`Family::put_stream`] writes a large one without
    /// holding it in memory.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?.put("7", "ada")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Writer::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writer().put(key, value)
    }

    /// Sets a key to a value that the caller writes piece by piece, in constant memory.
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
    /// The errors of [`Writer::put`].
    pub fn put_stream(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        self.writer().put_stream(key)
    }

    /// Deletes a key. A missing key is no error.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?.delete("7")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Writer::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.writer().delete(key)
    }

    /// Deletes all keys of a range at the cost of one write.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("events")?.delete_range("2023-".."2024-")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Writer::delete_range`].
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.writer().delete_range(range)
    }

    /// Compacts a range down to its last level, and waits. Calls are optional: compaction runs in
    /// the background.
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
    /// `InvalidArgument` if the start is after the end; `NotFound` if the family was dropped;
    /// `ReadOnly`; `NoSpace`; the error of a background job.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.compact_range_with(range, &CompactRequest::default(), &mut |_| {})
    }

    /// Same as [`Family::compact_range`], with options: a request can rewrite all tables of the
    /// range under the present options. `tell` gets the progress on the calling thread, at the
    /// start and after each rewritten table. After an interrupted call the next one resumes where
    /// it stopped.
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
    /// The errors of [`Family::compact_range`].
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

    /// Returns the number of the family, which the store never reuses.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("default")?.id(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.0.inner().id()
    }

    /// Returns the name of the family.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.name(), "users");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.inner().name()
    }

    /// Returns the present options of the family. Sizes that did not fit the volume are returned as
    /// given.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.family("users")?.options(), lavastore::FamilyOptions::default().derived());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn options(&self) -> FamilyOptions {
        self.0.inner().options()
    }

    /// Replaces the options of the family. Existing data stays as it is until compaction or
    /// collection rewrites it. For the family `default`, the next open with
    /// [`Options::family`](crate::Options::family) replaces them again.
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
    /// `InvalidArgument` for an option out of range; `NotFound` if the family was dropped;
    /// `ReadOnly`; errors of writing the manifest.
    pub fn set_options(&self, options: &FamilyOptions) -> Result<()> {
        self.0.kv().set_family_options(self.0.inner(), options.clone())
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
