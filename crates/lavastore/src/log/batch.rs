//! Writes to logs with options, and batches.

use super::{Log, Lsn};
use crate::handle::StoreId;
use crate::{Durability, Error, Result, WriteOptions};

/// Writes to one log with [`WriteOptions`]; [`Log::writing`] returns it.
///
/// Only [`WriteOptions::durability`](field@crate::WriteOptions::durability) applies, as `Durable`
/// or `Buffered`. Options with a bound on the wait are refused with `InvalidArgument`.
///
/// ```
/// # use lavastore::WriteOptions;
/// # let store = lavastore::testing::log_store();
/// let orders = store.log("orders")?;
/// let buffered = orders.writing(&WriteOptions::buffered());
/// buffered.append(1, "two apples")?;
/// buffered.append(2, "one pear")?;
/// store.sync()?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it writes nothing until it is asked"]
pub struct LogWriter<'a> {
    log: &'a Log,
    options: WriteOptions,
}

impl<'a> LogWriter<'a> {
    pub(super) fn new(log: &'a Log, options: WriteOptions) -> LogWriter<'a> {
        LogWriter { log, options }
    }

    fn durability(&self) -> Result<Durability> {
        let asked = durability_of(&self.options)?;
        Ok(asked.unwrap_or_else(|| self.log.store().engine().durability()))
    }

    /// Appends a record of at most 16 MiB at an LSN, and blocks until it has its durability.
    ///
    /// An identical record at the same LSN succeeds, so a retry is safe. Of two threads with
    /// different bytes for one LSN, the second one fails.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).append(1, "two apples")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`, `AlreadyExists`: the LSN is trimmed, or has other bytes. Take another.
    /// * `InvalidArgument`: [`Durability::Volatile`], a bound on the wait, or the LSN is 2^64 - 1.
    /// * `NotFound`: the log was deleted. `TooLarge`: the record is above 16 MiB. Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the record may exist), `Poisoned`: the device failed. Close and reopen the store.
    ///
    /// Nothing is written after an error other than `Io`.
    pub fn append(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.log.inner().append(lsn, bytes.as_ref(), self.durability()?)
    }

    /// Removes all records below an LSN for good, where [`Log::trim`] has the wrong durability: a
    /// durable trim holds after a loss of power.
    ///
    /// Later appends below the LSN are refused. A trim at or below the present trim point changes
    /// nothing. The default durability of a trim is [`Durability::Buffered`].
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).trim(100)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the trim may hold), `Poisoned`: the device failed. Close and reopen the store.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        let mut batch = lavalog::LogBatch::new();
        batch.trim(self.log.inner(), below);
        let asked = durability_of(&self.options)?;
        self.log.store().engine().write(&batch, asked.unwrap_or(Durability::Buffered))
    }

    /// Removes all records above an LSN with a durability other than that of
    /// [`Log::truncate_after`], for example buffered before a durable append.
    ///
    /// New records may reuse these LSNs.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).truncate_after(100)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the records may be gone), `Poisoned`: the device failed. Close and reopen the store.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.log.inner().truncate_after(lsn, self.durability()?)
    }

    /// Replaces the metadata, at most 4096 bytes, with a durability other than that of
    /// [`Log::set_metadata`], for example buffered before a
    /// [`LogStore::sync`](crate::LogStore::sync).
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).set_metadata("a few bytes")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted.
    /// * `TooLarge`: the metadata exceed 4096 bytes. Shorten them.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io` (the metadata may be new), `Poisoned`: the device failed. Close and reopen the store.
    pub fn set_metadata(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.log.inner().set_metadata(bytes.as_ref(), self.durability()?)
    }
}

/// Returns the durability that the options ask of a log write.
///
/// # Errors
/// `InvalidArgument` if the options have a deadline.
pub(crate) fn durability_of(options: &WriteOptions) -> Result<Option<Durability>> {
    match options.wait_at_most {
        None => Ok(options.durability),
        Some(_) => Err(Error::invalid(
            "a write of logs has no deadline: omit wait_at_most, or append asynchronously",
        )),
    }
}

