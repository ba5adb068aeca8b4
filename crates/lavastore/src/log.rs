//! The log engine: a store of logs, its handles and batches.
//!
//! Every handle is a pair of the engine's handle and the store that it keeps open. The engine's
//! handle is dropped first, so that no other handle is left when the last store handle closes the
//! store.

mod batch;
mod completion;
mod handle;
mod operate;
mod scan;

pub(crate) use batch::durability_of;
pub use batch::{LogBatch, LogWriter};
pub use completion::Completion;
pub use handle::Log;
pub use scan::LogScan;

use crate::handle::StoreId;
use crate::{Env, LogOptions, LogRepairOptions, LogRepairReport, Result, WriteOptions};
use lavakv::process::Owned;
use std::path::Path;
use std::sync::Arc;

/// Identifies a record in its log. The writer chooses the number, 0 to 2^64 - 2.
///
/// Usually the numbers are consecutive, but gaps and any order are allowed. An LSN has no meaning
/// in another log; a [`SeqNo`](crate::SeqNo) numbers the writes of keys.
///
/// ```
/// # let store = lavastore::testing::log_store();
/// let first: lavastore::Lsn = 1000;
/// store.log("orders")?.append(first, "an order")?;
/// # Ok::<(), lavastore::Error>(())
/// ```
pub type Lsn = u64;

/// An open store of thousands of logs in few files, for redo logs, Raft logs and queues.
///
/// A log is a sequence of records by [`Lsn`]. Open one `LogStore` per directory, clone it, and
/// share it between threads. [`Db::open_with_logs`](crate::Db::open_with_logs) has logs and keys in
/// one store.
///
/// * **Durability.** Writes are [`Durable`](crate::Durability::Durable) on return unless
///   [`LogOptions::durability`] or [`WriteOptions`] say otherwise. Concurrent writers share one
///   device write, whichever logs they write to.
/// * **Space.** [`Log::trim`] gives up old records; background collection then frees their space.
///   At [`LogOptions::space_limit`] appends wait or fail with `NoSpace`; trims and deletes proceed.
/// * **Close.** The store stays open while any object made from it lives: clones, logs and scans.
///   Dropping the last one closes it. [`LogStore::close`] closes it at once and reports errors.
///   Later calls fail with `Closed`.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("lavastore-logs-{}", std::process::id()));
/// use lavastore::LogStore;
///
/// let store = LogStore::open(&dir)?;
/// let orders = store.log("orders")?;
/// orders.append(1, "two apples")?;
/// orders.append(2, "one pear")?;
/// for record in orders.scan(..) {
///     let (lsn, bytes) = record?;
///     println!("{lsn}: {}", bytes.escape_ascii());
/// }
/// orders.trim(2)?;
/// assert_eq!(orders.first_lsn()?, Some(2));
/// # drop(orders);
/// store.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
pub struct LogStore {
    shared: Owned<Arc<Shared>>,
    /// The key-value store that contains these logs, if any. Dropped last: this may be the handle
    /// that keeps it open.
    host: Option<Owned<lavakv::Db>>,
}

/// State shared by the handles of a store.
struct Shared {
    engine: lavalog::LogStore,
    /// The key-value store ends the engine, not these handles.
    is_secondary: bool,
}

/// The logs of a key-value store, held by each of its handles. The handle keeps the store open, not
/// this type.
#[derive(Clone)]
pub(crate) struct StoreLogs(Arc<Shared>);

impl StoreLogs {
    pub(crate) fn new(engine: lavalog::LogStore) -> StoreLogs {
        StoreLogs(Arc::new(Shared { engine, is_secondary: true }))
    }

