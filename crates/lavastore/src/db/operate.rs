//! Operations of a store: flush, checkpoint, collection, verification, statistics and format.

use super::Db;
use crate::{
    CacheStats, CheckpointOptions, CheckpointRequest, DamagedFile, EngineSpace, Env, Error, GcPause, GcPlan,
    GcProgress, GcReport, GcRequest, Result, Space, SpaceLimit, Statistics, StoreFormat, VerifyOptions,
    VerifyReport,
};
use std::path::Path;
use std::time::Duration;

/// Operations and statistics.
impl Db {
    /// Writes everything that is only in memory to files, and waits; all earlier writes are then
    /// durable.
    ///
    /// The store flushes by itself. Call this to make volatile writes durable, or to shorten the
    /// next open. The cost is a device write of up to all buffered data. Reads and writes continue.
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
    /// * `NoSpace`: no room for the files. The data stays in memory and log. Make room and repeat.
    /// * `ReadOnly`, `Closed`: this handle cannot write.
    /// * The error of a background job, such as `Io`.
    pub fn flush(&self) -> Result<()> {
        self.kv().flush()
    }

    /// Changes the space limit of the open store without a restart; `None` leaves only the volume
    /// as limit.
    ///
    /// A store above its new limit admits only deletes until background jobs have shrunk it. Some
    /// buffer sizes follow the limit only at the next open, which takes the limit from its own
    /// options.
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
    /// * `InvalidArgument`: the limit is out of range; the message names the range.
    /// * `ReadOnly`, `Closed`: this handle cannot write.
    /// * `NoSpace`: the store still has no room to begin writing. Choose a higher limit.
    pub fn set_space_limit(&self, limit: Option<SpaceLimit>) -> Result<()> {
        self.kv().set_space_limit(limit)
    }

