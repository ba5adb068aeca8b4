//! Snapshots of a store.

use crate::read::Reader;
use crate::{Family, Iter, KeyRange, ReadOptions, Result, SeqNo, Value, ValueReader};

/// A consistent view of all families at the moment of [`Db::snapshot`](crate::Db::snapshot): use it
/// to read several keys or families as of one moment while writers continue.
///
/// Its methods read the family `default`; [`Snapshot::family`] reads another one. A single scan
/// needs no snapshot, since an iterator shows one moment anyway. A snapshot is cheap to clone and
/// usable from any thread; the drop of the last clone releases it. It ends with the process.
///
/// A snapshot keeps every version that it sees on disk, and keeps the store open.
/// [`Space::holders`](crate::Space::holders) reports its age and bytes. Drop snapshots early: in a
/// store with a space limit an old one may lead to `NoSpace`. After [`Db::close`](crate::Db::close)
/// its reads fail with `Closed`.
///
/// ```
/// # let db = lavastore::testing::store();
/// let users = db.family("users")?;
/// db.put("planet", "mars")?;
/// users.put("7", "ada")?;
/// let before = db.snapshot();
/// db.put("planet", "venus")?;
/// users.delete("7")?;
///
/// assert_eq!(before.get("planet")?.as_deref(), Some(&b"mars"[..]));
/// assert_eq!(before.family(&users).iter().count(), 1);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a snapshot that nobody holds is gone"]
pub struct Snapshot {
    inner: lavakv::Snapshot,
    default: Family,
}

impl Snapshot {
    pub(crate) fn new(inner: lavakv::Snapshot, default: &Family) -> Snapshot {
        Snapshot { inner, default: default.clone() }
    }

    pub(crate) fn inner(&self) -> &lavakv::Snapshot {
        &self.inner
    }