    pub(crate) fn engine(&self) -> &lavalog::LogStore {
        &self.0.engine
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Returns a handle of the logs that keeps their store open.
    pub(crate) fn store(&self, host: &lavakv::Db) -> LogStore {
        LogStore { shared: Owned::new(self.0.clone()), host: Some(Owned::new(host.clone())) }
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        if self.is_secondary { Ok(()) } else { self.engine.end() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The next open finds the error again, as after a crash.
        let _ = self.close();
    }
}

/// Open and close.
impl LogStore {
    /// Opens a store of logs with default options, and creates it if it is missing;
    /// [`LogStore::open_with`] takes options.
    ///
    /// The open recovers the records of the last process; it reads the newest part of the log.
    /// After a loss of power each durable write is there, and of the buffered ones a prefix. One
    /// process at a time has a store open for writing; [`LogStore::open_read_only`] opens it beside
    /// that one. For keys and logs in one store use
    /// [`Db::open_with_logs`](crate::Db::open_with_logs).
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-logs-open-{}", std::process::id()));
    /// let store = lavastore::LogStore::open(&dir)?;
    /// # drop(store);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the path is not a store's directory.
    /// * `Locked`: a process has the store open. Share its `LogStore`, or open it read-only.
    /// * `Corruption`: durable data is lost. Restore a checkpoint, or use [`LogStore::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open(path: impl AsRef<Path>) -> Result<LogStore> {
        Self::open_with(path, &LogOptions::default())
    }

    /// Opens a store of logs with options: a space limit, another durability, a fast tier.
    ///
    /// The store does not remember them: pass the same ones at every open. [`LogStore::open`]
    /// suffices for the defaults. The open recovers the records of the last process, as that call
    /// does.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-logs-with-{}", std::process::id()));
    /// use lavastore::{LogOptions, LogStore};
    /// let options = LogOptions { group_bytes: Some(16 << 20), ..Default::default() };
    /// let store = LogStore::open_with(&dir, &options)?;
    /// # drop(store);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `NotFound`: there are no logs, and `create_if_missing` is off. Check the path.
    /// * `Locked`: a process has the store open. Share its `LogStore`, or open it read-only.
    /// * `Corruption`: durable data is lost. Restore a checkpoint, or use [`LogStore::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_with(path: impl AsRef<Path>, options: &LogOptions) -> Result<LogStore> {
        Self::open_in(&Env::kernel(), path, options)
    }

    /// Opens a store of logs that is not in the machine's file system, in an environment: a volume
    /// of LavaFS, two disks ([`Volumes::env`](crate::Volumes::env)), or a simulated machine for
    /// crash tests ([`testing`](crate::testing)). Use [`LogStore::open_with`] for a plain
    /// directory, with the same effect.
    ///
    /// ```
    /// use lavastore::{LogOptions, LogStore, testing::SimEnv};
    /// let machine = SimEnv::new(1);
    /// let store = LogStore::open_in(&machine.env(), "/logs", &LogOptions::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `NotFound`: there are no logs, and `create_if_missing` is off. Check the path.
    /// * `Locked`: a process has the store open. Share its `LogStore`, or open it read-only.
    /// * `Corruption`: durable data is lost. Restore a checkpoint, or use [`LogStore::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `NoSpace`, `Io`: the system refused an operation. Fix the cause and repeat.
    pub fn open_in(env: &Env, path: impl AsRef<Path>, options: &LogOptions) -> Result<LogStore> {
        let engine = lavalog::LogStore::open(env, path.as_ref(), options)?;
        Ok(LogStore { shared: Owned::new(Arc::new(Shared { engine, is_secondary: false })), host: None })
    }