    /// Makes a consistent copy of the open store in a new directory, for backups; writers continue.
    ///
    /// The copy is an independent store with all families as of one moment, and with the logs if
    /// the store was opened with them. It is durable on return. On the same file system hard links
    /// share the files, so the copy costs a flush and a few names; otherwise it costs a copy of all
    /// bytes. The shared files use space until both stores have dropped them.
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
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another.
    /// * `Unsupported`: the store has logs but was opened without them. Use [`Db::open_with_logs`].
    /// * `Corruption`: a log to copy is damaged; the error names the file. Use [`Db::repair`].
    /// * `NoSpace`, `Io`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot make a checkpoint. Open the store.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.kv().checkpoint(dir)
    }

    /// Asks the process that has the store open for a checkpoint in `target`, and waits for it.
    ///
    /// Use it in a backup tool beside a running service. The copy is that of [`Db::checkpoint`]: an
    /// independent store. The service looks for requests about once a second, unless
    /// [`ExpertOptions::checkpoint_requests`](crate::ExpertOptions::checkpoint_requests) is off.
    /// `target` is an absolute path as that process sees it, and the copy belongs to that process.
    /// `take_within` limits the wait until the process accepts the request; the checkpoint itself
    /// has no time limit.
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
    /// * `Locked`, `Busy`: no process accepted the request in time, or too many wait. Repeat later.
    /// * `Closed`: no process has the store open. Open it and use [`Db::checkpoint`].
    /// * `AlreadyExists`: `target` is not empty. Choose another directory.
    /// * `Unsupported`, `Corruption`, `NoSpace`, `Io`: the copy failed; the message has the remedy.
    pub fn request_checkpoint(
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
    ) -> Result<()> {
        Db::request_checkpoint_in(&Env::kernel(), dir, target, take_within, &mut |_| {})
    }

    /// Asks for a checkpoint as [`Db::request_checkpoint`] does, where the caller shows progress,
    /// or the store is not in the machine's file system.
    ///
    /// `tell` gets the state of the request from time to time, on the calling thread.
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
    /// * `Locked`, `Busy`: no process accepted the request in time, or too many wait. Repeat later.
    /// * `Closed`: no process has the store open. Open it and use [`Db::checkpoint`].
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

    /// Makes a copy as [`Db::checkpoint`] does, where a long copy must be cancellable or have a
    /// deadline.
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
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another.
    /// * `Unsupported`: the store has logs but was opened without them. Use [`Db::open_with_logs`].
    /// * `Corruption`: a log to copy is damaged; the error names the file. Use [`Db::repair`].
    /// * `NoSpace`, `Io`, `Cancelled`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot make a checkpoint. Open the store.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.kv().checkpoint_unless(dir, options.cancel.as_ref())
    }

    /// Frees the space of overwritten and deleted separated values now, as far as the request says,
    /// and waits.
    ///
    /// Collection runs in the background anyway; use this call before a backup or in quiet hours.
    /// Garbage that compaction has not found yet stays: call [`Db::compact_range`] first. The call
    /// reads and rewrites live values, so it takes device time and some free space. Reads and
    /// writes continue.
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
    /// * `Busy`: a [`GcPause`] is alive. Drop it and repeat.
    /// * `NoSpace`: no room for the rewritten values. Delete data or raise the limit.
    /// * `Cancelled`: [`GcRequest::cancel`] ended the call. Completed collections stay.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * The error of a background job, such as `Io`.
    pub fn collect_garbage(&self, request: &GcRequest) -> Result<GcReport> {
        self.kv().collect_garbage(request.clone())
    }

    /// Collects as [`Db::collect_garbage`] does, where the caller shows the progress of a long
    /// collection.
    ///
    /// `tell` runs on the calling thread, at least once: after each collection and from time to
    /// time in between. It may call into the store.
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
    /// * `Busy`: a [`GcPause`] is alive. Drop it and repeat.
    /// * `NoSpace`: no room for the rewritten values. Delete data or raise the limit.
    /// * `Cancelled`: [`GcRequest::cancel`] ended the call. Completed collections stay.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * The error of a background job, such as `Io`.
    pub fn collect_garbage_with(
        &self,
        request: &GcRequest,
        tell: &mut dyn FnMut(&GcProgress),
    ) -> Result<GcReport> {
        self.kv().collect_garbage_with(request.clone(), tell)
    }

    /// Returns what [`Db::collect_garbage`] would do now, with its cost, without doing it.
    ///
    /// The call works in a read-only store too and changes nothing.
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

    /// Pauses garbage collection until the guard is dropped, for example during a latency-critical
    /// phase.
    ///
    /// Running collections continue. Writers are not throttled for garbage during the pause, so
    /// space use grows; a full store refuses writes. After the pause writers are throttled until
    /// the garbage is collected. Several pauses may overlap.
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

    /// Reads and checks every byte of every file, to find damage before a reader needs the data.
    ///
    /// The report lists all damage, so that one damaged file does not hide another; damage is not
    /// an error of the call. The cost is a read of the whole store. Reads and writes continue.
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
    /// deadline. Damage is no error: the report lists it.
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

    /// Returns the damage that a read-only open tolerated; empty if the state is complete.
    ///
    /// Such a store shows the state before the damage: for each family a state that once existed.
    /// [`Db::repair`] salvages the data behind the damage. A store that is open for writing returns
    /// nothing here: its open fails instead.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.kv().damage()
    }

    /// Returns the data files that are damaged, with the range of keys that each affects.
    ///
    /// An open, background work or [`Db::verify`] finds them and sets them aside. Reads of keys in
    /// these ranges fail with `Corruption` unless newer data answers them; the rest of the store
    /// works. Restore the store, or use [`Db::repair`]. Empty if nothing is damaged, and for a
    /// closed store.
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
    /// The call reads memory only. A closed store returns zeros.
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
    /// [`Options::cache_bytes`](crate::Options::cache_bytes).
    ///
    /// The call reads memory only. A closed store returns zeros.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// println!("{:?}", db.cache_stats());
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        self.kv().cache_stats()
    }

    /// Returns all counters and gauges as text in the Prometheus exposition format.
    ///
    /// The text has all of [`Db::space`], [`Db::stats`] and [`Db::cache_stats`].
    /// [`Options::metrics_file`](crate::Options::metrics_file) writes it to a file every five
    /// seconds. The cost is that of [`Db::space`].
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

    /// Returns which part of the store owns each byte on disk, and which snapshots and iterators
    /// hold space.
    ///
    /// Use it to find the reason for growth before you delete data or raise a limit. The cost is a
    /// directory listing and, in the first calls after an open, bounded reads of files. All
    /// quantities are bytes unless their name says otherwise.
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

    /// Returns the engines that have data in the store, with the space of each.
    ///
    /// The key-value engine is always there; a store with logs has the engine of the logs too.
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

    /// Removes another engine from the store for good, with all its data, for example unused
    /// logs.
    ///
    /// Use it if no program will open that engine again: until then its data keeps the shared log
    /// from shrinking. The removal is durable on return, and completes at the next open if a crash
    /// interrupts it. It cannot be undone.
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
    /// * `ReadOnly`, `Closed`: this handle cannot write.
    /// * `Io`: nothing is removed, or the next open removes the rest of its files.
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        self.kv().remove_engine(name)
    }

    /// Returns the format of the store, which decides the releases that can open it.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.kv().format()
    }

    /// Raises the format of the store to enable newer features, once and for good.
    ///
    /// Earlier releases that do not know the format refuse the store from then on, and the format
    /// cannot be lowered: take a checkpoint first. Readers and writers continue meanwhile. The
    /// change is durable on return and atomic in a crash. A store that already has the format is
    /// unchanged.
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
    /// * `ReadOnly`, `Closed`: this handle cannot write.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.kv().upgrade(format)
    }

    /// Returns the shape of each family as text for people, with a line for each level. Its form
    /// may change.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.describe().contains("default"));
    /// ```
    pub fn describe(&self) -> String {
        self.kv().describe()
    }

    /// Waits at most `timeout` for the end of all background work; returns true if there is none.
    ///
    /// Use it in tests and benchmarks. Writers on other threads may start new work at any time.
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
