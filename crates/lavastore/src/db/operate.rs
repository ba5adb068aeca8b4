//! What operators ask of a store.

use super::Db;
use crate::{
    CacheStats, CheckpointOptions, CheckpointRequest, DamagedFile, EngineSpace, Env, Error, GcPause, GcPlan,
    GcProgress, GcReport, GcRequest, Result, Space, SpaceLimit, Statistics, StoreFormat, VerifyOptions,
    VerifyReport,
};
use std::path::Path;
use std::time::Duration;

/// Operating a store.
impl Db {
    /// Writes all memtables to tables. What was written before the call is then durable.
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
    /// `NoSpace`; `ReadOnly`; the failure of a job.
    pub fn flush(&self) -> Result<()> {
        self.kv().flush()
    }

    /// Changes the space limit while the store is open; `None`: the end of the volume is the limit. A store above a lower limit admits
    /// deletes only, until its background jobs have brought it below. Memtables and log groups keep their sizes until the next open,
    /// which takes the limit of its own options.
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
    /// `InvalidArgument` for a limit out of range; `ReadOnly`; `NoSpace` if the store has no log and still has no room for one.
    pub fn set_space_limit(&self, limit: Option<SpaceLimit>) -> Result<()> {
        self.kv().set_space_limit(limit)
    }