    /// Opens the logs of a store for reading, also while another process has it open, and also if
    /// the store has keys. The reader shows the acknowledged records of one moment before the call:
    /// open it again to see more. [`LogStore::open`] opens it for writing. The reader takes no lock
    /// and changes nothing; writes are refused as `ReadOnly`. If the log or the manifest is
    /// damaged, the reader shows the state before the damage, and [`LogStore::damage`] reports it.
    ///
    /// A reader may stay open while the writer runs. Reading a record that the writer has collected
    /// since then fails with `Busy`: open the store again and continue at the same LSN.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-logs-read-only-{}", std::process::id()));
    /// use lavastore::{ErrorKind, LogOptions, LogStore};
    /// let writer = LogStore::open(&dir)?;
    /// writer.log("orders")?.append(1, "two apples")?;
    /// let reader = LogStore::open_read_only(&dir, &LogOptions::default())?;
    /// let orders = reader.open_log("orders")?;
    /// assert_eq!(orders.read(1)?.as_deref(), Some(&b"two apples"[..]));
    /// assert_eq!(orders.append(2, "one pear").unwrap_err().kind(), ErrorKind::ReadOnly);
    /// # drop((orders, reader, writer));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there are no logs. A read-only open creates none.
    /// * `Busy`: the writer changes the store faster than it can be read. Repeat the call.
    /// * `Corruption`: no state can be shown. Use [`LogStore::repair`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `Io`: the system refused a read. Fix the cause and repeat.
    pub fn open_read_only(path: impl AsRef<Path>, options: &LogOptions) -> Result<LogStore> {
        Self::open_read_only_in(&Env::kernel(), path, options)
    }

    /// Opens logs for reading as [`LogStore::open_read_only`] does, where the store is on a LavaFS
    /// volume, on two disks, or on a simulated machine. The reader shows one moment, takes no lock
    /// and changes nothing. Damage of log or manifest is no error: see [`LogStore::damage`].
    ///
    /// ```
    /// use lavastore::{ErrorKind, LogOptions, LogStore, testing::SimEnv};
    /// let env = SimEnv::new(1).env();
    /// let none = LogStore::open_read_only_in(&env, "/logs", &LogOptions::default());
    /// assert_eq!(none.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there are no logs. A read-only open creates none.
    /// * `Busy`: the writer changes the store faster than it can be read. Repeat the call.
    /// * `Corruption`: no state can be shown. Use [`LogStore::repair_in`].
    /// * `Unsupported`: a newer release wrote the store. Use that release.
    /// * `InvalidArgument`: an option is out of range, or the path is not a store's directory.
    /// * `Io`: the system refused a read. Fix the cause and repeat.
    pub fn open_read_only_in(env: &Env, path: impl AsRef<Path>, options: &LogOptions) -> Result<LogStore> {
        let engine = lavalog::LogStore::open_read_only(env, path.as_ref(), options)?;
        Ok(LogStore { shared: Owned::new(Arc::new(Shared { engine, is_secondary: false })), host: None })
    }