/// An atomic batch of operations over any logs; [`LogStore::write`](crate::LogStore::write) writes
/// it.
///
/// Use a batch if records of several logs, or records and metadata, must appear together. The batch
/// borrows the bytes of its records. Building a batch never blocks or fails: the batch keeps its
/// first error, and the write returns it.
///
/// ```
/// use lavastore::LogBatch;
/// # let store = lavastore::testing::log_store();
/// let group = store.log("raft group 7")?;
/// let mut batch = LogBatch::new();
/// batch.truncate_after(&group, 41).append(&group, 42, "entry").set_metadata(&group, "term 12");
/// store.write(&batch)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LogBatch<'a> {
    inner: lavalog::LogBatch<'a>,
    /// The store of the named logs, if any; `Err` if they belong to several stores.
    store: Option<Result<StoreId, Mixed>>,
}

/// Marks a batch with logs of several stores.
#[derive(Clone, Copy, Debug)]
struct Mixed;

impl<'a> LogBatch<'a> {
    /// Returns an empty batch.
    ///
    /// ```
    /// assert!(lavastore::LogBatch::new().is_empty());
    /// ```
    pub fn new() -> LogBatch<'a> {
        LogBatch::default()
    }

    fn of(&mut self, log: &Log) -> &mut lavalog::LogBatch<'a> {
        match self.store {
            None => self.store = Some(Ok(log.store().id())),
            Some(Ok(store)) if store != log.store().id() => self.store = Some(Err(Mixed)),
            Some(_) => {}
        }
        &mut self.inner
    }

    /// Appends a record.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// # let orders = store.log("orders")?;
    /// let mut batch = lavastore::LogBatch::new();
    /// batch.append(&orders, 1, "two apples").append(&orders, 2, &[7; 100]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn append(&mut self, log: &Log, lsn: Lsn, bytes: &'a (impl AsRef<[u8]> + ?Sized)) -> &mut Self {
        self.of(log).append(log.inner(), lsn, bytes.as_ref());
        self
    }

    /// Removes all records below an LSN for good.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// # let orders = store.log("orders")?;
    /// let mut batch = lavastore::LogBatch::new();
    /// batch.append(&orders, 11, "two apples").trim(&orders, 11);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn trim(&mut self, log: &Log, below: Lsn) -> &mut Self {
        self.of(log).trim(log.inner(), below);
        self
    }

    /// Removes all records above an LSN, except records that the batch appends later.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// # let orders = store.log("orders")?;
    /// let mut batch = lavastore::LogBatch::new();
    /// batch.truncate_after(&orders, 10).append(&orders, 11, "two pears");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn truncate_after(&mut self, log: &Log, lsn: Lsn) -> &mut Self {
        self.of(log).truncate_after(log.inner(), lsn);
        self
    }

    /// Replaces the metadata of a log.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// # let orders = store.log("orders")?;
    /// let mut batch = lavastore::LogBatch::new();
    /// batch.set_metadata(&orders, "a few bytes");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn set_metadata(&mut self, log: &Log, bytes: &'a (impl AsRef<[u8]> + ?Sized)) -> &mut Self {
        self.of(log).set_metadata(log.inner(), bytes.as_ref());
        self
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// assert_eq!(lavastore::LogBatch::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns true if there are no operations.
    ///
    /// ```
    /// assert!(lavastore::LogBatch::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    pub(crate) fn inner(&self) -> &lavalog::LogBatch<'a> {
        &self.inner
    }

    pub(crate) fn check_store(&self, store: StoreId) -> Result<()> {
        match self.store {
            None => Ok(()),
            Some(Ok(of)) if of == store => Ok(()),
            Some(_) => {
                Err(Error::invalid("the batch has a log of another store: make a batch for each store"))
            }
        }
    }
}
