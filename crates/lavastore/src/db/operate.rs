//! Operations of a store: flush, checkpoint, collection, verification, statistics and format.

use super::Db;
use crate::{
    CacheStats, CheckpointOptions, CheckpointRequest, DamagedFile, EngineSpace, Env, Error, Family, GcPause,
    GcPlan, GcProgress, GcReport, GcRequest, Result, Space, SpaceLimit, Statistics, StoreFormat,
    VerifyOptions, VerifyReport,
};
use std::path::Path;
use std::time::Duration;

/// Operations and statistics.
impl Db {
    /// Makes volatile writes durable, or shortens the next open: writes everything that is only in
    /// memory to files, and waits.
    ///
    /// On return every earlier write of all families and threads is durable, and the next open need
    /// not replay it. The store also flushes by itself. The cost is a device write of up to all
    /// buffered data. Reads and writes continue; later writes are not waited for. For buffered
    /// writes [`Db::sync`] is cheaper.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let db = lavastore::testing::store();
    /// db.writing(&WriteOptions::volatile()).put("cache", "warm")?;
    /// db.flush()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NoSpace`: no room for the files. The data stays in memory and, unless its write was
    ///   volatile, in the log. Make room and repeat; a crash before that takes the volatile writes.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`: a passing error holds background work up, which retries. Repeat the call.
    /// * `Poisoned`: the device failed, and volatile writes may be lost. Close and reopen the
    ///   store.
    pub fn flush(&self) -> Result<()> {
        self.kv().flush()
    }

