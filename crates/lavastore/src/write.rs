//! Writes to one column family with options, and batches.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, bounds};
use crate::{Error, Family, LogBatch, Result, ValueWriter, WriteOptions};

/// Writes to one column family with other options than the default: another durability, or a bound
/// on the wait. [`Db::writing`](crate::Db::writing) and [`Family::writing`] return it, and it costs
/// nothing to make.
///
/// Each write blocks until it has the [`Durability`](crate::Durability) of the options. On return
/// every reader sees it. Concurrent writers need no lock: the store orders their writes, and
/// durable writes share device writes. A write may wait for memory, background work or space;
/// [`WriteOptions::wait_at_most`] bounds that wait. For thousands of writes in flight on one thread
/// use [`Requests`](crate::Requests).
///
/// ```
/// # use lavastore::WriteOptions;
/// # let db = lavastore::testing::store();
/// let durable = db.writing(&WriteOptions::durable());
/// durable.put("order/1", "paid")?;
/// durable.delete("cart/1")?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it writes nothing until it is asked"]
pub struct Writer<'a> {
    family: &'a FamilyHandle,
    options: WriteOptions,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(family: &'a FamilyHandle, options: WriteOptions) -> Writer<'a> {
        Writer { family, options }
    }

    /// Returns the family and the options.
    pub(crate) fn parts(&self) -> (&'a FamilyHandle, &WriteOptions) {
        (self.family, &self.options)
    }

    /// Sets a key to a value, and replaces the former value if there is one.
    ///
    /// A key has at most 64 KiB, a value at most 1 GiB; [`Writer::write`] sets several keys
    /// together. [`Writer::put_stream`] writes a large value without holding it in memory. On
    /// return every reader sees the value. The call blocks until the write has its durability; a
    /// durable put always waits for the device. Of concurrent puts of one key, the last in the
    /// order of the store wins.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.writing(&lavastore::WriteOptions::durable()).put("key", "value")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: empty key in format 1. `TooLarge`: a key above 64 KiB, or a value above
    ///   1 GiB.
    /// * `NoSpace`: the limit or the volume is full. Delete data or raise the limit.
    /// * `Busy`: the wait would exceed [`WriteOptions::wait_at_most`]. Repeat later.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.family.kv().put_opt(self.family.inner(), key.as_ref(), value.as_ref(), &self.options)
    }

    /// Starts a value that the caller writes in pieces, in constant memory, up to 1 GiB. For a
    /// value in memory use [`Writer::put`].
    ///
    /// The former value stays visible until [`ValueWriter::finish`] returns; the new value then has
    /// the durability of the options. A crash or a drop before that leaves the former value.
    /// [`WriteOptions::wait_at_most`] bounds the wait of each piece. The writer keeps the store
    /// open. Concurrent writes of the key do not wait for the stream; the order of the `finish`
    /// calls decides.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut film = db.writing(&lavastore::WriteOptions::durable()).put_stream("film")?;
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
        let value = self.family.kv().put_stream(self.family.inner(), key.as_ref(), self.options)?;
        Ok(ValueWriter::new(value, self.family.kv()))
    }

    /// Deletes a key; an absent key is no error. For many adjacent keys use
    /// [`Writer::delete_range`].
    ///
    /// On return no new read sees the key. The cost is that of a small put, without a read.
    /// Snapshots and iterators that exist still see the value. Background work frees the space
    /// later. A delete also works in a store that is full.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.writing(&lavastore::WriteOptions::durable()).delete("key")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument` (empty key in format 1), `TooLarge` (above 64 KiB): no such key exists.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `Busy`: the wait would exceed [`WriteOptions::wait_at_most`]. Repeat later.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.family.kv().delete_opt(self.family.inner(), key.as_ref(), &self.options)
    }

    /// Adds a merge operand to a key, with the options of the writer: see
    /// [`Db::merge`](crate::Db::merge).
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice, WriteOptions};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::max());
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let seen = db.create_family("seen", &options)?;
    /// seen.writing(&WriteOptions::durable()).merge("ada", "2026-11-30")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::merge`](crate::Db::merge) and [`Writer::put`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.family.kv().merge_opt(self.family.inner(), key.as_ref(), operand.as_ref(), &self.options)
    }

    /// Deletes a key with a tombstone that vanishes together with the value, as soon as a compaction
    /// meets them. For keys that are only put and single-deleted, in turn: after an overwrite, a merge
    /// or another kind of delete, an older value may come back. [`Writer::delete`] has no such
    /// condition.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("queue/1", "task")?;
    /// db.writing(&lavastore::WriteOptions::buffered()).single_delete("queue/1")?;
    /// assert_eq!(db.get("queue/1")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Writer::delete`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.family.kv().single_delete_opt(self.family.inner(), key.as_ref(), &self.options)
    }

    /// Deletes all keys of a range at the cost of one write, however many keys there are. To empty
    /// a family for good use [`Db::drop_family`](crate::Db::drop_family).
    ///
    /// On return no new read sees the keys, and background work frees their space later. An empty
    /// range deletes nothing. Snapshots and iterators that exist still see the keys. A key that
    /// another thread writes at the same time is either deleted or survives, in the order of the
    /// store. A range without an end takes 128 KiB of the log, so prefer a bounded range.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let durable = lavastore::WriteOptions::durable();
    /// db.writing(&durable).delete_range("2023-".."2024-")?;
    /// db.writing(&durable).delete_range("2025-"..)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument` (start after end), `TooLarge` (a bound above 64 KiB): change the range.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `Busy`: the wait would exceed [`WriteOptions::wait_at_most`]. Repeat later.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.family.kv().delete_bounds_opt(self.family.inner(), bounds(&range), &self.options)
    }

    /// Writes a batch atomically, over any number of families: also others than that of the writer.
    /// A batch has at most 16 MiB + 128 KiB, without values above 4 MiB (by default).
    ///
    /// Readers and crashes see all changes of the batch or none. The changes apply in the order of
    /// the batch, so a later change of a key wins. The call blocks until the batch has its
    /// durability. The batch is unchanged and may be written again. An empty durable batch acts as
    /// [`Db::sync`](crate::Db::sync).
    ///
    /// ```
    /// # use lavastore::{WriteBatch, WriteOptions};
    /// # let db = lavastore::testing::store();
    /// let mut batch = WriteBatch::new();
    /// batch.put("a", "1");
    /// batch.put("b", "2");
    /// db.writing(&WriteOptions::durable()).write(&batch)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: a family of another store, or an empty key in a store of format 1.
    /// * `TooLarge`: a key, a value or the batch exceeds the [`limits`](crate::limits). Split it.
    /// * `NotFound`, `Unsupported`: a family was dropped, or this release lacks its policy.
    /// * `NoSpace`, `Busy`: no room, or a wait beyond the bound. Make room, or repeat later.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the batch may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        batch.check_store(self.family)?;
        self.family.kv().write_opt(&batch.inner, &self.options)
    }

    /// Writes changes of keys and operations on logs atomically, in one device write: for a state
    /// and its log that must agree after a crash. Use [`Writer::write`] or
    /// [`LogStore::write`](crate::LogStore::write) for one of the two.
    ///
    /// On return readers see both halves, and after a crash there are both or neither. Without a
    /// durability in the options the write has the default of the logs, which exclude
    /// [`Volatile`](crate::Durability::Volatile) writes. If buffered writes of keys precede it, the
    /// call first waits for their device write. Both parts together have at most 16 MiB + 128 KiB.
    /// A value above a quarter of
    /// [`ExpertOptions::log_group_bytes`](crate::ExpertOptions::log_group_bytes) (4 MiB by default)
    /// needs its own file and is refused as `TooLarge`: write it with a put.
    ///
    /// ```
    /// use lavastore::{LogBatch, WriteBatch, WriteOptions};
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// let (mut stock, mut order) = (WriteBatch::new(), LogBatch::new());
    /// stock.put("apples", "98");
    /// order.append(&orders, 1, "two apples");
    /// db.writing(&WriteOptions::buffered()).write_with_logs(&stock, &order)?;
    /// db.sync()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: no open logs, a volatile write, a deadline, or a part of another store.
    /// * `Trimmed`, `AlreadyExists`: an LSN is below the trim point, or has other bytes.
    /// * `NotFound`: a family or log is gone. `TooLarge`: beyond the [`limits`](crate::limits).
    /// * `NoSpace`: the limit or the volume is full. Trim logs, delete keys, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed; the batch may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the batch exists, whole or not at
    /// all; after another error nothing is written.
    pub fn write_with_logs(&self, batch: &WriteBatch, logs: &LogBatch<'_>) -> Result<()> {
        batch.check_store(self.family)?;
        if batch.is_empty() {
            let engine = self.family.logs_or_refuse()?.engine();
            logs.check_store(self.family.store())?;
            let durability = crate::log::durability_of(&self.options)?.unwrap_or_else(|| engine.durability());
            return engine.write(logs.inner(), durability);
        }
        write_with_logs(self.family, (&batch.inner, None), logs, &self.options)
    }
}

