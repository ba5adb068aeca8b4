//! Snapshots of a store.

use crate::read::Reader;
use crate::{Family, Iter, KeyRange, ReadOptions, Result, SeqNo, Value, ValueReader};

/// A consistent view of all families at the moment of [`Db::snapshot`](crate::Db::snapshot).
///
/// Use a snapshot to read several keys or families as of one moment while writers continue. Its
/// methods read the family `default`; [`Snapshot::family`] reads another one. A snapshot is cheap
/// to clone and usable from any thread; the drop of the last clone releases it.
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

    /// Returns the reads of a family as of the snapshot.
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

    /// Returns the read methods of the family `default` as of the snapshot with other options, for
    /// example for a scan that bypasses the cache.
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

    /// Reads the value of one key of the family `default` as of the snapshot; returns `None` if the
    /// key is absent. Blocks on the device only if memory and cache lack the value.
    ///
    /// [`Value::into_vec`] returns bytes that may be kept for long.
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

    /// Returns whether a key of the family `default` as of the snapshot has a value, at a lower
    /// cost than [`Snapshot::get`]: a separated value is not read, so damage to it stays
    /// undetected.
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

    /// Reads many keys of the family `default` as of the snapshot at one moment, with their device
    /// reads in parallel. The results are in the order of the keys, each with its own error. All
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

    /// Reads at most `len` bytes of a value from byte `offset` on; `None` if the key is absent.
    ///
    /// The result is shorter, or empty, if the value ends earlier. Of a value in its own file, the
    /// call reads that part only.
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

    /// Opens a value for reading in pieces, in constant memory if the value is large; `None` if the
    /// key is absent.
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

    /// Iterates over all keys of the family `default` as of the snapshot and their values in
    /// ascending byte order.
    ///
    /// An error is the last item; [`Iter::keys`] reads no values. The iterator keeps superseded
    /// files on disk: drop it early.
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

    /// Iterates over a range of keys of the family `default` as of the snapshot and their values in
    /// ascending byte order.
    ///
    /// An empty range, or a start after the end, yields nothing.
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

    /// Iterates over the keys of the family `default` as of the snapshot that begin with `prefix`,
    /// with their values, in ascending byte order.
    ///
    /// An empty prefix selects all keys.
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

    /// Returns the number of the snapshot in [`Space::holders`](crate::Space::holders), unique
    /// while the store is open.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_ne!(db.snapshot().id(), db.snapshot().id());
    /// ```
    pub fn id(&self) -> u64 {
        self.inner.id()
    }

    /// Returns the name from [`Db::snapshot_named`](crate::Db::snapshot_named); empty without one.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.snapshot_named("nightly report").name(), "nightly report");
    /// ```
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the sequence number of the last write that the snapshot sees, to compare two
    /// snapshots.
    ///
    /// A snapshot that sees later writes has a larger number.
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
