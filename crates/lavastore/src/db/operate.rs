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
    /// Flushes all memtables to tables. All earlier writes are then durable.
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
    /// `NoSpace`; `ReadOnly`; the error of a background job.
    pub fn flush(&self) -> Result<()> {
        self.kv().flush()
    }

    /// Changes the space limit of the open store; `None` leaves the size of the volume as the
    /// limit. A store above its new limit admits only deletes until background jobs have shrunk it.
    /// Memtables and log groups keep their sizes until the next open, which takes the limit from
    /// its own options.
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
    /// `InvalidArgument` for a limit out of range; `ReadOnly`; `NoSpace` if the store has no log
    /// yet and still no room for one.
    pub fn set_space_limit(&self, limit: Option<SpaceLimit>) -> Result<()> {
        self.kv().set_space_limit(limit)
    }

    /// Makes a consistent copy of the store in a new directory; hard links share the table files.
    /// If the store is open with its logs, the copy has keys and logs as of one moment: a batch
    /// over both is there whole or not at all.
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
    /// `AlreadyExists` if the directory is not empty; `Locked` while another checkpoint is written
    /// there; `Unsupported` if the store has data of an engine that is not open (for `LavaLog`,
    /// open the store with its logs); `NoSpace`; errors of writing.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.kv().checkpoint(dir)
    }

    /// Asks the process that has the store in `dir` open for a checkpoint of keys and logs in
    /// `target`, and waits for it: see [`Db::checkpoint`]. The process polls for requests once a
    /// second by default
    /// ([`ExpertOptions::checkpoint_requests`](crate::ExpertOptions::checkpoint_requests)).
    /// `target` is an absolute path in the namespace of that process, which owns the copy.
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
    /// The errors of [`Db::checkpoint`]; `InvalidArgument` for a relative target; `NotFound`
    /// without a store; `Locked` if the process does not accept the request in time; `Closed` if no
    /// process has the store open, or if it ended before it answered.
    pub fn request_checkpoint(
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
    ) -> Result<()> {
        Db::request_checkpoint_in(&Env::kernel(), dir, target, take_within, &mut |_| {})
    }

    /// Same as [`Db::request_checkpoint`], in an environment. `tell` gets the state of the request
    /// from time to time, on the calling thread.
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
    /// The errors of [`Db::request_checkpoint`].
    pub fn request_checkpoint_in(
        env: &Env,
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
        tell: &mut dyn FnMut(CheckpointRequest),
    ) -> Result<()> {
        lavakv::request_checkpoint(env, dir.as_ref(), target.as_ref(), take_within, tell)
    }

    /// Same as [`Db::checkpoint`], with options.
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
    /// The errors of [`Db::checkpoint`]; `Cancelled`, after which no part of the copy is left.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.kv().checkpoint_unless(dir, options.cancel.as_ref())
    }

    /// Collects garbage in vSSTs now, as far as the request says, and waits. Garbage that
    /// compaction has not exposed yet stays; [`Db::compact_range`] exposes it.
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
    /// `InvalidArgument` for a request out of range; `ReadOnly`; `Busy` while collection is paused;
    /// `NoSpace`; `Cancelled`.
    pub fn collect_garbage(&self, request: &GcRequest) -> Result<GcReport> {
        self.kv().collect_garbage(request.clone())
    }

    /// Same as [`Db::collect_garbage`]; `tell` gets the progress on the calling thread, at least
    /// once: after each collection and from time to time in between. It may call into the store.
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
    /// The errors of [`Db::collect_garbage`].
    pub fn collect_garbage_with(
        &self,
        request: &GcRequest,
        tell: &mut dyn FnMut(&GcProgress),
    ) -> Result<GcReport> {
        self.kv().collect_garbage_with(request.clone(), tell)
    }

    /// Returns the plan of [`Db::collect_garbage`] without executing it. Works in a read-only store
    /// too.
    ///
    /// ```
    /// # use lavastore::GcRequest;
    /// # let db = lavastore::testing::store();
    /// assert!(db.gc_plan(&GcRequest::default())?.collections.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a request out of range.
    pub fn gc_plan(&self, request: &GcRequest) -> Result<GcPlan> {
        self.kv().gc_plan(request.clone())
    }

    /// Starts no garbage collection until the guard is dropped; running collections continue.
    /// Writers are not throttled for garbage during the pause. After it they are, until the garbage
    /// is collected.
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

    /// Reads and checks every byte of every file. The report lists all damage, so that one damaged
    /// file does not hide another; damage is not returned as an error.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify()?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of listing the files.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.kv().verify()
    }

    /// Same as [`Db::verify`], with options.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify_with(&Default::default())?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Db::verify`]; `Cancelled`.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.kv().verify_unless(options.cancel.as_ref())
    }

    /// Returns the damage of the log or the manifest of a store that is open for reading. The store
    /// shows the state before the damage: for each family a state that once existed. An empty
    /// result means that the state is complete. [`Db::repair`] salvages the data behind the damage.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.kv().damage()
    }

    /// Returns the tables and value files that an open, background work or [`Db::verify`] found
    /// damaged and set aside. Keys in their ranges cannot be read unless a newer table has them;
    /// the rest of the store works.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damaged_files().is_empty());
    /// ```
    pub fn damaged_files(&self) -> Vec<DamagedFile> {
        self.kv().damaged_files()
    }

    /// Returns counters since the store was opened.
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

    /// Returns statistics of the block cache.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// println!("{:?}", db.cache_stats());
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        self.kv().cache_stats()
    }

    /// Returns counters and gauges in the Prometheus exposition format: all of [`Db::space`],
    /// [`Db::stats`] and [`Db::cache_stats`]. docs/guide/ledger.md lists the ones to watch.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.metrics()?.contains("lavastore_space_bytes"));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of listing the directory.
    pub fn metrics(&self) -> Result<String> {
        self.kv().metrics()
    }

    /// Returns the owner of each byte on disk.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let space = db.space()?;
    /// assert_eq!(space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>(), space.total_bytes);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of listing the directory.
    pub fn space(&self) -> Result<Space> {
        self.kv().space()
    }

    /// Returns the engines that have data in the store and the space of each: the key-value engine
    /// and those of other programs that share the store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let engines = db.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "lavakv" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.kv().engines()
    }

    /// Removes another engine from the store for good: its records, its files and its part of the
    /// log. Use it for an engine that no program will open again: until then its data pins the log.
    /// Durable on return.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.remove_engine("queue").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(db.remove_engine("lavakv").unwrap_err().kind(), ErrorKind::Unsupported);
    /// ```
    ///
    /// `NotFound` if there is no such engine, with the existing names; `InvalidArgument` if the
    /// store was opened with it; `Unsupported` for the key-value engine; `ReadOnly`. After an error
    /// of writing the manifest nothing is removed. After an error of removing files the next open
    /// removes the rest.
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        self.kv().remove_engine(name)
    }

    /// Returns the format of the store. A release must know it to open the store.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.kv().format()
    }

    /// Raises the format of the store and enables its features. Earlier releases that do not know
    /// the format refuse the store from then on, and the format cannot be lowered. Readers and
    /// writers continue meanwhile. The change is durable on return and atomic in a crash. A store
    /// that already has the format is unchanged.
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
    /// `InvalidArgument` if the store has a newer format; `NoSpace`, after which nothing has
    /// changed; `ReadOnly`; errors of writing the manifest.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.kv().upgrade(format)
    }

    /// Returns the shape of the tree as text, with a line for each family and level.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.describe().contains("default"));
    /// ```
    pub fn describe(&self) -> String {
        self.kv().describe()
    }

    /// Waits at most `timeout` until there is no background work. Returns true if there is none.
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