/// Writes changes of keys, under the conditions of a transaction, and operations on logs together.
pub(crate) fn write_with_logs(
    family: &FamilyHandle,
    (batch, conditions): (&lavakv::WriteBatch, Option<&lavakv::Conditions>),
    logs: &LogBatch<'_>,
    options: &WriteOptions,
) -> Result<()> {
    let engine = family.logs_or_refuse()?.engine();
    logs.check_store(family.store())?;
    let durability = crate::log::durability_of(options)?.unwrap_or_else(|| engine.durability());
    let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
    engine.write_with_primary(logs.inner(), &mut |sink| {
        let write = (batch, conditions);
        lavakv::multi_engine::write_embedded_in_secondary(family.kv(), write, &options, sink)
    })
}

/// Collects changes over any column families that must appear together, or that cost less in one
/// write; [`Db::write`](crate::Db::write) writes them atomically.
///
/// Building a batch only fills memory; it never blocks or fails. The batch keeps its first error,
/// such as `TooLarge`, ignores further changes, and the write returns the error. A batch holds at
/// most 16 MiB + 128 KiB, not counting values above a quarter of
/// [`ExpertOptions::log_group_bytes`](crate::ExpertOptions::log_group_bytes) (4 MiB by default). It
/// is unchanged by a write and may be written again.
///
/// A batch reads nothing: to change a value that depends on the present one, let one thread write
/// that key. For operations on logs in the same write use [`Writer::write_with_logs`].
///
/// ```
/// # use lavastore::WriteBatch;
/// # let db = lavastore::testing::store();
/// let by_name = db.family("by name")?;
/// let mut batch = WriteBatch::new();
/// batch.put("user/7", "ada");
/// batch.family(&by_name).put("ada", "7");
/// batch.delete("user/6");
/// db.write(&batch)?;
/// assert_eq!(by_name.get("ada")?.as_deref(), Some(&b"7"[..]));
/// # Ok::<(), lavastore::Error>(())
/// ```
///
/// ```
/// # use lavastore::WriteBatch;
/// # let db = lavastore::testing::store();
/// // A bulk load: bounded batches in place of single puts.
/// let mut batch = WriteBatch::new();
/// for i in 0..1000u32 {
///     batch.put(i.to_be_bytes(), "loaded");
///     if batch.byte_len() > 4 << 10 {
///         db.write(&batch)?;
///         batch.clear();
///     }
/// }
/// db.write(&batch)?;
/// assert_eq!(db.iter().keys().count(), 1000);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    inner: lavakv::WriteBatch,
    /// The store of the named families, if any; `Err` if they belong to several stores.
    store: Option<Result<crate::handle::StoreId, Mixed>>,
}

