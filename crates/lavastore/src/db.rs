//! The store handle, [`Db`].

mod families;
mod logs;
mod operate;

use crate::handle::FamilyHandle;
use crate::log::StoreLogs;
use crate::read::Reader;
use crate::write::Writer;
use crate::{
    CompactProgress, CompactRequest, Env, Family, FamilyOptions, Iter, KeyRange, Options, ReadOptions,
    RepairOptions, RepairReport, RequestOptions, Requests, Result, Snapshot, Value, ValueReader, ValueWriter,
    WriteBatch, WriteOptions, repair,
};
use std::path::Path;

/// An open store of keys and values: open one per directory, and share clones between threads.
///
/// Its methods read and write the family `default`. [`Db::family`] returns a handle of another
/// family with the same methods. [`Db::reading`] and [`Db::writing`] take options. All methods take
/// `&self`; readers and writers on any number of threads need no lock of their own.
///
/// A write that returned is visible to every later read. [`Durability`](crate::Durability) states
/// which failures an acknowledged write survives. After a crash the next open recovers the store.
///
/// The store stays open while any object made from it lives: clones, family handles, snapshots,
/// iterators and streams. Dropping the last one closes it and hides errors; [`Db::close`] closes it
/// at once and reports them. Later calls on the remaining handles fail with `Closed`. A child of
/// `fork` must open its own store: inherited handles answer `Forked`.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("lavastore-db-{}", std::process::id()));
/// use lavastore::Db;
///
/// let db = Db::open(&dir)?;
/// db.put("key", "value")?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
/// db.delete("key")?;
/// db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    default: Family,
}