    /// Makes a consistent copy of the store in a new directory, sharing table files by hard links. Of a store that is open with its
    /// logs the copy has both at one moment: a batch of both is there whole or not at all.
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
    /// `AlreadyExists` if there is something in the directory; `Locked` while another checkpoint is made there; `Unsupported` if another
    /// engine keeps something in the store that is not open here (`LavaLog`: open the store with its logs); `NoSpace`; those of writing.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.kv().checkpoint(dir)
    }

    /// Has the process that has the store in `dir` open make a checkpoint in the directory `target`, and waits for it: as
    /// [`Db::checkpoint`] there, of keys and logs. The process looks for requests once a second, unless its options say
    /// otherwise ([`ExpertOptions::checkpoint_requests`](crate::ExpertOptions::checkpoint_requests)). `target` is absolute, in the
    /// names of that process, which owns the copy. `take_within`: the longest wait until the process takes the request; the
    /// checkpoint then takes as long as it takes.
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
    /// Those of [`Db::checkpoint`]; `InvalidArgument` for a relative target; `NotFound` without a store; `Locked` if no process takes
    /// the request in time; `Closed` if no process has the store open, or that process ended before it answered.
    pub fn request_checkpoint(
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
    ) -> Result<()> {
        Db::request_checkpoint_in(&Env::kernel(), dir, target, take_within, &mut |_| {})
    }

    /// As [`Db::request_checkpoint`], in an environment; `tell` gets the state of the request now and then, on the calling
    /// thread.
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
    /// Those of [`Db::request_checkpoint`].
    pub fn request_checkpoint_in(
        env: &Env,
        dir: impl AsRef<Path>,
        target: impl AsRef<Path>,
        take_within: Duration,
        tell: &mut dyn FnMut(CheckpointRequest),
    ) -> Result<()> {
        lavakv::request_checkpoint(env, dir.as_ref(), target.as_ref(), take_within, tell)
    }

    /// As [`Db::checkpoint`], with options.
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
    /// Those of [`Db::checkpoint`]; `Cancelled`: nothing is left of the copy.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.kv().checkpoint_unless(dir, options.cancel.as_ref())
    }

    /// Collects garbage in vSSTs now, as far as the request says, and waits for it. Garbage that compaction has not
    /// exposed yet stays: [`Db::compact_range`] exposes it.
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
    /// `InvalidArgument` for a request out of range; `ReadOnly`; `Busy` while collection is paused; `NoSpace`; `Cancelled`.
    pub fn collect_garbage(&self, request: &GcRequest) -> Result<GcReport> {
        self.kv().collect_garbage(request.clone())
    }

    /// As [`Db::collect_garbage`]; `tell` hears how far it has come, at least once, on the calling thread, whenever a
    /// collection ended and now and then between. It may call into the store.
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
    /// Those of [`Db::collect_garbage`].
    pub fn collect_garbage_with(
        &self,
        request: &GcRequest,
        tell: &mut dyn FnMut(&GcProgress),
    ) -> Result<GcReport> {
        self.kv().collect_garbage_with(request.clone(), tell)
    }

    /// What [`Db::collect_garbage`] would do now, in a read-only store, too. Changes nothing.
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

    /// Starts no collection of garbage until the guard is dropped; those under way go on. Writers are not slowed
    /// down for the garbage that piles up meanwhile; they are once the pause has ended, until it is collected.
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

    /// Reads and checks every byte of every file. Damage is reported, not returned as an error, so that one damaged
    /// file does not hide another.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify()?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of listing the files.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.kv().verify()
    }

    /// As [`Db::verify`], with options.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.verify_with(&Default::default())?.errors.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::verify`]; `Cancelled`.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.kv().verify_unless(options.cancel.as_ref())
    }

    /// What is wrong with the log or the manifest of a store that was opened for reading all the same: it shows what is before
    /// the damage, of each family a state that it once had. Empty: nothing, and this is all there is. What is behind the
    /// damage is saved by [`Db::repair`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.kv().damage()
    }

    /// The tables and value files that were found damaged and set aside: by the open, by background work, or by
    /// [`Db::verify`]. Keys in their ranges that no newer table has cannot be read; the store goes on with the rest.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.damaged_files().is_empty());
    /// ```
    pub fn damaged_files(&self) -> Vec<DamagedFile> {
        self.kv().damaged_files()
    }

    /// Counters since the store was opened.
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

    /// Statistics of the block cache.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// println!("{:?}", db.cache_stats());
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        self.kv().cache_stats()
    }

    /// Counters and gauges as text for Prometheus, in its exposition format: all of [`Db::space`], [`Db::stats`] and
    /// [`Db::cache_stats`]. docs/guide/ledger.md tells what to watch.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.metrics()?.contains("lavastore_space_bytes"));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn metrics(&self) -> Result<String> {
        self.kv().metrics()
    }

    /// Who owns which bytes on disk.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let space = db.space()?;
    /// assert_eq!(space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>(), space.total_bytes);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn space(&self) -> Result<Space> {
        self.kv().space()
    }

    /// The engines that have something in the store, with what each has there: the key-value engine, and those of other
    /// programs that share the store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let engines = db.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "lavakv" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.kv().engines()
    }

    /// Removes another engine from the store for good: its records, its files, and what it has in the log. For one that no
    /// program will open the store with again: until then the log cannot let go of what that engine may need. Durable on
    /// return.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.remove_engine("queue").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(db.remove_engine("lavakv").unwrap_err().kind(), ErrorKind::Unsupported);
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such engine, with the names that there are; `InvalidArgument` if the store was opened with
    /// it; `Unsupported` for the key-value engine; `ReadOnly`; those of writing the manifest, after which nothing is removed,
    /// and of removing files, of which the rest then goes at the next open.
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        self.kv().remove_engine(name)
    }

    /// The format of the store: what other releases must know to open it.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.kv().format()
    }

    /// Raises the format of the store, and so allows what the format brings. Earlier releases that do not know the format refuse the store
    /// from then on; there is no way back. Readers and writers go on meanwhile. Durable on return, and done once: a store that has
    /// the format is left as it is. A crash leaves the store in the old format or in the new one.
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
    /// `InvalidArgument` if the store has a newer format; `NoSpace`, after which nothing has changed; `ReadOnly`; those of writing
    /// the manifest.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.kv().upgrade(format)
    }

    /// Shape of the tree: a line for each family and level.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.describe().contains("default"));
    /// ```
    pub fn describe(&self) -> String {
        self.kv().describe()
    }

    /// Waits until there is no background work left, at most `timeout`. True if there is none.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.wait_idle(std::time::Duration::from_secs(10)));
    /// ```
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.kv().wait_idle(timeout)
    }

    /// The engine underneath, for the torture programs.
    #[doc(hidden)]
    pub fn engine(&self) -> &lavakv::Db {
        self.kv()
    }
}