/// Marks a batch with families of several stores.
#[derive(Clone, Copy, Debug)]
struct Mixed;

impl WriteBatch {
    /// Returns an empty batch, which belongs to no store until [`WriteBatch::family`] names a
    /// family. For a single change use [`Db::put`](crate::Db::put); [`WriteBatch::clear`] empties a
    /// batch for reuse.
    ///
    /// ```
    /// assert!(lavastore::WriteBatch::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put of `key` in the family `default`; [`WriteBatch::family`] is for other families.
    /// The batch copies both slices.
    ///
    /// A later change of the same key in the batch wins. A key above 64 KiB or a value above 1 GiB
    /// makes the write fail with `TooLarge`. An empty key makes it fail with `InvalidArgument` in a
    /// store of format 1.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("key", "value");
    /// ```
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.inner.put(key.as_ref(), value.as_ref());
        self
    }

    /// Adds a delete of `key` in the family `default`, to remove it in the same step as other
    /// changes; an absent key is no error. It covers earlier puts of the key in the batch, and a
    /// later put wins. The batch copies the key; one above 64 KiB makes the write fail with
    /// `TooLarge`. For many keys use [`WriteBatch::delete_range`].
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.delete("key");
    /// ```
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.inner.delete(key.as_ref());
        self
    }

    /// Adds a merge operand to `key` in the family `default`, to change a value in the same step as other
    /// keys, without reading it: see [`Db::merge`](crate::Db::merge). The batch copies both slices.
    /// The write fails with `InvalidArgument` if the family has no merge operator, or if the operator
    /// refuses the operand.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("order/1", "paid").merge("paid", 1i64.to_le_bytes());
    /// ```
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.inner.merge(key.as_ref(), operand.as_ref());
        self
    }

    /// Adds a delete of a `key` of the family `default` that vanishes together with the value as soon as a
    /// compaction meets them, which suits queues. For keys that are only put and single-deleted, in
    /// turn: after an overwrite, a merge or another kind of delete, an older value may come back.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.single_delete("queue/1");
    /// ```
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.inner.single_delete(key.as_ref());
        self
    }

    /// Adds a delete of all keys of a range of the family `default`, at the size of two keys, for
    /// example to replace a range: delete it, then put the new keys.
    ///
    /// The delete covers earlier puts of the same batch, and not later ones. A bound has at most 64
    /// KiB. An empty range deletes nothing; a start after the end makes the write fail with
    /// `InvalidArgument`. A range without an end takes 128 KiB of the batch.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.delete_range("2023-".."2024-").delete_range(..="2022-");
    /// ```
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        self.inner.delete_bounds(bounds(&range));
        self
    }

    /// Returns the batch methods for another family, to change several families together.
    ///
    /// The result adds to this batch, which stays one atomic write. The call cannot fail. The write
    /// fails with `InvalidArgument` if the batch names families of two stores, and with `NotFound`
    /// if a family was dropped.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.family(&users).put("7", "ada").delete("6");
    /// assert_eq!(batch.len(), 2);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn family<'a>(&'a mut self, family: &'a Family) -> FamilyBatch<'a> {
        let family = family.handle();
        match self.store {
            None => self.store = Some(Ok(family.store())),
            Some(Ok(store)) if store != family.store() => self.store = Some(Err(Mixed)),
            Some(_) => {}
        }
        FamilyBatch { batch: &mut self.inner, family: family.inner() }
    }

    /// Removes all changes and the kept error, to reuse the memory for the next batch of a load.
    /// Without it a batch with a kept error fails at each write. Afterwards the batch belongs to no
    /// store until a change names a family. The call cannot fail.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("key", "value");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.inner.clear();
        self.store = None;
    }

    /// Returns the number of changes in the batch, for a loader that counts. A range delete counts
    /// as one, or two if it has no end. The number has no limit of its own: compare
    /// [`WriteBatch::byte_len`] with the limit.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("key", "value");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns true if the batch has no changes, so that a loop can omit the last write. It is also
    /// true if the only changes were refused, as with a key above 64 KiB: the write then returns
    /// the kept error. An empty durable batch still acts as [`Db::sync`](crate::Db::sync) when
    /// written.
    ///
    /// ```
    /// assert!(lavastore::WriteBatch::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the size of the batch in bytes, to write it before it reaches
    /// [`limits::BATCH_LEN_MAX`](crate::limits::BATCH_LEN_MAX), 16 MiB + 128 KiB.
    ///
    /// The size is that in the log: keys, values, and some bytes for each change. It includes
    /// values that will get their own files, although these do not count for the limit. The call is
    /// cheap enough for each change.
    ///
    /// ```
    /// let mut batch = lavastore::WriteBatch::new();
    /// let empty = batch.byte_len();
    /// batch.put("key", [7; 1000]);
    /// assert!(batch.byte_len() > empty + 1000);
    /// ```
    pub fn byte_len(&self) -> usize {
        self.inner.byte_len()
    }

    /// Returns the engine's batch, if all its families belong to the store of `family`.
    pub(crate) fn into_inner_for(self, family: &FamilyHandle) -> Result<lavakv::WriteBatch> {
        self.check_store(family).map(|()| self.inner)
    }

    fn check_store(&self, family: &FamilyHandle) -> Result<()> {
        match self.store {
            None => Ok(()),
            Some(Ok(store)) if store == family.store() => Ok(()),
            Some(_) => Err(Error::invalid(
                "the batch has a column family of another store: make a batch for each store",
            )),
        }
    }
}