    /// Salvages the records of a damaged store of logs into a new one, where an open fails with
    /// `Corruption` or [`LogStore::verify`] found damage, and no checkpoint is at hand.
    ///
    /// Damage is no error: the report lists the losses of each log. Every saved record has passed
    /// its checksum. Repair only reads the damaged store: it stays the same byte for byte, and no
    /// write permission is needed. `into` must be missing, empty, or the remainder of an
    /// interrupted repair. Every open refuses `into` until the repair has finished. The call reads
    /// the whole store, copies its live records, and blocks until the copy is durable.
    /// [`LogRepairOptions::dry_run`] shows the losses first.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("lavastore-log-repair-{}", std::process::id()));
    /// # let (damaged, repaired) = (dir.join("damaged"), dir.join("repaired"));
    /// use lavastore::{LogRepairOptions, LogStore};
    /// # LogStore::open(&damaged)?.log("orders")?.append(1, "two apples")?;
    /// let report = LogStore::repair(&damaged, &repaired, &LogRepairOptions::default())?;
    /// assert!(report.is_lossless());
    /// assert!(LogStore::open(&repaired)?.log("orders")?.read(1)?.is_some());
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Locked`: a process has the store open. Close it there.
    /// * `InvalidArgument`: an option is out of range, or `into` is inside the damaged store.
    /// * `AlreadyExists`: `into` has other contents. Choose another directory.
    /// * `NotFound`: `path` is no directory, or an unfinished checkpoint or repair.
    /// * `Unsupported`: of a newer release, or with keys (`leave_out_others` drops these).
    /// * `NoSpace`, `Io`, `Cancelled`: the new store is removed. Fix the cause and repeat.
    pub fn repair(
        path: impl AsRef<Path>,
        into: impl AsRef<Path>,
        options: &LogRepairOptions,
    ) -> Result<LogRepairReport> {
        let env = Env::kernel();
        Self::repair_in(&env, path, &env, into, options)
    }

    /// Salvages logs as [`LogStore::repair`] does, where the damaged or the new store is not in the
    /// machine's file system, but on a LavaFS volume, on two disks
    /// ([`Volumes::env`](crate::Volumes::env)), or on a simulated machine. `from` and `to` may be
    /// the same environment.
    ///
    /// Damage is no error: the report lists the losses. The damaged store stays the same byte for
    /// byte, also after an error.
    ///
    /// ```
    /// use lavastore::{LogOptions, LogRepairOptions, LogStore, testing::SimEnv};
    /// let env = SimEnv::new(1).env();
    /// LogStore::open_in(&env, "/logs", &LogOptions::default())?.log("orders")?.append(1, "two apples")?;
    /// let report = LogStore::repair_in(&env, "/logs", &env, "/repaired", &LogRepairOptions::default())?;
    /// assert_eq!(report.records(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Locked`: a process has the store open. Close it there.
    /// * `InvalidArgument`: an option is out of range, or `into` is inside the damaged store.
    /// * `AlreadyExists`: `into` has other contents. Choose another directory.
    /// * `NotFound`: `path` is no directory, or an unfinished checkpoint or repair.
    /// * `Unsupported`: of a newer release, or with keys (`leave_out_others` drops these).
    /// * `NoSpace`, `Io`, `Cancelled`: the new store is removed. Fix the cause and repeat.
    pub fn repair_in(
        from: &Env,
        path: impl AsRef<Path>,
        to: &Env,
        into: impl AsRef<Path>,
        options: &LogRepairOptions,
    ) -> Result<LogRepairReport> {
        lavalog::LogStore::repair(from, path.as_ref(), to, into.as_ref(), options)
    }

    /// Returns the underlying engine, for the torture programs.
    #[doc(hidden)]
    pub fn engine(&self) -> &lavalog::LogStore {
        &self.shared.engine
    }

    fn handle(&self, log: lavalog::LogHandle) -> Log {
        Log::new(log, self.clone())
    }

    pub(crate) fn id(&self) -> StoreId {
        self.engine().store_id()
    }

    /// Closes the store at once, even while other handles exist, and reports errors that a drop
    /// would hide.
    ///
    /// Calls on other threads end; later calls on clones, logs and scans fail with `Closed`.
    /// Waiting completions resolve. All earlier writes are durable afterwards, and the directory
    /// can be opened again. For logs of a key-value store ([`Db::logs`](crate::Db::logs)) the call
    /// closes the whole store. Closing a closed store does nothing.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let store = lavastore::testing::log_store();
    /// let log = store.log("orders")?;
    /// store.close()?;
    /// assert_eq!(log.append(1, "two apples").unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of background work or of the close itself. The store is closed even then:
    /// fix the cause and open it. `Forked` in a child process: nothing is closed.
    pub fn close(self) -> Result<()> {
        self.engine().check_process()?;
        match self.host {
            Some(host) => Owned::into_inner(host).close(),
            None => self.shared.close(),
        }
    }
}

/// Access to logs.
impl LogStore {
    /// Returns the log with this name, and creates it durably if it is missing: the usual way to a
    /// handle.
    ///
    /// A name has 1 to 1024 bytes. The handle keeps the store open. Threads may call this at the
    /// same time: one creates the log, all get it. Only the creation writes to the device, and
    /// blocks until it is durable. Use [`LogStore::open_log`] where a missing log is an error.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append(1, "two apples")?;
    /// assert_eq!(store.log("orders")?.last_lsn()?, Some(1));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`, `TooLarge`: the name is empty, or over 1024 bytes. Choose another one.
    /// * `TooLarge`: the store has 1,048,576 logs. Delete unused ones.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the log may exist. Close and reopen the store.
    pub fn log(&self, name: &str) -> Result<Log> {
        Ok(self.handle(self.engine().log(name)?))
    }

