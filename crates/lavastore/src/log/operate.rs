//! Operations of a store of logs: statistics, checkpoint, verification and format.

use super::LogStore;
use crate::{
    CheckpointOptions, EngineSpace, Error, LogStatistics, LogStoreSpace, LogVerifyReport, Result,
    StoreFormat, VerifyOptions,
};
use std::path::Path;

/// Operations and statistics.
impl LogStore {
    /// Returns the contents of the store in numbers, and counters since it was opened. Reads memory
    /// only.
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

    /// Returns which part of the store owns each byte on disk, and the live bytes of each log.
    ///
    /// Use it to find the log that needs a trim. The cost is one directory listing and a lookup of
    /// each log.
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
    /// `Io` of listing the directory; `Closed`, `Forked`.
    pub fn space(&self) -> Result<LogStoreSpace> {
        self.engine().space()
    }

    /// Returns the engines that have data in the store and the space of each, without the log that
    /// they share.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let engines = store.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "LavaLog" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.engine().engines()
    }

    /// Returns the format of the store. A release must know it to open the store.
    ///
    /// ```
    /// # use lavastore::StoreFormat;
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.format(), StoreFormat::DEFAULT);
    /// ```
    pub fn format(&self) -> StoreFormat {
        self.engine().format()
    }

    /// Raises the format of the store: see [`Db::upgrade`](crate::Db::upgrade).
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
    /// The errors of [`Db::upgrade`](crate::Db::upgrade).
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.engine().upgrade(format)
    }

    /// Returns the damage of the log or the manifest of a store that is open for reading. The store
    /// shows the state before the damage. An empty result means that the state is complete.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert!(store.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.engine().damage()
    }

    /// Waits until no background work is left, for tests and for measurements of space.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// store.wait_idle()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSpace`: the remaining work has no room. Trim or delete logs, or raise the limit.
    /// Otherwise the error that stopped the store.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// Makes a consistent copy of the open store in a new directory, for backups; writers continue.
    ///
    /// The copy is an independent store with all earlier writes, all of them durable. On the same
    /// file system hard links share the files.
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
    /// * `AlreadyExists`: the directory is not empty. Choose another one.
    /// * `Locked`: another checkpoint is written there.
    /// * `Unsupported`: the store has keys. Open both and use
    ///   [`Db::checkpoint`](crate::Db::checkpoint).
    /// * `Corruption`: a file to copy is damaged; the error names it.
    /// * `NoSpace`, `Io`, `Closed`: no part of the copy is left.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(dir.as_ref())
    }

    /// Same as [`LogStore::checkpoint`], with options.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.checkpoint_with("/monday", &Default::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`LogStore::checkpoint`]; `Cancelled`, after which no part of the copy is
    /// left.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.engine().checkpoint_unless(dir.as_ref(), options.cancel.as_ref())
    }

    /// Same as [`LogStore::verify`], with options.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert!(store.verify_with(&Default::default())?.is_sound());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<LogVerifyReport> {
        self.engine().verify_unless(options.cancel.as_ref())
    }

    /// Reads and checks every byte of every record, to find damage before a reader needs the data.
    ///
    /// The report lists each damage with its file, its offset and the lost records; damage is not
    /// an error of the call. The cost is a read of the whole store. Writers continue meanwhile.
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