/// Adds changes of one column family to a [`WriteBatch`], so that families change together;
/// [`WriteBatch::family`] returns it.
///
/// The changes belong to the batch: dropping the `FamilyBatch` keeps them, and only a write of the
/// batch stores them.
///
/// ```
/// # let db = lavastore::testing::store();
/// let (users, names) = (db.family("users")?, db.family("names")?);
/// let mut batch = lavastore::WriteBatch::new();
/// batch.family(&users).put("7", "ada");
/// batch.family(&names).put("ada", "7").delete("bob");
/// db.write(&batch)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it changes nothing by itself"]
pub struct FamilyBatch<'a> {
    batch: &'a mut lavakv::WriteBatch,
    family: &'a lavakv::ColumnFamily,
}

impl FamilyBatch<'_> {
    /// Adds a put of `key` in this family; the batch copies both slices. [`WriteBatch::put`] is for
    /// the family `default`. A later change of the same key in the batch wins. The write fails with
    /// `TooLarge` for a key above 64 KiB or a value above 1 GiB.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let (users, mut batch) = (db.family("users")?, lavastore::WriteBatch::new());
    /// batch.family(&users).put("7", "ada").put("8", "bob");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.batch.put_cf(self.family, key.as_ref(), value.as_ref());
        self
    }

    /// Adds a delete of `key` in this family, to remove it in the same step as other changes; an
    /// absent key is no error. It covers earlier puts of the key in the batch, and a later put
    /// wins. The batch copies the key; one above 64 KiB makes the write fail with `TooLarge`.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let (users, mut batch) = (db.family("users")?, lavastore::WriteBatch::new());
    /// batch.family(&users).delete("7");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.delete_cf(self.family, key.as_ref());
        self
    }

    /// Adds a merge operand to `key` in this family, to change a value in the same step as other
    /// keys, without reading it: see [`Db::merge`](crate::Db::merge). The batch copies both slices.
    /// The write fails with `InvalidArgument` if the family has no merge operator, or if the operator
    /// refuses the operand.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let (visits, mut batch) = (db.family("visits")?, lavastore::WriteBatch::new());
    /// batch.family(&visits).merge("7", 1i64.to_le_bytes());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.batch.merge_cf(self.family, key.as_ref(), operand.as_ref());
        self
    }

    /// Adds a delete of a `key` of this family that vanishes together with the value as soon as a
    /// compaction meets them, which suits queues. For keys that are only put and single-deleted, in
    /// turn: after an overwrite, a merge or another kind of delete, an older value may come back.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let (queue, mut batch) = (db.family("queue")?, lavastore::WriteBatch::new());
    /// batch.family(&queue).single_delete("1");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.single_delete_cf(self.family, key.as_ref());
        self
    }

    /// Adds a delete of all keys of a range of this family, at the size of two keys.
    ///
    /// The delete covers earlier puts of the same batch, and not later ones. A bound has at most 64
    /// KiB. An empty range deletes nothing; a start after the end makes the write fail with
    /// `InvalidArgument`. A range without an end takes 128 KiB of the batch.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let (users, mut batch) = (db.family("users")?, lavastore::WriteBatch::new());
    /// batch.family(&users).delete_range("7".."9");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        self.batch.delete_bounds_cf(self.family, bounds(&range));
        self
    }
}