    /// Returns an existing log where a missing one is an error, and in a read-only store; creates
    /// none; [`LogStore::log`] creates it. Reads memory only. The handle keeps the store open.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.open_log("orders").unwrap_err().kind(), lavastore::ErrorKind::NotFound);
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no such log. Check the name, or use [`LogStore::log`].
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn open_log(&self, name: &str) -> Result<Log> {
        Ok(self.handle(self.engine().open_log(name)?))
    }

    /// Creates a log where an existing one is an error, to claim a name; of several threads one
    /// succeeds. The log is durable on return; its name has 1 to 1024 bytes. A store has at most
    /// 1,048,576 logs. Use [`LogStore::log`] if it may exist.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.create_log("orders")?;
    /// assert_eq!(store.create_log("orders").unwrap_err().kind(), lavastore::ErrorKind::AlreadyExists);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`: a log has this name. Use [`LogStore::open_log`].
    /// * `InvalidArgument`, `TooLarge`: the name is empty, or over 1024 bytes. Choose another one.
    /// * `TooLarge`: the store has 1,048,576 logs. Delete unused ones.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the log may exist. Close and reopen the store.
    pub fn create_log(&self, name: &str) -> Result<Log> {
        Ok(self.handle(self.engine().create_log(name)?))
    }

    /// Deletes a log with all its records and metadata; the delete is durable on return.
    ///
    /// All handles of the log then fail with `NotFound`, even after a log of the same name is
    /// created. Background work frees the space later. The call also works in a full store. To keep
    /// the log and remove old records only, use [`Log::trim`].
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// store.delete_log("orders")?;
    /// assert_eq!(orders.append(1, "late").unwrap_err().kind(), lavastore::ErrorKind::NotFound);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no such log. Check the name.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the log may be gone. Close and reopen the store.
    pub fn delete_log(&self, name: &str) -> Result<()> {
        self.engine().delete_log(name)
    }

    /// Returns the names of all logs in byte order; for very many logs use
    /// [`LogStore::log_names_from`]. A store has at most 1,048,576 logs. Reads memory only. A
    /// closed store returns none.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("payments")?;
    /// store.log("orders")?;
    /// assert_eq!(store.log_names(), ["orders", "payments"]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    #[doc(alias = "list_logs")]
    pub fn log_names(&self) -> Vec<String> {
        self.log_names_from("", usize::MAX)
    }

    /// Returns at most `limit` log names in byte order, starting at `from`, to list many logs in
    /// pages.
    ///
    /// The result is empty if there are no more names, and for a closed store.
    /// [`LogStore::log_names`] returns all. The call reads memory only. The next page starts at the
    /// last name plus a zero character.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("payments")?;
    /// store.log("orders")?;
    /// assert_eq!(store.log_names_from("p", 10), ["payments"]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn log_names_from(&self, from: &str, limit: usize) -> Vec<String> {
        self.engine().list_logs(from, limit)
    }
}