/// Open, close and repair.
impl Db {
    /// Opens a store with default options, and creates it if it is missing: the first call of most
    /// programs. [`Db::open_with`] takes options; [`Db::open_read_only`] reads beside the one
    /// process that may write. The open recovers the writes of the last process: it replays at most
    /// the live log (256 MiB by default) and reads no other data.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-open-{}", std::process::id()));
    /// let db = lavastore::Db::open(&dir)?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Locked`: a process has the store open. Share its `Db`, or use [`Db::open_read_only`].
    /// * `Corruption`: log or manifest is damaged. Restore a checkpoint, or use [`Db::repair`].
    ///   Damaged data files are no error: [`Db::damaged_files`] lists them.
    /// * `Unsupported`: a newer release wrote it, or its logs hold keys ([`Db::open_with_logs`]).
    /// * `InvalidArgument`: the path is not a store's directory.
    /// * `NotFound`: the directory has an unfinished checkpoint or repair. Repeat that.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Self::open_with(path, &Options::default())
    }

    /// Opens a store as [`Db::open`] does, where the defaults do not fit: for a space limit, more
    /// memory, durable writes by default, or a listener. Options are not stored, except those of
    /// families: pass the same ones at every open. Recovery is as in [`Db::open`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-open-with-{}", std::process::id()));
    /// use lavastore::{Db, Options, SpaceLimit};
    /// let options = Options { space_limit: Some(SpaceLimit::Bytes(1 << 30)), ..Default::default() };
    /// let db = Db::open_with(&dir, &options)?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `NotFound`, `AlreadyExists`: `create_if_missing` or `error_if_exists` forbids the call.
    /// * `Locked`: a process has the store open. Share its `Db`, or use [`Db::open_read_only`].
    /// * `Corruption`: log or manifest is damaged. Restore a checkpoint, or use [`Db::repair`].
    /// * `Unsupported`: a newer release wrote it, or its logs hold keys ([`Db::open_with_logs`]).
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        Self::open_in(&Env::kernel(), path, options)
    }

    /// Opens a store outside the machine's file system: on a LavaFS volume, on two disks
    /// ([`Volumes::env`](crate::Volumes::env)), or on a simulated machine for crash tests
    /// ([`testing`](crate::testing)). [`Db::open_with`] suffices for a plain directory. The call
    /// recovers the writes of the last process, and creates a missing store.
    ///
    /// ```
    /// use lavastore::{Db, Options, testing::SimEnv};
    /// let machine = SimEnv::new(1);
    /// let db = Db::open_in(&machine.env(), "/store", &Options::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `NotFound`, `AlreadyExists`: `create_if_missing` or `error_if_exists` forbids the call.
    /// * `Locked`: a process has the store open. Share its `Db`, or use [`Db::open_read_only_in`].
    /// * `Corruption`: log or manifest is damaged. Restore a checkpoint, or use [`Db::repair_in`].
    /// * `Unsupported`: of a newer release, or its logs hold keys ([`Db::open_with_logs_in`]).
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_in(env: &Env, path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        lavakv::Db::open_in(env.clone(), path, options.clone()).map(Self::over)
    }

    /// Opens a store for reading only: for a tool, or for a process beside the one that writes it.
    ///
    /// The reader sees the writes that were acknowledged before the call, except volatile ones that
    /// no flush has taken. It keeps showing that state; [`Db::catch_up`] opens a newer one. The
    /// call takes no lock and changes nothing, so it works without write permission. Every write
    /// fails with `ReadOnly`. A read fails with `Busy` if the writer has removed its file. Damage
    /// of log or manifest is no error: the reader shows the state before it, and [`Db::damage`]
    /// reports it.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-read-only-{}", std::process::id()));
    /// use lavastore::{Db, Options};
    /// let writer = Db::open(&dir)?;
    /// writer.put("key", "value")?;
    /// writer.sync()?;
    /// let reader = Db::open_read_only(&dir, &Options::default())?;
    /// assert!(reader.get("key")?.is_some());
    /// # drop((reader, writer));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no store. A read-only open creates none.
    /// * `Corruption`: no state can be shown. Use [`Db::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `Busy`, `Io`: the writer is faster than the open, or a read failed. Repeat the call.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        Self::open_read_only_in(&Env::kernel(), path, options)
    }

    /// Opens a store for reading as [`Db::open_read_only`] does, where it is on a LavaFS volume, on
    /// two disks, or on a simulated machine. It shows one moment, takes no lock and changes
    /// nothing. Damage of log or manifest is no error: see [`Db::damage`].
    ///
    /// ```
    /// use lavastore::{Db, ErrorKind, Options, testing::SimEnv};
    /// let env = SimEnv::new(1).env();
    /// let none = Db::open_read_only_in(&env, "/store", &Options::default());
    /// assert_eq!(none.unwrap_err().kind(), ErrorKind::NotFound);
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no store. A read-only open creates none.
    /// * `Corruption`: no state can be shown. Use [`Db::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `Busy`, `Io`: the writer is faster than the open, or a read failed. Repeat the call.
    pub fn open_read_only_in(env: &Env, path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        lavakv::Db::open_read_only_in(env.clone(), path, options.clone()).map(Self::over)
    }

    /// Opens the present state of a store that is open for reading, to follow its writer at a lower
    /// cost than a new open. The call reads only the new part of the log (all of it in a store with
    /// logs or with damage) and shares open files and cache with `self`. `self`, its snapshots and
    /// its iterators keep their state; drop them when you no longer need them. Get new family
    /// handles from the returned store. After an error `self` still serves: repeat the call.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-catch-up-{}", std::process::id()));
    /// use lavastore::{Db, Options};
    /// let writer = Db::open(&dir)?;
    /// let mut reader = Db::open_read_only(&dir, &Options::default())?;
    /// writer.put("key", "value")?;
    /// assert!(reader.get("key")?.is_none());
    /// reader = reader.catch_up()?;
    /// assert!(reader.get("key")?.is_some());
    /// # drop((reader, writer));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the store was not opened for reading, and so shows every write already.
    /// * `NotFound`, `Corruption`, `Unsupported`: the store is gone, damaged or of a newer release.
    /// * `Busy`, `Io`: the writer is faster than the call, or a read failed. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn catch_up(&self) -> Result<Db> {
        self.kv().catch_up().map(Self::over)
    }

    /// Wraps an open engine, for the torture programs.
    #[doc(hidden)]
    pub fn over(db: lavakv::Db) -> Db {
        Db { default: Family::new(FamilyHandle::of_default(&db, None)) }
    }

    fn kv(&self) -> &lavakv::Db {
        self.default.handle().kv()
    }

    fn handle(&self, family: lavakv::ColumnFamily) -> Family {
        Family::new(self.default.handle().of_same_store(family))
    }

    /// Closes the store at once, even while other handles exist, and reports errors that a drop
    /// would hide. Use it at the end of a program, and before the directory is opened again.
    ///
    /// After a return without error every acknowledged write is durable, volatile ones included.
    /// Calls on other threads end: a write keeps its promised durability or fails with `Closed`;
    /// long calls fail with `Closed` and leave no files. Requests in flight are answered. Later
    /// calls on clones, families, iterators, streams and logs fail with `Closed`; dropping these
    /// objects releases their files. Closing a closed store does nothing. An event listener must
    /// not call it.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// db.close()?;
    /// assert_eq!(users.put("7", "Ada").unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of background work or of the close itself, such as `Io`. The store is closed
    /// even then: fix the cause and open it. `Forked` in a child process: nothing is closed.
    pub fn close(self) -> Result<()> {
        self.kv().check_process()?;
        self.default.into_handle().into_kv().close()
    }

    /// Salvages the undamaged data of a store that fails with `Corruption`, where no checkpoint can
    /// be restored: reads the store at `path`, and writes a new one in `into`. Damage is no error:
    /// the report lists the losses. The damaged store stays the same byte for byte, and needs no
    /// write permission. `into` must be missing, empty, or the remainder of an interrupted repair;
    /// every open refuses it until the repair has finished. On return the new store is durable and
    /// closed. It reads and rewrites all data. [`Db::open_with_logs`] opens one with logs.
    ///
    /// ```no_run
    /// use lavastore::{Db, RepairOptions};
    /// let report = Db::repair("damaged", "repaired", &RepairOptions::default())?;
    /// println!("{report:?}");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Locked`: a process has the store open. Close it there.
    /// * `InvalidArgument`: an option is out of range, or `into` is inside the damaged store.
    /// * `AlreadyExists`: `into` has other contents. Choose another directory.
    /// * `NotFound`: `path` is no directory, or an unfinished checkpoint or repair.
    /// * `Unsupported`: of a newer release, or of logs only (`LogStore::repair` saves these).
    /// * `NoSpace`, `Io`, `Cancelled`: the new store is removed. Fix the cause and repeat.
    pub fn repair(
        path: impl AsRef<Path>,
        into: impl AsRef<Path>,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        let env = Env::kernel();
        Self::repair_in(&env, path, &env, into, options)
    }

    /// Salvages a damaged store as [`Db::repair`] does, where it or the new store is on a LavaFS
    /// volume, on two disks or on a simulated machine. Use it if `Corruption` prevents work and no
    /// checkpoint can be restored. Damage is no error: the report lists the losses. `path` stays
    /// unchanged, and the new store in `into` is durable and closed on return.
    ///
    /// ```
    /// use lavastore::{Db, Options, RepairOptions, testing::SimEnv};
    /// let env = SimEnv::new(1).env();
    /// let db = Db::open_in(&env, "/store", &Options::default())?;
    /// db.put("key", "value")?;
    /// db.close()?;
    /// Db::repair_in(&env, "/store", &env, "/repaired", &RepairOptions::default())?;
    /// assert!(Db::open_in(&env, "/repaired", &Options::default())?.get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Locked`: a process has the store open. Close it there.
    /// * `InvalidArgument`: an option is out of range, or `into` is inside the damaged store.
    /// * `AlreadyExists`: `into` has other contents. Choose another directory.
    /// * `NotFound`: `path` is no directory, or an unfinished checkpoint or repair.
    /// * `Unsupported`: of a newer release, or of logs only (`LogStore::repair_in` saves these).
    /// * `NoSpace`, `Io`, `Cancelled`: the new store is removed. Fix the cause and repeat.
    pub fn repair_in(
        from: &Env,
        path: impl AsRef<Path>,
        to: &Env,
        into: impl AsRef<Path>,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        repair::repair((from, path.as_ref()), (to, into.as_ref()), options)
    }

    /// Lists the column families of a store with their stored options, without opening it: for a
    /// tool that inspects a store, also while another process has it open. The order is that of
    /// creation. The call reads only the manifest and changes nothing. In an open store use
    /// [`Db::family_names`] and [`Family::options`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-stored-{}", std::process::id()));
    /// # use lavastore::Db;
    /// Db::open(&dir)?.family("users")?;
    /// let families = Db::stored_family_options(&dir)?;
    /// assert_eq!(families[1].0, "users");
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no store. Check the path.
    /// * `Corruption`: the list of families is damaged. Use [`Db::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    pub fn stored_family_options(path: impl AsRef<Path>) -> Result<Vec<(String, FamilyOptions)>> {
        lavakv::Db::stored_family_options(path)
    }

    /// Lists families and their options as [`Db::stored_family_options`] does, for a store on a
    /// LavaFS volume, on two disks or on a simulated machine. It reads only the manifest, also
    /// while a process has the store open.
    ///
    /// ```
    /// use lavastore::{Db, testing::SimEnv};
    /// assert!(Db::stored_family_options_in(&SimEnv::new(1).env(), "/store").is_err());
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no store. Check the path.
    /// * `Corruption`: the list of families is damaged. Use [`Db::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    pub fn stored_family_options_in(
        env: &Env,
        path: impl AsRef<Path>,
    ) -> Result<Vec<(String, FamilyOptions)>> {
        lavakv::Db::stored_family_options_in(env, path)
    }
}

