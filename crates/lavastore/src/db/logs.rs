//! Keys and logs in one store.

use super::Db;
use crate::handle::Handle;
use crate::log::LogsBeside;
use crate::{
    Applier, Env, Error, Family, Log, LogBatch, LogOptions, LogStore, Options, Result, SpaceLimit,
    WriteBatch, WriteOptions,
};
use std::path::Path;

/// Keys and logs in one store: one directory, one lock, one limit of the space, one set of threads, and batches of both.
impl Db {
    /// Opens a store with its logs, or makes one. Of the options of the logs, `background_threads` and `create_if_missing` are not
    /// asked: those of the store count. Where [`LogOptions::group_bytes`] says nothing, groups of logs suit
    /// [`Options::space_limit`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-with-logs-{}", std::process::id()));
    /// use lavastore::{Db, LogBatch, LogOptions, Options, WriteBatch};
    ///
    /// let db = Db::open_with_logs(&dir, &Options::default(), &LogOptions::default())?;
    /// let orders = db.logs()?.log("orders")?;
    /// let mut stock = WriteBatch::new();
    /// stock.put("apples", "98");
    /// // Both or neither, in one write of the device.
    /// db.write_with_logs(&stock, LogBatch::new().append(&orders, 1, "two apples"))?;
    /// # drop((orders, db));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::open_with`] and [`LogStore::open_with`]; `InvalidArgument` for [`LogOptions::space_limit`], since
    /// [`Options::space_limit`] holds for both.
    pub fn open_with_logs(path: impl AsRef<Path>, options: &Options, logs: &LogOptions) -> Result<Db> {
        Self::open_with_logs_in(&Env::kernel(), path, options, logs)
    }

    /// As [`Db::open_with_logs`], in an environment.
    ///
    /// ```
    /// use lavastore::{Db, LogOptions, Options, testing::SimEnv};
    /// let machine = SimEnv::new(1);
    /// let db = Db::open_with_logs_in(&machine.env(), "/store", &Options::default(), &LogOptions::default())?;
    /// db.logs()?.log("orders")?.append(1, "two apples")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::open_with_logs`].
    pub fn open_with_logs_in(
        env: &Env,
        path: impl AsRef<Path>,
        options: &Options,
        logs: &LogOptions,
    ) -> Result<Db> {
        let limit = match options.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => Some(bytes),
            // They grow with the data or the volume.
            Some(SpaceLimit::Ratio(_) | SpaceLimit::VolumePercent(_)) | None => None,
        };
        let mut guest = lavalog::Beside::new(logs)?.below(limit);
        let kv = lavakv::beside::open_with_records(env.clone(), path.as_ref(), options.clone(), &mut guest)?;
        let logs = LogsBeside::new(guest.store()?);
        Ok(Db { default: Family::new(Handle::of_default(&kv, Some(logs))) })
    }

    /// Whether a store that need not be open has logs: then [`Db::open_with_logs`] opens all of it. It reads the manifest only.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-has-logs-{}", std::process::id()));
    /// use lavastore::{Db, LogStore};
    /// LogStore::open(&dir)?.log("orders")?;
    /// assert!(Db::has_logs(&dir)?);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no store; `Corruption`; `Unsupported`.
    pub fn has_logs(path: impl AsRef<Path>) -> Result<bool> {
        Self::has_logs_in(&Env::kernel(), path)
    }

    /// As [`Db::has_logs`], in an environment.
    ///
    /// ```
    /// use lavastore::{Db, testing::SimEnv};
    /// assert!(Db::has_logs_in(&SimEnv::new(1).env(), "/store").is_err(), "there is no store");
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::has_logs`].
    pub fn has_logs_in(env: &Env, path: impl AsRef<Path>) -> Result<bool> {
        Ok(lavakv::Db::stored_engines_in(env, path)?.iter().any(|name| name == lavalog::NAME))
    }

    /// The logs of the store. Their handles keep the store open, as any other handle does.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the store was opened without them.
    pub fn logs(&self) -> Result<LogStore> {
        Ok(self.default.handle().logs_or_refuse()?.store(self.kv()))
    }

    /// Writes changes of keys and operations on logs together: all of it or nothing, in one write of the device. What it promises is
    /// what a write of the logs promises: durable when it returns, unless [`LogOptions::durability`] says otherwise, or the options do
    /// ([`Writer::write_with_logs`](crate::Writer::write_with_logs)).
    ///
    /// ```
    /// use lavastore::{LogBatch, WriteBatch};
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// let mut stock = WriteBatch::new();
    /// stock.put("apples", "98").delete("reserved");
    /// db.write_with_logs(&stock, LogBatch::new().append(&orders, 1, "two apples"))?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`] and [`LogStore::write`]: nothing happened. `TooLarge` for a value that gets a file of its own (above a
    /// quarter of [`ExpertOptions::log_group_bytes`](crate::ExpertOptions::log_group_bytes)); `InvalidArgument` if the store was opened without its logs.
    pub fn write_with_logs(&self, batch: &WriteBatch, logs: &LogBatch<'_>) -> Result<()> {
        self.writing(&WriteOptions::default()).write_with_logs(batch, logs)
    }

    /// For a state that is made by applying the records of a log: writes its changes without a log of their own, each with the
    /// record that led to it.
    ///
    /// ```
    /// use lavastore::WriteBatch;
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// orders.append(1, "two apples")?;
    ///
    /// let mut applier = db.applier(&orders)?;
    /// for record in orders.scan(applier.next_lsn()?..) {
    ///     let (lsn, order) = record?;
    ///     let mut changes = WriteBatch::new();
    ///     changes.put("last order", order);
    ///     applier.apply(lsn, &changes)?;
    /// }
    /// assert_eq!(applier.applied_lsn()?, Some(1));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the log is of another store; `Locked` if it has an applier already; `NotFound` if it was deleted; those of
    /// [`Db::family`].
    pub fn applier(&self, log: &Log) -> Result<Applier> {
        if log.store().id() != self.default.handle().store() {
            return Err(Error::invalid("the log that is to be applied is of another store"));
        }
        Applier::new(self.family(crate::applier::FAMILY)?, log.clone())
    }
}
