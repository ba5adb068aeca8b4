//! Keys and logs in one store.

use super::Db;
use crate::handle::FamilyHandle;
use crate::log::StoreLogs;
use crate::{
    Applier, Env, Error, Family, Log, LogBatch, LogOptions, LogStore, Options, Result, SpaceLimit,
    WriteBatch, WriteOptions,
};
use std::path::Path;

/// Keys and logs share one directory, one lock, one space limit and one set of threads, and a batch
/// may change both.
impl Db {
    /// Opens a store of keys together with its logs, where one batch must change both
    /// ([`Db::write_with_logs`]), or where keys are rebuilt from a log ([`Db::applier`]).
    ///
    /// Creates the store, or its logs, if they are missing. `create_if_missing` is about the store:
    /// in an existing store the logs are created without it. For logs alone use [`LogStore::open`],
    /// for keys alone [`Db::open`]. Threads and creation follow [`Options`]; these fields of
    /// [`LogOptions`] are ignored. Leave `space_limit`, `io_budget` and `fast_tier` of
    /// [`LogOptions`] unset: those of [`Options`] hold for both. [`Options::space_limit`]
    /// determines [`LogOptions::group_bytes`] if that is unset.
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
    /// * `InvalidArgument`: an option is out of range, or one of [`LogOptions`] must be unset.
    /// * `NotFound`, `AlreadyExists`: `create_if_missing` or `error_if_exists` forbids the call.
    /// * `Locked`: a process has the store open. Share its `Db`, or open the store for reading.
    /// * `Busy`: the logs were removed ([`Db::remove_engine`]), and their remains are not gone yet.
    ///   Open with [`Db::open`], flush, close, and repeat.
    /// * `Corruption`: log or manifest is damaged. Restore a checkpoint, or use [`Db::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_with_logs(path: impl AsRef<Path>, options: &Options, logs: &LogOptions) -> Result<Db> {
        Self::open_with_logs_in(&Env::kernel(), path, options, logs)
    }

    /// Opens keys with their logs as [`Db::open_with_logs`] does, where the store is on a LavaFS
    /// volume, on two disks ([`Volumes::env`](crate::Volumes::env)), or on a simulated machine. It
    /// creates the store, or its logs, if they are missing. `space_limit`, `io_budget` and
    /// `fast_tier` of [`LogOptions`] must be unset.
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
    /// * `InvalidArgument`: an option is out of range, or one of [`LogOptions`] must be unset.
    /// * `NotFound`, `AlreadyExists`: `create_if_missing` or `error_if_exists` forbids the call.
    /// * `Locked`: a process has the store open. Share its `Db`, or open the store for reading.
    /// * `Busy`: the logs were removed ([`Db::remove_engine`]), and their remains are not gone yet.
    ///   Open with [`Db::open_in`], flush, close, and repeat.
    /// * `Corruption`: log or manifest is damaged. Restore a checkpoint, or use [`Db::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_with_logs_in(
        env: &Env,
        path: impl AsRef<Path>,
        options: &Options,
        logs: &LogOptions,
    ) -> Result<Db> {
        let limit = match options.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => Some(bytes),
            // These limits grow with the data or the volume.
            Some(SpaceLimit::Ratio(_) | SpaceLimit::VolumePercent(_)) | None => None,
        };
        let mut secondary = lavalog::SecondaryLogs::new(logs)?.below(limit);
        let kv = lavakv::multi_engine::open_with_records(
            env.clone(),
            path.as_ref(),
            options.clone(),
            &mut secondary,
        )?;
        let logs = StoreLogs::new(secondary.store()?);
        Ok(Db { default: Family::new(FamilyHandle::of_default(&kv, Some(logs))) })
    }

    /// Tells a tool how to open a store: true if it has logs, so that [`Db::open_with_logs`] opens
    /// all of it, and [`Db::open`] only the keys.
    ///
    /// The store may be closed, or open in any process. The call reads the manifest and changes
    /// nothing. In an open store use [`Db::engines`].
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
    /// * `NotFound`: there is no store. Check the path.
    /// * `Corruption`: the store's own description is damaged. Use [`Db::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    pub fn has_logs(path: impl AsRef<Path>) -> Result<bool> {
        Self::has_logs_in(&Env::kernel(), path)
    }

    /// Tells whether a store has logs as [`Db::has_logs`] does, for a store on a LavaFS volume, on
    /// two disks or on a simulated machine. It reads the manifest and changes nothing.
    ///
    /// ```
    /// use lavastore::{Db, testing::SimEnv};
    /// assert!(Db::has_logs_in(&SimEnv::new(1).env(), "/store").is_err(), "there is no store");
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no store. Check the path.
    /// * `Corruption`: the store's own description is damaged. Use [`Db::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    pub fn has_logs_in(env: &Env, path: impl AsRef<Path>) -> Result<bool> {
        Ok(lavakv::Db::stored_engines_in(env, path)?.iter().any(|name| name == lavalog::NAME))
    }

    /// Returns the logs of the store, to create, append and read them beside the keys. For changes
    /// of keys and logs in one step use [`Db::write_with_logs`]. For logs without keys use
    /// [`LogStore::open`]. The call costs nothing. The result, and each log from it, keeps the
    /// store open.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: the store was opened without its logs. Open it with
    /// [`Db::open_with_logs`].
    pub fn logs(&self) -> Result<LogStore> {
        Ok(self.default.handle().logs_or_refuse()?.store(self.kv()))
    }

    /// Changes keys and logs together, in one device write: for a table that must agree with its
    /// log. For keys alone use [`Db::write`], for logs alone [`LogStore::write`].
    ///
    /// Readers and crashes see both halves or neither. The write is durable on return unless
    /// [`LogOptions::durability`] says otherwise;
    /// [`Writer::write_with_logs`](crate::Writer::write_with_logs) chooses for one write. If
    /// buffered writes of keys precede it, the call first waits for their device write. Both parts
    /// together have at most 16 MiB + 128 KiB. A value above a quarter of
    /// [`ExpertOptions::log_group_bytes`](crate::ExpertOptions::log_group_bytes) (4 MiB by default)
    /// is refused as `TooLarge`: write it with a put.
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
    /// * `InvalidArgument`: no open logs, or a part of another store.
    /// * `Trimmed`, `AlreadyExists`: an LSN is below the trim point, or has other bytes.
    /// * `NotFound`: a family or log is gone. `TooLarge`: beyond the [`limits`](crate::limits).
    /// * `NoSpace`: the limit or the volume is full. Trim logs, delete keys, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the batch may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn write_with_logs(&self, batch: &WriteBatch, logs: &LogBatch<'_>) -> Result<()> {
        self.writing(&WriteOptions::default()).write_with_logs(batch, logs)
    }

    /// Returns an applier for keys that are rebuilt from a log, such as a state machine, without
    /// logging them a second time.
    ///
    /// The applier writes the changes of each log record together with the LSN of the record,
    /// without a device write. After a crash it tells where to continue, so no record is applied
    /// twice or skipped. A log has one applier at a time, used by one thread at a time; it keeps
    /// the store open. The first one of a store creates the family `lavastore.applied`. Where each
    /// change is made once, use [`Db::write_with_logs`].
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
    /// * `Locked`: the log already has an applier. Drop that one.
    /// * `InvalidArgument`: the log belongs to another store. Take it from [`Db::logs`].
    /// * `NotFound`: the log was deleted.
    /// * `TooLarge`: the store has 65,536 families, and the first applier needs one. Drop another.
    /// * `NoSpace`: nothing was created. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`, `Io`, `Poisoned`: open the store for writing again.
    pub fn applier(&self, log: &Log) -> Result<Applier> {
        if log.store().id() != self.default.handle().store() {
            return Err(Error::invalid("the applied log belongs to another store: take it from this one"));
        }
        Applier::new(self.family(crate::applier::FAMILY)?, log.clone())
    }
}