/// Reads and writes of the family `default`.
impl Db {
    /// Chooses options for reads of the family `default`, for example for a scan that must not
    /// displace the cache. Plain methods use the defaults, and [`Family::reading`] is for other
    /// families. The call reads nothing, costs nothing and cannot fail.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let options = lavastore::ReadOptions { fill_cache: false, ..Default::default() };
    /// assert!(db.reading(&options).get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn reading<'a>(&'a self, options: &'a ReadOptions) -> Reader<'a> {
        self.default.reading(options)
    }

    /// Chooses options for single writes to the family `default`: another durability, or a bound on
    /// the wait. Plain methods use the store's options. The call writes nothing and cannot fail.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.writing(&lavastore::WriteOptions::durable()).put("key", "value")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn writing(&self, options: &WriteOptions) -> Writer<'_> {
        self.default.writing(options)
    }

    /// Reads the value of one key of the family `default`, as of now: the call sees every write
    /// that returned before. `None` if the key is absent. For many keys [`Db::multi_get`] is
    /// faster; for part of a large value use [`Db::get_range`]. Blocks only if memory and cache
    /// lack the value. [`Value::into_vec`] returns bytes to keep for long.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes. Restore a checkpoint, or use [`Db::repair`]. `Io`: repeat.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Checks whether a key of the family `default` has a value, at a lower cost than [`Db::get`].
    /// A separated value (512 bytes and more by default) is not read, so damage to it stays
    /// undetected. A key with an empty value gives true.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// assert!(db.contains_key("key")? && !db.contains_key("other")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes. Restore a checkpoint, or use [`Db::repair`]. `Io`: repeat.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains_key(key)
    }

    /// Reads many keys of the family `default` as of one moment, faster than single reads: up to
    /// 256 device reads run in parallel. The results are in the order of the keys, each with its
    /// own error; `None` is an absent key. All values are in memory at once: split long lists.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("mars", "2 moons")?;
    /// let found = db.multi_get(["mars", "venus"]);
    /// assert_eq!(found[0].as_ref().unwrap().as_deref(), Some(&b"2 moons"[..]));
    /// assert_eq!(found[1].as_ref().unwrap().as_deref(), None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes. Restore a checkpoint, or use [`Db::repair`]. `Io`: repeat.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// Reads a part of a value, to keep the rest out of memory: at most `len` bytes from byte
    /// `offset` on. `None` if the key is absent; shorter or empty if the value ends earlier. Of a
    /// value in its own file (over 4 MiB by default, or streamed) it reads that part only. For
    /// several parts use [`Db::get_stream`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// assert_eq!(db.get_range("film", 2, 3)?, Some(b"ame".to_vec()));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes. Restore a checkpoint, or use [`Db::repair`]. `Io`: repeat.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        self.default.get_range(key, offset, len)
    }

    /// Opens a large value for reading in pieces, where the whole does not fit in memory; `None` if
    /// the key is absent. For one small part use [`Db::get_range`]. The reader shows this version,
    /// also after an overwrite. Until its drop the reader keeps the version on disk and the store
    /// open. A value without a file of its own (up to 4 MiB by default) is read at once.
    ///
    /// ```
    /// use std::io::{Read, Seek, SeekFrom};
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// let mut film = db.get_stream("film")?.expect("was just put");
    /// film.seek(SeekFrom::Start(2))?;
    /// let mut rest = Vec::new();
    /// film.read_to_end(&mut rest)?;
    /// assert_eq!(rest, b"ames");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes. Restore a checkpoint, or use [`Db::repair`]. `Io`: repeat.
    /// * `Busy` (read-only: the writer removed a file), `Closed`, `Forked`: open the store again.
    /// * `Unsupported`: this build lacks the compression of the data. Use one that has it.
    #[doc(alias = "stream")]
    pub fn get_stream(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.default.get_stream(key)
    }

    /// Scans all keys of the family `default` and their values in ascending byte order. Later
    /// writes stay invisible to the iterator, and an error is its last item; [`Iter::keys`] reads
    /// no values, and [`Db::range`] a part. It keeps superseded files on disk and the store open:
    /// drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// for entry in db.iter() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&key[..], &value[..]), (&b"key"[..], &b"value"[..]));
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// Scans a range of keys of the family `default`, such as a span of time, with their values in
    /// ascending byte order; `.rev()` descends. Later writes stay invisible, and an error is the
    /// last item. An empty range, or a start after the end, yields nothing. The iterator keeps
    /// superseded files on disk and the store open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
    ///     db.put(day, "")?;
    /// }
    /// assert_eq!(db.range("2024-01-31"..).count(), 2);
    /// assert_eq!(db.range(.."2024-02").rev().count(), 2);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.default.range(range)
    }

    /// Scans the keys of the family `default` that begin with `prefix`, such as all items of a
    /// user, with values, in ascending order. An empty prefix selects all; [`Db::range`] takes
    /// bounds. Later writes stay invisible, and an error is the last item. The iterator keeps
    /// superseded files on disk and the store open: drop it early.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("user/7", "ada")?;
    /// for entry in db.prefix("user/") {
    ///     let (_key, name) = entry?;
    ///     assert_eq!(name, b"ada");
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// Sets one key of the family `default`, and replaces its value; [`Db::write`] sets several
    /// keys together, and [`Db::put_stream`] a value that does not fit in memory. On return all
    /// readers see the write. It has the durability of
    /// [`Options::durability`](field@crate::Options::durability) (default: buffered, so a loss of
    /// power may take it until [`Db::sync`]). The wait for memory or space has no bound:
    /// [`Db::writing`] sets one.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// db.put([0, 1, 2], vec![7; 1 << 20])?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1. [`Db::upgrade`] raises the format.
    /// * `TooLarge`: the key is above 64 KiB, or the value above 1 GiB. Split the value.
    /// * `NoSpace`: the limit or the volume is full. Delete data or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Starts a value of the family `default` that does not fit in memory: the caller writes it in
    /// pieces, up to 1 GiB. For a value in memory use [`Db::put`]. The value appears when
    /// [`ValueWriter::finish`] returns, with the durability of a put; until then, and after a drop,
    /// readers see the former one. The writer keeps the store open.
    ///
    /// ```
    /// use std::io::Write;
    /// # let db = lavastore::testing::store();
    /// let mut film = db.put_stream("film")?;
    /// for frame in 0..1000u32 {
    ///     film.write_all(&[frame as u8; 1000])?;
    /// }
    /// film.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1. [`Db::upgrade`] raises the format.
    /// * `TooLarge`: the key is above 64 KiB. Use a shorter one.
    /// * `NoSpace`: there is no room to begin a log. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Poisoned`: an earlier write failed at the device. Close and reopen the store.
    #[doc(alias = "stream")]
    pub fn put_stream(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        self.default.put_stream(key)
    }

    /// Deletes one key of the family `default`; an absent key is no error. On return no new read
    /// sees the key; durability is as in [`Db::put`]. Costs a small write and no read. Works at the
    /// space limit too; the space is freed later. For many keys use [`Db::delete_range`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.delete("key")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an empty key in a store of format 1. [`Db::upgrade`] raises the format.
    /// * `TooLarge`: the key is above 64 KiB, so it was never there.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Deletes all keys of a range of the family `default` at the cost of one write, however many
    /// there are. Durability is as in [`Db::put`]. An empty range deletes nothing. Existing
    /// snapshots and iterators still see the keys. [`Db::compact_range`] frees the space now;
    /// [`Db::drop_family`] drops a whole family.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("2023-12-31", "")?;
    /// db.delete_range("2023-".."2024-")?;
    /// assert_eq!(db.iter().count(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
    /// * `TooLarge`: a bound is above 64 KiB. Use a shorter one.
    /// * `NoSpace`: the volume lacks room even for deletes. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the write may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.default.delete_range(range)
    }

    /// Changes several keys together, in any number of families: readers and crashes see the whole
    /// batch or nothing. A later change of a key wins. Durability is as in [`Db::put`]. A batch has
    /// at most 16 MiB + 128 KiB, without values above 4 MiB (by default).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("account/1", "90");
    /// batch.put("account/2", "110");
    /// db.write(&batch)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: a family of another store, or an empty key in a store of format 1.
    /// * `TooLarge`: a key, a value or the batch exceeds the [`limits`](crate::limits). Split it.
    /// * `NotFound`, `Unsupported`: a family was dropped, or this release lacks its policy.
    /// * `NoSpace`: the limit or the volume is full. Delete data or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the batch may exist), `Poisoned`: the device failed. Close and reopen the store.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.writing(&WriteOptions::default()).write(batch)
    }

    /// Makes all acknowledged buffered writes survive a loss of power; blocks until the device has
    /// them. Call it once after many buffered writes, instead of making each one durable. It covers
    /// every write that returned before, of all threads and families, and the logs of the store.
    /// Concurrent calls share one device write. Volatile writes need [`Db::flush`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// for order in 0..100u32 {
    ///     db.put(order.to_be_bytes(), "paid")?;
    /// }
    /// db.sync()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`, `Poisoned`: this call or an earlier write failed at the device. A loss of power may
    ///   take buffered writes. Close and reopen the store.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    #[doc(alias = "flush_wal")]
    #[doc(alias = "persist")]
    pub fn sync(&self) -> Result<()> {
        self.kv().sync()?;
        self.default.handle().logs().map_or(Ok(()), StoreLogs::sync)
    }

    /// Returns the asynchronous interface, for an event loop or an async runtime: many requests in
    /// flight without a thread for each. The first call starts the threads that serve all of them.
    /// Each call has its own bound on requests in flight and its own order of writes. The result
    /// keeps the store open.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&lavastore::RequestOptions::default())?;
    /// let reads: Vec<_> = (0..100u8).map(|key| requests.get([key])).collect::<Result<_, _>>()?;
    /// # lavastore::testing::block_on(&db, async {
    /// for read in reads {
    ///     assert!(read.await?.is_none());
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the depth is outside of 1 to 1,048,576.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    /// * `Io`: the system refused a thread. Raise the limits of the process.
    #[doc(alias = "async")]
    pub fn requests(&self, options: &RequestOptions) -> Result<Requests> {
        Requests::new(self.default.handle(), options)
    }

    /// Keeps the present state of all families readable until the snapshot is dropped, to read
    /// several keys or families as of one moment. It contains every write that returned before the
    /// call. Taking one touches memory only and never blocks writers; until its drop it keeps its
    /// versions on disk and the store open. It ends with the process: [`Db::checkpoint`] makes a
    /// lasting copy. After a close its reads fail with `Closed`.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let before = db.snapshot();
    /// db.put("key", "value")?;
    /// assert!(before.get("key")?.is_none());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_named("")
    }

    /// Takes a [`Db::snapshot`] under a name: use it for snapshots that live long, so that a leaked
    /// one can be found. [`Db::space`] lists it by name with its age and the bytes that it holds.
    /// Names are any text, and need not be unique.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let report = db.snapshot_named("nightly report");
    /// assert_eq!(db.space()?.snapshots, 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn snapshot_named(&self, name: &str) -> Snapshot {
        Snapshot::new(self.kv().snapshot_named(name), &self.default)
    }

    /// Drops the deleted and overwritten data of a range now, and waits: after a mass delete, or
    /// before a checkpoint. Compaction runs in the background anyway. The call flushes the store,
    /// then moves the data of the range in the family `default` down to the last level in use,
    /// where it lies on return. There only files with deleted keys, or with versions of former
    /// snapshots, are rewritten. Of values from 512 bytes on (by default) it drops the keys: their
    /// space is freed by [`Db::collect_garbage`]. It takes device time and free space; reads and
    /// writes continue. Damaged files ([`Db::damaged_files`]) are skipped.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.delete_range("2023-".."2024-")?;
    /// db.compact_range("2023-".."2024-")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
    /// * `NoSpace`: no room for the output. Make room and repeat; no data is lost.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot compact. Completed parts stay.
    /// * `Io`, `Poisoned`: background work failed. After `Poisoned` close and reopen the store.
    #[doc(alias = "compact")]
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.default.compact_range(range)
    }

    /// Compacts as [`Db::compact_range`] does, where data must be rewritten under new options
    /// ([`CompactRequest::rewrite`]), or the call needs cancellation or progress. `tell` gets the
    /// progress on the calling thread, at the start and after each rewritten table. A rewrite reads
    /// and writes the whole range.
    ///
    /// ```
    /// # use lavastore::CompactRequest;
    /// # let db = lavastore::testing::store();
    /// db.compact_range_with("2023-".., &CompactRequest { rewrite: true, ..Default::default() }, &mut |_progress| {})?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the start is after the end. Swap the bounds.
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
        self.default.compact_range_with(range, request, tell)
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kv().fmt(f)
    }
}
