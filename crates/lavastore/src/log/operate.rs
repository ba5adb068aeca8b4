//! Operations of a store of logs: statistics, checkpoint, verification and format.

use super::LogStore;
use crate::{
    CheckpointOptions, EngineSpace, Error, LogStatistics, LogStoreSpace, LogVerifyReport, Result,
    StoreFormat, VerifyOptions,
};
use std::path::Path;

/// Operations and statistics.
impl LogStore {
    /// Returns the contents of the store in numbers, and counters since it was opened, for
    /// monitoring. Reads memory only.
    ///
    /// Use [`LogStore::space`] for bytes on disk and the size of each log. The counters begin at
    /// zero with each open. A closed store returns zeros.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// assert_eq!(store.stats().appends, 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn stats(&self) -> LogStatistics {
        self.engine().statistics()
    }

    /// Returns the owner of each byte on disk and the live bytes of each log, to find the log that
    /// needs a trim.
    ///
    /// The cost is one directory listing and a lookup of each log; [`LogStore::stats`] is cheaper.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// let space = store.space()?;
    /// assert_eq!(space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>(), space.total_bytes);
    /// assert_eq!((space.logs[0].records, space.logs[0].live_bytes), (1, 10));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`: the system refused to list the directory. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn space(&self) -> Result<LogStoreSpace> {
        self.engine().space()
    }

    /// Returns the engines that have data in the store and the space of each, to see whether a
    /// directory has keys beside its logs.
    ///
    /// The bytes do not include the log, which the engines share: [`LogStore::space`] has it. The
    /// cost is one directory listing.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let engines = store.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "LavaLog" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`: the system refused to list the directory. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.engine().engines()
    }

    /// Returns the format of the store, to compare it with the newest one before
    /// [`LogStore::upgrade`] or a downgrade. A release must know the format to open the store.
    ///
    /// Reads memory only. A closed store returns format 1.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.engine().format()
    }

    /// Raises the format of the store to enable newer features, once and for good.
    ///
    /// Earlier releases that do not know the format refuse the store from then on: take a
    /// checkpoint first. [`LogStore::format`] returns the present one. Reads and writes continue;
    /// records are not rewritten. The change is durable on return and atomic in a crash. A store
    /// that already has the format is unchanged.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let store = lavastore::testing::log_store();
    /// store.upgrade(StoreFormat::NEWEST)?;
    /// assert_eq!(store.stats().format, StoreFormat::NEWEST.number());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the store has a newer format already. A format cannot be lowered.
    /// * `NoSpace`: nothing has changed. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.engine().upgrade(format)
    }

    /// Returns the damage that a read-only open met in the log or the manifest, to decide whether
    /// its state is complete. An empty result means that it is.
    ///
    /// After damage the store shows the state before it: use [`LogStore::repair`] to save the rest.
    /// A store that is open for writing returns nothing, since its open fails at such damage;
    /// damage of records is found by [`LogStore::verify`]. A closed store returns
    /// `Closed`. Reads memory only.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert!(store.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.engine().damage()
    }

    /// Waits until no background work is left, for tests and for measurements of space. Programs do
    /// not need it.
    ///
    /// It blocks without a limit while writers make new work. It makes nothing durable: see
    /// [`LogStore::sync`].
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// store.wait_idle()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NoSpace`: the remaining work has had no room for a second. Trim or delete logs, or raise
    ///   the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle has no background work. Open the store for
    ///   writing.
    /// * `Poisoned`: a write of the store failed. Close and reopen the store.
    /// * Another error holds the work up, such as a lack of descriptors; the work resumes without
    ///   it.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// Makes a consistent copy of the open store in `dir`, for backups; writers continue. `dir`
    /// must be missing or empty.
    ///
    /// The copy is an independent store with all writes that returned before the call, all of them
    /// durable. On the same file system hard links share the files, so the cost is that of the
    /// unsealed end of the log; elsewhere every file is copied. Blocks until the copy is complete;
    /// no space is collected meanwhile.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-log-checkpoint-{}", std::process::id()));
    /// # use lavastore::LogStore;
    /// let store = LogStore::open(dir.join("store"))?;
    /// store.log("orders")?.append(1, "two apples")?;
    /// store.checkpoint(dir.join("monday"))?;
    /// let monday = LogStore::open(dir.join("monday"))?;
    /// assert_eq!(monday.open_log("orders")?.read(1)?.as_deref(), Some(&b"two apples"[..]));
    /// # drop((store, monday));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another.
    /// * `Unsupported`: the store has keys. Use [`Db::checkpoint`](crate::Db::checkpoint).
    /// * `Corruption`: a file to copy is damaged; the error names it. Use [`LogStore::repair`].
    /// * `NoSpace`, `Io`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: no copy is left. Open the store for writing and repeat.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(dir.as_ref())
    }

    /// Makes a copy as [`LogStore::checkpoint`] does, where a long copy must be cancellable or have
    /// a deadline. The copy is independent and durable on return. A cancelled call leaves no part
    /// of the copy.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.checkpoint_with("/monday", &Default::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`, `Locked`: other files or another checkpoint are there. Take another.
    /// * `Unsupported`: the store has keys. Use [`Db::checkpoint`](crate::Db::checkpoint).
    /// * `Corruption`: a file to copy is damaged; the error names it. Use [`LogStore::repair`].
    /// * `NoSpace`, `Io`, `Cancelled`: no part of the copy is left. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: no copy is left. Open the store for writing and repeat.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.engine().checkpoint_unless(dir.as_ref(), options.cancel.as_ref())
    }

    /// Checks every record as [`LogStore::verify`] does, where a long check must be cancellable or
    /// have a deadline, or where the caller needs an error for a closed store. Damage is no error:
    /// the report lists it, at most 10,000 places. The cost is a read of the whole store; writers
    /// continue.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert!(store.verify_with(&Default::default())?.is_sound());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Cancelled`: the token ended the call, and there is no report. Repeat it with more time.
    /// * `Closed`, `Forked`: the store was closed meanwhile, or a parent process opened it. There
    ///   is no report: open the store and repeat.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<LogVerifyReport> {
        self.engine().verify_unless(options.cancel.as_ref())
    }

    /// Reads and checks every byte of every record, to find damage before a reader needs the data.
    ///
    /// The report lists each damage with its file, its offset and the lost records, at most 10,000
    /// places. Damage is not an error of the call. The cost is a read of the whole store, on the
    /// calling thread. Writers continue meanwhile. If the store is closed, the report has that
    /// error as its only damage; [`LogStore::verify_with`] returns it as an error. After damage
    /// restore a checkpoint, or use [`LogStore::repair`].
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// let report = store.verify();
    /// assert!(report.is_sound());
    /// for damage in &report.damages {
    ///     eprintln!("{}", damage.error);
    ///     for lost in &damage.lost {
    ///         eprintln!("  log {}, records {} to {}", lost.log, lost.first, lost.last);
    ///     }
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    #[doc(alias = "scrub")]
    pub fn verify(&self) -> LogVerifyReport {
        self.engine().verify()
    }
}
