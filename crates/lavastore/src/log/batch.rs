//! Writes to logs with options, and batches.

use super::{Log, Lsn};
use crate::handle::StoreId;
use crate::{Durability, Error, Result, WriteOptions};

/// Writes to one log with another durability than the default: buffered appends before one
/// [`LogStore::sync`](crate::LogStore::sync), or a durable trim. [`Log::writing`] returns it.
///
/// [`Log`] has the same methods for the default durability, and costs no more. Only
/// [`WriteOptions::durability`](field@crate::WriteOptions::durability) applies, as `Durable` or
/// `Buffered`. `Volatile` and a bound on the wait are refused with `InvalidArgument`, by each write
/// and not by [`Log::writing`].
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

    /// Appends a record of at most 16 MiB at an LSN, where [`Log::append`] has the wrong
    /// durability.
    ///
    /// Options without a durability mean that of the store. Readers see the record on return, and
    /// it has its durability: a durable append blocks for the device, a buffered one does not. At
    /// the space limit either may wait up to ten seconds for garbage collection. An identical
    /// record at the same LSN succeeds, so a retry is safe. Of two threads with different bytes for
    /// one LSN, the second one fails.
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `TooLarge`: the record is above 16 MiB. Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the record may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the write exists; after another error
    /// nothing is written.
    pub fn append(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.log.inner().append(lsn, bytes.as_ref(), self.durability()?)
    }

    /// Removes all records below an LSN for good, where [`Log::trim`] has the wrong durability: a
    /// durable trim holds after a loss of power.
    ///
    /// Later appends below the LSN are refused, and reads there fail with `Trimmed`. A trim at or
    /// below the present trim point changes nothing. Background collection frees the space later.
    /// Options without a durability mean [`Durability::Buffered`], whatever the default of the
    /// store.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).trim(100)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the trim may hold. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        let mut batch = lavalog::LogBatch::new();
        batch.trim(self.log.inner(), below);
        let asked = durability_of(&self.options)?;
        self.log.store().engine().write(&batch, asked.unwrap_or(Durability::Buffered))
    }

    /// Removes all records above an LSN with a durability other than that of
    /// [`Log::truncate_after`], for example buffered before a durable append.
    ///
    /// On return readers see none of the records, and new records may reuse their LSNs. Without a
    /// record above the LSN nothing changes. Options without a durability mean that of the store.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).truncate_after(100)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed; records may be gone. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.log.inner().truncate_after(lsn, self.durability()?)
    }

    /// Replaces the metadata of a log, at most 4096 bytes, with a durability other than that of
    /// [`Log::set_metadata`], for example buffered before a
    /// [`LogStore::sync`](crate::LogStore::sync).
    ///
    /// On return readers see the new metadata. Options without a durability mean that of the store.
    /// The former value stays after a refusal.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.writing(&WriteOptions::durable()).set_metadata("a few bytes")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `TooLarge`: the metadata exceed 4096 bytes. Shorten them.
    /// * `InvalidArgument`: the options ask for [`Durability::Volatile`] or a bound on the wait.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed; metadata may be new. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
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

/// Collects operations over any logs that must appear together, such as records and metadata of a
/// Raft group; [`LogStore::write`](crate::LogStore::write) writes them atomically.
///
/// For a single operation use [`Log`]. The batch borrows the bytes of its records and metadata. It
/// holds at most 1,048,576 operations and 16 MiB + 128 KiB. Building it never blocks, fails or
/// checks: the write reports all errors, and then writes none of the operations. A batch may be
/// written again.
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
    /// Returns an empty batch, which belongs to no store until its first operation names a log. For
    /// a single operation use [`Log`]. Writing an empty batch has no effect on any log.
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

    /// Adds a record of at most 16 MiB at an LSN. [`LogStore::write`](crate::LogStore::write) makes
    /// it visible, with the rest of the batch. The batch borrows the bytes, which may be empty;
    /// they count for the 16 MiB + 128 KiB of the batch.
    ///
    /// An LSN that the batch has appended or trimmed before fails the write with `InvalidArgument`.
    /// The write fails with `Trimmed`, `AlreadyExists`, `TooLarge` or `NotFound` (a deleted log) as
    /// [`Log::append`] does. It then writes nothing of the batch.
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

    /// Adds a trim, to give up old records in the same step as new ones are written: it removes all
    /// records below an LSN for good.
    ///
    /// Later appends of the batch must be at or above the LSN: the write fails with
    /// `InvalidArgument` otherwise. A trim at or below the present trim point changes nothing. The
    /// trim has the durability of the batch, unlike [`Log::trim`], which is buffered.
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

    /// Adds a truncation, to replace the end of a log without a moment in which it is missing: it
    /// removes all records above an LSN, except records that the batch appends later. The batch may
    /// append an LSN again after a truncation below it. Without a record above the LSN nothing
    /// changes. [`LogBatch::trim`] removes the beginning of a log.
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

    /// Adds a change of metadata that must match the records of the batch, such as a term with its
    /// first entry.
    ///
    /// It replaces all metadata of the log. At most 4096 bytes, which the batch borrows; more fails
    /// the write with `TooLarge`. Of two changes for one log the later one wins.
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

    /// Returns the number of operations, to write the batch before it is too long: at most
    /// 1,048,576. Each append, trim, truncation and change of metadata counts as one, whatever its
    /// bytes. The batch is also limited to 16 MiB + 128 KiB encoded, which this number does not
    /// show: its write then fails with `TooLarge`.
    ///
    /// ```
    /// assert_eq!(lavastore::LogBatch::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns true if there are no operations, so that a loop can omit the last write. A written
    /// batch is not emptied: make a new one.
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