    /// Chooses another family than `default` for reads as of the snapshot. The result has the read
    /// methods. The call itself reads nothing and cannot fail.
    ///
    /// A family that was created later is empty. Reads fail with `NotFound` if the family was
    /// dropped since, and with `InvalidArgument` if the family belongs to another store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// let before = db.snapshot();
    /// users.put("7", "ada")?;
    /// assert!(before.family(&users).get("7")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let before = db.snapshot();
    /// let late = db.family("late")?;
    /// late.put("key", "value")?;
    /// assert!(before.family(&late).get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn family<'a>(&'a self, family: &'a Family) -> Reader<'a> {
        Reader::new(family.handle(), Some(&self.inner))
    }

    /// Chooses options for reads of the family `default` as of the snapshot, for example for a scan
    /// that must not displace the cache. Plain methods use the defaults; for another family use
    /// [`Snapshot::family`] and [`Reader::reading`]. The call reads nothing, costs nothing and
    /// cannot fail.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let before = db.snapshot();
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(before.reading(&options).get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn reading<'a>(&'a self, options: &'a ReadOptions) -> Reader<'a> {
        self.family(&self.default).reading(options)
    }

    /// Reads the value that one key of the family `default` had at the snapshot; `None` if the key
    /// was absent then. Later writes have no effect.
    ///
    /// It blocks on the device only if memory and cache lack the value. [`Value::into_vec`] returns
    /// bytes that may be kept for long. [`Snapshot::multi_get`] is faster for many keys;
    /// [`Snapshot::get_range`] reads part of a large value.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("planet", "mars")?;
    /// let before = db.snapshot();
    /// db.delete("planet")?;
    /// assert_eq!(before.get("planet")?.as_deref(), Some(&b"mars"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.family(&self.default).get(key)
    }

    /// Checks whether a key of the family `default` had a value at the snapshot, where the value is
    /// not needed: cheaper than [`Snapshot::get`]. A separated value (512 bytes and more by
    /// default) is not read, so damage to it stays undetected. A key with an empty value gives
    /// true.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let before = db.snapshot();
    /// db.put("planet", "mars")?;
    /// assert!(!before.contains_key("planet")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.family(&self.default).contains_key(key)
    }

    /// Reads many keys of the family `default` as of the snapshot, faster than single reads.
    ///
    /// Up to 256 device reads run in parallel. The results are in the order of the keys, each with
    /// its own error; `None` is an absent key. For adjacent keys use [`Snapshot::range`]. All
    /// values are in memory at once: split a very long list.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("planet", "mars")?;
    /// let before = db.snapshot();
    /// db.delete("planet")?;
    /// assert!(before.multi_get(["planet"]).remove(0)?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.family(&self.default).multi_get(keys)
    }

    /// Reads a part of a value as of the snapshot, to keep the rest out of memory: at most `len`
    /// bytes from byte `offset` on; `None` if the key was absent.
    ///
    /// The result is shorter, or empty, if the value ends earlier. Of a value in its own file (over
    /// 4 MiB by default, or a longer stream), the call reads that part only. A shorter value is
    /// read whole. For many parts [`Snapshot::get_stream`] saves the lookups.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("planet", "mars")?;
    /// assert_eq!(db.snapshot().get_range("planet", 1, 2)?, Some(b"ar".to_vec()));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.family(&self.default).get_range(key, offset, len)
    }

    /// Opens a large value for reading in pieces as of the snapshot, where the whole does not fit
    /// in memory; `None` if the key was absent.
    ///
    /// The reader keeps this version after the snapshot is dropped, and keeps it on disk until its
    /// own drop; it keeps the store open too. For one part use [`Snapshot::get_range`]. A value
    /// without a file of its own (up to 4 MiB by default) is read at once.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("planet", "mars")?;
    /// assert_eq!(db.snapshot().get_stream("planet")?.map(|value| value.len()), Some(4));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: stored bytes are damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.family(&self.default).get_stream(key)
    }

    /// Scans all keys of the family `default` as of the snapshot and their values in ascending byte
    /// order, for an export that agrees with other reads.
    ///
    /// An error is the last item; [`Iter::keys`] reads no values. The iterator outlives the
    /// snapshot, and keeps superseded files on disk and the store open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let empty = db.snapshot();
    /// db.put("planet", "mars")?;
    /// assert_eq!(empty.iter().count(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn iter(&self) -> Iter {
        self.family(&self.default).iter()
    }

    /// Scans a range of keys of the family `default` as of the snapshot, such as a span of time,
    /// with their values in ascending byte order; `.rev()` descends.
    ///
    /// An empty range, or a start after the end, yields nothing. An error is the last item.
    /// [`Snapshot::prefix`] selects by a common beginning. The iterator outlives the snapshot, and
    /// keeps superseded files on disk and the store open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("b", "")?;
    /// assert_eq!(db.snapshot().range("a".."c").count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.family(&self.default).range(range)
    }

    /// Scans the keys of the family `default` that begin with `prefix` as of the snapshot, such as
    /// all items of a user, with their values, in ascending byte order.
    ///
    /// An empty prefix selects all keys. An error is the last item. [`Snapshot::range`] takes
    /// bounds. The iterator outlives the snapshot, and keeps superseded files on disk and the store
    /// open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("user/7", "ada")?;
    /// assert_eq!(db.snapshot().prefix("user/").count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.family(&self.default).prefix(prefix)
    }

    /// Returns the number under which [`Space::holders`](crate::Space::holders) lists the snapshot,
    /// to find the bytes that it holds.
    ///
    /// The number is unique among the snapshots and iterators of the open store; clones share it.
    /// It says nothing about the age: see [`Snapshot::sequence`]. The call reads memory only.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_ne!(db.snapshot().id(), db.snapshot().id());
    /// ```
    pub fn id(&self) -> u64 {
        self.inner.id()
    }

    /// Returns the name from [`Db::snapshot_named`](crate::Db::snapshot_named), to recognize the
    /// snapshot in a report; empty without one. Names need not be unique: [`Snapshot::id`] is.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.snapshot_named("nightly report").name(), "nightly report");
    /// ```
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the sequence number of the last write that the snapshot sees, to tell whether
    /// anything was written between two snapshots of a store.
    ///
    /// Equal numbers mean that no write came between; a snapshot that sees later writes has a
    /// larger number. Numbers of other stores are not comparable.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let before = db.snapshot();
    /// db.put("planet", "mars")?;
    /// assert!(db.snapshot().sequence() > before.sequence());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn sequence(&self) -> SeqNo {
        self.inner.sequence()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