/// Writes to several logs.
impl LogStore {
    /// Writes a batch atomically, over any number of logs, where records or metadata must appear
    /// together.
    ///
    /// [`Log`] has the methods for a single operation. Readers and crashes see all operations of
    /// the batch or none. A batch has at most 1,048,576 operations, and 16 MiB + 128 KiB. The call
    /// blocks until the batch has the durability of the store (`Durable` by default). At the space
    /// limit it may wait up to ten seconds for garbage collection. An identical record at the same
    /// LSN succeeds, so the batch may be repeated.
    ///
    /// ```
    /// use lavastore::LogBatch;
    /// # let store = lavastore::testing::log_store();
    /// let (orders, payments) = (store.log("orders")?, store.log("payments")?);
    /// let mut batch = LogBatch::new();
    /// batch.append(&orders, 1, "two apples").append(&payments, 1, "3 euros");
    /// store.write(&batch)?;
    /// assert_eq!(payments.last_lsn()?, Some(1));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`, `AlreadyExists`: an LSN is below the trim point, or has other bytes. Omit it.
    /// * `InvalidArgument`: a log of another store, or an LSN twice or trimmed in the batch.
    /// * `NotFound`: a log was deleted. `TooLarge`: beyond the [`limits`](crate::limits). Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the batch may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the write exists; after another error
    /// nothing is written.
    pub fn write(&self, batch: &LogBatch<'_>) -> Result<()> {
        self.write_as(batch, None)
    }

    /// Writes a batch as [`LogStore::write`] does, where its durability differs from that of the
    /// store: for example many buffered batches before one [`LogStore::sync`]. Readers see the
    /// batch on return; a durable one blocks for the device. It has at most 1,048,576 operations,
    /// and 16 MiB + 128 KiB.
    ///
    /// ```
    /// use lavastore::{LogBatch, WriteOptions};
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// store.write_with(LogBatch::new().append(&orders, 1, "two apples"), &WriteOptions::buffered())?;
    /// store.sync()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`, `AlreadyExists`: an LSN is below the trim point, or has other bytes. Omit it.
    /// * `InvalidArgument`: the options or the batch are not allowed; the message has the reason.
    /// * `NotFound`: a log was deleted. `TooLarge`: beyond the [`limits`](crate::limits). Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the batch may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the batch exists; after another error
    /// nothing is written. The options must not ask for
    /// [`Volatile`](crate::Durability::Volatile), since records are always in the log, or for a
    /// deadline ([`WriteOptions::wait_at_most`]).
    pub fn write_with(&self, batch: &LogBatch<'_>, options: &WriteOptions) -> Result<()> {
        self.write_as(batch, batch::durability_of(options)?)
    }

    fn write_as(&self, batch: &LogBatch<'_>, durability: Option<crate::Durability>) -> Result<()> {
        batch.check_store(self.id())?;
        self.engine().write(batch.inner(), durability.unwrap_or_else(|| self.engine().durability()))
    }

    /// Writes a batch without waiting for the device, to keep many batches in flight on one thread.
    ///
    /// Readers see all of its operations on return, before they are durable; a loss of power may
    /// still take them, all or none. The completion resolves when they are durable, whatever the
    /// default of the store; [`LogStore::write`] blocks until then. At the space limit the call
    /// itself may wait up to ten seconds for garbage collection.
    ///
    /// ```
    /// use lavastore::LogBatch;
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// let durable = store.write_async(LogBatch::new().append(&orders, 1, "two apples"))?;
    /// durable.wait()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`, `AlreadyExists`: an LSN is below the trim point, or has other bytes. Omit it.
    /// * `InvalidArgument`: a log of another store, or an LSN twice or trimmed in the batch.
    /// * `NotFound`: a log was deleted. `TooLarge`: beyond the [`limits`](crate::limits). Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the batch may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the write exists; after another error
    /// nothing is written. The completion reports a later failure of the device.
    pub fn write_async(&self, batch: &LogBatch<'_>) -> Result<Completion> {
        batch.check_store(self.id())?;
        Ok(Completion::new(self.engine().write_async(batch.inner())?))
    }

    /// Makes all earlier buffered writes of all logs survive a loss of power, to end a run of
    /// buffered writes; blocks until the device has them. Concurrent calls share device writes;
    /// durable writes need no sync. Writes that other threads make meanwhile may or may not be
    /// included.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::buffered()).append(1, "two apples")?;
    /// store.sync()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`, `Poisoned`: this call or an earlier write failed at the device. A loss of power may
    ///   take buffered writes. Close and reopen the store.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }
}

impl std::fmt::Debug for LogStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogStore({})", self.engine().dir().display())
    }
}