    /// Makes the volatile writes of some families durable together: a stream processor without a log
    /// calls it for the families of its state at each checkpoint.
    ///
    /// On return the earlier writes of these families are durable. After a crash during the call all
    /// of them are there, or only those that an earlier flush has made durable. If a volatile batch
    /// spans more families, these are flushed as well. Other families, reads and later writes are not
    /// waited for. The store also flushes full memtables by itself, in the same way where a volatile
    /// batch spans families.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let db = lavastore::testing::store();
    /// let (counts, offsets) = (db.family("counts")?, db.family("offsets")?);
    /// counts.writing(&WriteOptions::volatile()).put("clicks", "7")?;
    /// offsets.writing(&WriteOptions::volatile()).put("partition 0", "1234")?;
    /// db.flush_families([&counts, &offsets])?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: a family is of another store. `NotFound`: a family was dropped.
    ///
    /// Those of [`Db::flush`].
    pub fn flush_families<'a>(&self, families: impl IntoIterator<Item = &'a Family>) -> Result<()> {
        let families: Vec<_> = families.into_iter().map(|family| family.handle().inner()).collect();
        self.kv().flush_families(&families)
    }

    /// Changes the space limit of the open store without a restart, for example to raise it when
    /// writes fail with `NoSpace`; `None` leaves only the volume as limit.
    ///
    /// [`SpaceLimit`] has the units. The limit covers all files, logs included, and holds at once,
    /// until the close: the next open takes the limit of its own options,
    /// [`Options::space_limit`](field@crate::Options::space_limit). A store above its new limit
    /// admits only deletes until background jobs have shrunk it. Some buffer sizes follow the limit
    /// only at the next open.
    ///
    /// ```
    /// # use lavastore::SpaceLimit;
    /// # let db = lavastore::testing::store();
    /// db.set_space_limit(Some(SpaceLimit::Bytes(8 << 30)))?;
    /// db.set_space_limit(None)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the limit is out of range, and unchanged; the message names the range.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `NoSpace`: the new limit holds, but leaves no room to begin writing. Choose a higher
    ///   limit.
    pub fn set_space_limit(&self, limit: Option<SpaceLimit>) -> Result<()> {
        self.kv().set_space_limit(limit)
    }

    /// Makes a backup of the open store while writers continue: a consistent copy in a new
    /// directory, `dir`, which must be missing or empty.
    ///
    /// The copy is an independent store with all families as of one moment, and with the logs if
    /// the store was opened with them. It has every write that returned before the call. It is
    /// durable on return; open it like any store. On the same file system hard links share the
    /// files, so the copy costs a flush and a few names; otherwise it costs a copy of all bytes.
    /// The shared files use space until both stores have dropped them. Another process uses
    /// [`Db::request_checkpoint`]; [`Db::snapshot`] serves reads within this process.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-checkpoint-{}", std::process::id()));
    /// # use lavastore::Db;
    /// let db = Db::open(dir.join("store"))?;
    /// db.put("key", "value")?;
    /// db.checkpoint(dir.join("monday"))?;
    /// assert!(Db::open(dir.join("monday"))?.get("key")?.is_some());
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another
    ///   directory.
    /// * `Unsupported`: the store has logs but was opened without them. Use [`Db::open_with_logs`].
    /// * `Corruption`: a log to copy is damaged; the error names the file. Use [`Db::repair`].
    /// * `NoSpace`, `Io`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot make a checkpoint. Open the store.
    /// * `Poisoned`: an earlier write failed at the device. Close and reopen the store.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.kv().checkpoint(dir)
    }

    /// Takes a backup of a store that another process has open, from a backup tool: asks that
    /// process for a checkpoint in `target`, and waits for it.
    ///
    /// On return the copy is durable: an independent store as of [`Db::checkpoint`], owned by the
    /// user of that process. The process looks for requests about once a second, unless
    /// [`ExpertOptions::checkpoint_requests`](crate::ExpertOptions::checkpoint_requests) is off
    /// (default: on). `target` is an absolute path as that process sees it. `take_within` limits
    /// the wait until the process accepts the request (some seconds suffice); the checkpoint itself
    /// has no time limit. The caller needs write permission in `dir`.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-request-{}", std::process::id()));
    /// # use lavastore::{Db, WriteOptions};
    /// # use std::time::Duration;
    /// let db = Db::open(dir.join("store"))?;
    /// db.writing(&WriteOptions::durable()).put("key", "value")?;
    /// // In another process:
    /// Db::request_checkpoint(dir.join("store"), dir.join("monday"), Duration::from_secs(15))?;
    /// assert!(Db::open(dir.join("monday"))?.get("key")?.is_some());
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: `target` is relative. Pass an absolute path.
    /// * `NotFound`: there is no store in `dir`. Check the path.
    /// * `Locked`: the process did not accept the request in time, and the request is withdrawn.
    ///   `Busy`: too many requests wait. Repeat later.
    /// * `Closed`: no process has the store open, or it closed. Open it and use [`Db::checkpoint`].
    /// * `AlreadyExists`: `target` is not empty. Choose another directory.
    /// * `Unsupported`, `Corruption`, `NoSpace`, `Io`: the copy failed; the message has the remedy.
    pub fn request_checkpoint(
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
    ) -> Result<()> {
        Db::request_checkpoint_in(&Env::kernel(), dir, target, take_within, &mut |_| {})
    }

    /// Asks another process for a checkpoint as [`Db::request_checkpoint`] does, where the caller
    /// shows progress, or the store is not in the machine's file system.
    ///
    /// `tell` gets the state of the request about 20 times a second, on the calling thread. The
    /// call blocks until the copy is durable or has failed. `take_within` limits only the wait for
    /// the acceptance.
    ///
    /// ```no_run
    /// use lavastore::{Db, Env};
    /// use std::time::Duration;
    /// let tell = &mut |state| println!("{state:?}");
    /// Db::request_checkpoint_in(&Env::kernel(), "/var/lib/orders", "/backup/monday", Duration::from_secs(15), tell)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: `target` is relative. Pass an absolute path.
    /// * `NotFound`: there is no store in `dir`. Check the path.
    /// * `Locked`: the process did not accept the request in time, and the request is withdrawn.
    ///   `Busy`: too many requests wait. Repeat later.
    /// * `Closed`: no process has the store open, or it closed. Open it and use [`Db::checkpoint`].
    /// * `AlreadyExists`: `target` is not empty. Choose another directory.
    /// * `Unsupported`, `Corruption`, `NoSpace`, `Io`: the copy failed; the message has the remedy.
    pub fn request_checkpoint_in(
        env: &Env,
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
        tell: &mut dyn FnMut(CheckpointRequest),
    ) -> Result<()> {
        lavakv::request_checkpoint(env, dir.as_ref(), target.as_ref(), take_within, tell)
    }

    /// Makes a backup as [`Db::checkpoint`] does, where a long copy must be cancellable or have a
    /// deadline. On return the copy is durable and independent. The token is checked before each
    /// file and during copies; a cancelled call leaves no part of the copy.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-checkpoint-with-{}", std::process::id()));
    /// # use lavastore::{Cancel, CheckpointOptions, Db, Env};
    /// let db = Db::open(dir.join("store"))?;
    /// let a_minute = Cancel::with_deadline(&Env::kernel(), std::time::Duration::from_secs(60));
    /// db.checkpoint_with(dir.join("monday"), &CheckpointOptions { cancel: Some(a_minute) })?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another
    ///   directory.
    /// * `Unsupported`: the store has logs but was opened without them. Use [`Db::open_with_logs`].
    /// * `Corruption`: a log to copy is damaged; the error names the file. Use [`Db::repair`].
    /// * `NoSpace`, `Io`, `Cancelled`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot make a checkpoint. Open the store.
    /// * `Poisoned`: an earlier write failed at the device. Close and reopen the store.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.kv().checkpoint_unless(dir, options.cancel.as_ref())
    }

    /// Frees the space of overwritten and deleted large values now, before a backup or in quiet
    /// hours, and waits. Collection runs in the background anyway.
    ///
    /// It concerns separated values: those from
    /// [`FamilyOptions::min_blob_size`](crate::FamilyOptions::min_blob_size) on, 512 bytes by
    /// default. The request says how much garbage may stay. Garbage that compaction has not found
    /// yet stays too: call [`Db::compact_range`] first, which also frees small values. The call
    /// rewrites live values, so it takes device time and some free space. Reads and writes
    /// continue. The report counts all collections that ended meanwhile.
    ///
    /// ```
    /// # use lavastore::GcRequest;
    /// # let db = lavastore::testing::store();
    /// let report = db.collect_garbage(&GcRequest::default())?;
    /// assert_eq!(report.collections, 0, "there is no garbage");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the request is out of range; the message names the range.
    /// * `Busy`: a [`GcPause`] is alive, or began during the call. Drop it and repeat.
    /// * `NoSpace`: no room for the rewritten values. Delete data or raise the limit.
    /// * `Cancelled`: [`GcRequest::cancel`] ended the call. Completed collections stay.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: background work failed. After `Poisoned` close and reopen the store.
    ///
    /// No data is lost after an error, and there is no report.
    pub fn collect_garbage(&self, request: &GcRequest) -> Result<GcReport> {
        self.kv().collect_garbage(request.clone())
    }

    /// Collects as [`Db::collect_garbage`] does, where the caller shows the progress of a long
    /// collection.
    ///
    /// `tell` runs on the calling thread, at least once: after each collection and from time to
    /// time in between. It may call into the store. The cost and the effect are those of
    /// [`Db::collect_garbage`]. [`GcRequest::cancel`] ends the call early.
    ///
    /// ```
    /// # use lavastore::GcRequest;
    /// # let db = lavastore::testing::store();
    /// let mut told = 0;
    /// db.collect_garbage_with(&GcRequest::default(), &mut |_progress| told += 1)?;
    /// assert!(told > 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the request is out of range; the message names the range.
    /// * `Busy`: a [`GcPause`] is alive, or began during the call. Drop it and repeat.
    /// * `NoSpace`: no room for the rewritten values. Delete data or raise the limit.
    /// * `Cancelled`: [`GcRequest::cancel`] ended the call. Completed collections stay.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: background work failed. After `Poisoned` close and reopen the store.
    pub fn collect_garbage_with(
        &self,
        request: &GcRequest,
        tell: &mut dyn FnMut(&GcProgress),
    ) -> Result<GcReport> {
        self.kv().collect_garbage_with(request.clone(), tell)
    }

    /// Estimates cost and gain of a [`Db::collect_garbage`] before the call: which files it would
    /// rewrite, and the bytes to read, write and free.
    ///
    /// The plan changes nothing, and holds for the present state only. It lists no collections if
    /// there is no garbage to collect. The call works in a read-only store too. It may read indexes
    /// of files. Garbage that compaction has not found yet is not in it.
    ///
    /// ```
    /// # use lavastore::GcRequest;
    /// # let db = lavastore::testing::store();
    /// assert!(db.gc_plan(&GcRequest::default())?.collections.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the request is out of range; the message names the range.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn gc_plan(&self, request: &GcRequest) -> Result<GcPlan> {
        self.kv().gc_plan(request.clone())
    }

    /// Keeps garbage collection away from a latency-critical phase, until the guard is dropped.
    ///
    /// Running collections continue; a waiting [`Db::collect_garbage`] fails with `Busy`. Writers
    /// are not throttled for garbage during the pause, so space use grows, and a full store refuses
    /// writes with `NoSpace`. After the pause writers are throttled until the garbage is collected.
    /// Several pauses may overlap. Compaction and flushes continue. The guard does not keep the
    /// store open, and has no effect on a closed one.
    ///
    /// ```
    /// # use lavastore::GcRequest;
    /// # let db = lavastore::testing::store();
    /// let pause = db.pause_gc();
    /// assert!(db.collect_garbage(&GcRequest::default()).is_err());
    /// drop(pause);
    /// assert!(db.collect_garbage(&GcRequest::default()).is_ok());
    /// ```
    pub fn pause_gc(&self) -> GcPause {
        self.kv().pause_gc()
    }

    /// Finds damage before a reader needs the data, for a periodic check or after a hardware fault:
    /// reads and checks every byte of tables, value files, log and manifest.
    ///
    /// Damage is no error of the call: [`VerifyReport::errors`] lists it (at most 10,000 places),
    /// so that one damaged file does not hide another. Then restore a checkpoint, or use
    /// [`Db::repair`]. Records of logs have a check of their own,
    /// [`LogStore::verify`](crate::LogStore::verify). The call blocks for a read of the whole
    /// store. Reads and writes continue.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify()?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Closed`, `Forked`: the store was closed meanwhile, or a parent process opened it. There
    ///   is no report: open the store and repeat.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.kv().verify()
    }

    /// Checks every byte as [`Db::verify`] does, where a long check must be cancellable or have a
    /// deadline. Reads and writes continue. Damage is no error: the report lists it, at most 10,000
    /// places.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify_with(&Default::default())?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Cancelled`: the token ended the call, and there is no report. Repeat it with more time.
    /// * `Closed`, `Forked`: the store was closed meanwhile, or a parent process opened it. There
    ///   is no report: open the store and repeat.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.kv().verify_unless(options.cancel.as_ref())
    }

    /// Tells after a read-only open whether the shown state is complete: returns the damage of log
    /// and manifest that the open tolerated, or nothing if there is none.
    ///
    /// A store with such damage shows the state before it: for each family a state that once
    /// existed. [`Db::repair`] salvages the data behind the damage. A store that is open for
    /// writing has no such damage, since its open fails instead. [`Db::damaged_files`] lists
    /// damaged data files. A closed store returns the error `Closed` as the only item.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.kv().damage()
    }

    /// Lists the data files that are damaged, with the range of keys that each affects, to judge a
    /// failed read or a report of [`Db::verify`].
    ///
    /// An open, background work or [`Db::verify`] finds them and sets them aside. Reads of keys in
    /// these ranges fail with `Corruption` unless newer data answers them; the rest of the store
    /// works, writes included. Restore a checkpoint, or use [`Db::repair`]. The list is empty if no
    /// damage is known, and for a closed store. [`Db::damage`] has the damage of log and manifest.
    /// The call reads memory only.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damaged_files().is_empty());
    /// ```
    pub fn damaged_files(&self) -> Vec<DamagedFile> {
        self.kv().damaged_files()
    }

    /// Returns counters and latencies since the store was opened, for dashboards and tests.
    ///
    /// The call reads memory only. The counters begin at zero with each open, and each one is read
    /// at its own moment. A closed store returns zeros. [`Db::space`] has the bytes on disk,
    /// [`Db::metrics`] all of it as text.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.get("key")?;
    /// assert_eq!(db.stats().gets, 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn stats(&self) -> Statistics {
        self.kv().stats()
    }

    /// Returns hits, misses and sizes of the block cache, to choose
    /// [`Options::cache_bytes`](crate::Options::cache_bytes): many misses of a busy store ask for a
    /// larger cache.
    ///
    /// The counters begin at zero with each open; sizes are bytes of now. The call reads memory
    /// only. A closed store returns zeros.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// println!("{:?}", db.cache_stats());
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        self.kv().cache_stats()
    }

    /// Returns all counters and gauges as text in the Prometheus exposition format, for a scraper
    /// that this program serves.
    ///
    /// The text has all of [`Db::space`], [`Db::stats`] and [`Db::cache_stats`]. Without a server,
    /// [`Options::metrics_file`](crate::Options::metrics_file) writes it to a file every five
    /// seconds. The cost is a listing of the directory, so do not call it for each request.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.metrics()?.contains("lavastore_space_bytes"));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`: the system refused to list the directory. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn metrics(&self) -> Result<String> {
        self.kv().metrics()
    }

    /// Explains why a store is large, before you delete data or raise a limit: which part of the
    /// store owns each byte on disk, and which snapshots and iterators hold space.
    ///
    /// The cost is a directory listing and, in the first calls after an open, reads of files (about
    /// 64 MiB per call). Some estimates are less exact until all files are read. All quantities are
    /// bytes unless their name says otherwise. [`Db::stats`] has the counters of work.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let space = db.space()?;
    /// assert_eq!(space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>(), space.total_bytes);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`: the system refused to list the directory. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn space(&self) -> Result<Space> {
        self.kv().space()
    }

    /// Lists the engines that have data in the store, with the space of each, to find unused logs
    /// before [`Db::remove_engine`].
    ///
    /// An entry has the name of the engine, whether the store was opened with it, the number of its
    /// files and their bytes. The key-value engine is always there; a store with logs has the engine
    /// of the logs too. Bytes are those allocated on disk, without the shared log: [`Db::space`] has all of them.
    /// The cost is a directory listing.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let engines = db.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "lavakv" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`: the system refused to list the directory. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.kv().engines()
    }

    /// Removes another engine from the store for good, with all its data, for example logs that no
    /// program opens any more.
    ///
    /// Until then that data keeps the shared log from shrinking, and it can prevent checkpoints
    /// (`Unsupported`). The store must be open without the engine. The removal is durable on
    /// return, and completes at the next open if a crash interrupts it. It cannot be undone.
    /// [`Db::engines`] lists the names.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.remove_engine("queue").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(db.remove_engine("lavakv").unwrap_err().kind(), ErrorKind::Unsupported);
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no such engine; the message lists the names.
    /// * `InvalidArgument`: the store was opened with the engine. Open it without.
    /// * `Unsupported`: the key-value engine cannot be removed.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`: nothing is removed, or the next open removes the rest of its files.
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        self.kv().remove_engine(name)
    }

    /// Returns the format of the store, to learn which releases can open it and which features it
    /// has.
    ///
    /// [`StoreFormat`] lists the formats; [`Db::upgrade`] raises that of the store. The call reads
    /// memory only. A closed store returns the oldest format.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.kv().format()
    }

    /// Enables features of a newer format, such as empty keys, once and for good; opens never do
    /// that by themselves.
    ///
    /// Earlier releases that do not know the format refuse the store from then on, and the format
    /// cannot be lowered: take a checkpoint first. Readers and writers continue meanwhile; existing
    /// data is not rewritten. The change is durable on return and atomic in a crash. A store that
    /// already has the format is unchanged.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let db = lavastore::testing::store();
    /// db.upgrade(StoreFormat::NEWEST)?;
    /// assert_eq!(db.format(), StoreFormat::NEWEST);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the store has a newer format already.
    /// * `NoSpace`: nothing has changed. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen it; it has either format.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.kv().upgrade(format)
    }

    /// Shows the shape of each family to a person, for debugging: text with a line for each level.
    ///
    /// Its form may change: programs use [`Db::space`]. The call reads memory only. A closed store
    /// returns the text of its error.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.describe().contains("default"));
    /// ```
    pub fn describe(&self) -> String {
        self.kv().describe()
    }

    /// Lets a test or benchmark begin without background work: waits until flush, compaction and
    /// collection have nothing to do, at most `timeout`; returns true if so.
    ///
    /// False means that the time is over or the store is closed. Writers on other threads may start
    /// new work at any time. True is also the answer for a read-only store and for one that a
    /// failed write stopped. Data may stay in memory, and nothing becomes durable by this call: see
    /// [`Db::flush`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.wait_idle(std::time::Duration::from_secs(10)));
    /// ```
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.kv().wait_idle(timeout)
    }

    /// Returns the underlying engine, for the torture programs.
    #[doc(hidden)]
    pub fn engine(&self) -> &lavakv::Db {
        self.kv()
    }
}
