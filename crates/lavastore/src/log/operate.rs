//! What operators ask of a store of logs.

use super::LogStore;
use crate::{
    CheckpointOptions, EngineSpace, Error, LogStatistics, LogStoreSpace, LogVerifyReport, Result,
    StoreFormat, VerifyOptions,
};
use std::path::Path;

/// What operators ask for.
impl LogStore {
    /// What it has, and what it did since it was opened.
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

    /// Who owns the bytes on disk: every byte of the directory has an owner, and what is alive is told log by log. The cost is that of
    /// listing the directory, and of a look at each log.
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
    /// Those of listing the directory.
    pub fn space(&self) -> Result<LogStoreSpace> {
        self.engine().space()
    }

    /// The engines that have something in the store, with what each has there beside the log, which they share.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let engines = store.engines()?;
    /// assert!(engines.len() == 1 && engines[0].name == "LavaLog" && engines[0].is_open);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        self.engine().engines()
    }

    /// The format of the store: what other releases must know to open it.
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
    /// As there.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.engine().upgrade(format)
    }

    /// What is wrong with the log or the manifest of a store that was opened for reading all the same: it shows what is before the
    /// damage. Empty: nothing, and this is all there is.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert!(store.damage().is_empty());
    /// ```
    pub fn damage(&self) -> Vec<Error> {
        self.engine().damage()
    }

    /// Waits until there is nothing left to do in the background: closed groups are storage, and what is to be collected is.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// store.settle()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// What stopped the store; `NoSpace` if there is no room for what is left to do.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Makes a consistent copy of the store in a new directory, sharing files by hard links: a store of its own, with everything that was
    /// written before the call, all of it durable. Writers go on meanwhile.
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
    /// `AlreadyExists` if there is something in the directory; `Locked` while another checkpoint is made there; `Unsupported` if the store
    /// has keys as well: [`Db::checkpoint`](crate::Db::checkpoint) of a store that was opened with both copies both at one moment;
    /// `Corruption` if something is damaged that is to be copied; `NoSpace`; those of writing.
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(dir.as_ref())
    }

    /// As [`LogStore::checkpoint`], with options.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.checkpoint_with("/monday", &Default::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogStore::checkpoint`]; `Cancelled`: nothing is left of the copy.
    pub fn checkpoint_with(&self, dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<()> {
        self.engine().checkpoint_unless(dir.as_ref(), options.cancel.as_ref())
    }

    /// As [`LogStore::verify`], with options.
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

    /// Reads and checks every byte that records are read from, and that the index leads to each of them. Damage is reported, not
    /// returned as an error: each with its file, its offset, and the records that are lost with it. Writers go on meanwhile.
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
