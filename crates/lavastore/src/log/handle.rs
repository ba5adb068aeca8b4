//! One log: a handle with all calls.

use super::{Completion, LogScan, LogStore, LogWriter, Lsn};
use crate::{Result, WriteOptions};
use lavakv::process::Owned;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// A log: records by LSN, and a small value of metadata.
///
/// The handle is what [`LogStore::log`] gives. It is cheap to clone, usable from any thread, and keeps the store open as a clone of
/// the [`LogStore`] does. Once the log is deleted every use of it fails with `NotFound`.
///
/// ```
/// # let store = lavastore::testing::log_store();
/// let orders = store.log("orders")?;
/// orders.append(1, "two apples")?;
/// orders.append(3, "one pear")?;
/// assert_eq!(orders.read(1)?.as_deref(), Some(&b"two apples"[..]));
/// assert_eq!(orders.gaps(.., 10)?, [0..=0, 2..=2]);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
pub struct Log {
    inner: Owned<lavalog::LogHandle>,
    // Dropped last: it may be what keeps the store open.
    store: LogStore,
}

impl Log {
    pub(super) fn new(inner: lavalog::LogHandle, store: LogStore) -> Log {
        Log { inner: Owned::new(inner), store }
    }

    pub(crate) fn inner(&self) -> &lavalog::LogHandle {
        &self.inner
    }

    pub(crate) fn store(&self) -> &LogStore {
        &self.store
    }

    fn writer(&self) -> LogWriter<'_> {
        LogWriter::new(self, WriteOptions::default())
    }

    /// The same writes with other options.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.writing(&lavastore::WriteOptions::buffered()).append(1, "two apples")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn writing(&self, options: &WriteOptions) -> LogWriter<'_> {
        LogWriter::new(self, *options)
    }

    /// Appends a record. LSNs need not follow each other, nor come in order. The same record once more is fine.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// orders.append(1, "two apples")?;
    /// assert_eq!(orders.append(1, "three apples").unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogWriter::append`].
    pub fn append(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.writer().append(lsn, bytes)
    }

    /// Appends a record, and does not wait until it is durable: the completion resolves then. It is seen at once. Of records that are
    /// appended one after another the completions resolve in that order.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// let first = orders.append_async(1, "two apples")?;
    /// let second = orders.append_async(2, "one pear")?;
    /// // In an asynchronous function: second.await?;
    /// second.wait()?;
    /// first.wait()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogWriter::append`] but for a device that failed: of that the completion tells.
    pub fn append_async(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<Completion> {
        Ok(Completion::new(self.inner.append_async(lsn, bytes.as_ref())?))
    }

    /// Removes all records below an LSN for good: one that would come later is refused, too. Is
    /// [`Buffered`](crate::Durability::Buffered): after a loss of power some of them may be there again.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// orders.trim(2)?;
    /// assert_eq!(orders.read(1).unwrap_err().kind(), ErrorKind::Trimmed);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogWriter::trim`].
    #[doc(alias = "purge")]
    pub fn trim(&self, below: Lsn) -> Result<()> {
        self.writer().trim(below)
    }

    /// Removes all records above an LSN; others may take their places.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// orders.append(2, "one pear")?;
    /// orders.truncate_after(1)?;
    /// orders.append(2, "two pears")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogWriter::trim`].
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.writer().truncate_after(lsn)
    }

    /// Replaces the metadata: a few bytes, up to 4 KB, that belong to the log. In a [`LogBatch`](crate::LogBatch) they change together with
    /// records.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let group = store.log("raft group 7")?;
    /// assert_eq!(group.metadata()?, None);
    /// group.set_metadata("voted for 3 in term 12")?;
    /// assert_eq!(group.metadata()?.as_deref(), Some(&b"voted for 3 in term 12"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`LogWriter::trim`]; `TooLarge` beyond the [`limits`](crate::limits).
    pub fn set_metadata(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.writer().set_metadata(bytes)
    }

    /// The metadata; `None` if they were never set.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.metadata()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn metadata(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.inner.metadata()?.map(|bytes| bytes.to_vec()))
    }

    /// Reads a record; `None` if there is none of that LSN.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.read(7)?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Trimmed` below the trim; `NotFound` if the log was deleted; `Corruption` with the file and the offset; `Io`.
    pub fn read(&self, lsn: Lsn) -> Result<Option<Vec<u8>>> {
        self.inner.read(lsn)
    }

    /// As [`Log::read`]: appends the record to `out`, whose memory may be used again and again; false if there is none.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// let mut out = Vec::new();
    /// assert!(orders.read_into(1, &mut out)?);
    /// assert!(!orders.read_into(2, &mut out)?);
    /// assert_eq!(out, b"two apples");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Log::read`]; `out` is then as it was.
    pub fn read_into(&self, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.inner.read_into(lsn, out)
    }

    /// The records of a range of LSNs, in order. [`LogScan::wait_next`] waits for those that are not there yet.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// for lsn in 1..=5 {
    ///     orders.append(lsn, "an order")?;
    /// }
    /// assert_eq!(orders.scan(2..4).count(), 2);
    /// assert_eq!(orders.scan(..).count(), 5);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn scan(&self, lsns: impl RangeBounds<Lsn>) -> LogScan {
        let inner = self.inner.scan_range(closed(&lsns));
        LogScan::new(inner, self.store.clone())
    }

    /// The lowest LSN that it has.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.first_lsn()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn first_lsn(&self) -> Result<Option<Lsn>> {
        self.inner.first_lsn()
    }

    /// The highest LSN that it has, or had when that was trimmed: what comes next may have the one after it.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(7, "two apples")?;
    /// orders.trim(8)?;
    /// assert_eq!((orders.first_lsn()?, orders.last_lsn()?), (None, Some(7)));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn last_lsn(&self) -> Result<Option<Lsn>> {
        self.inner.last_lsn()
    }

    /// The LSNs of a range of which there are no records and that are not trimmed: so many runs of them at most. A range without
    /// an end ends at the last record.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(4, "late")?;
    /// assert_eq!(orders.gaps(1.., 10)?, [1..=3]);
    /// assert_eq!(orders.gaps(1..=6, 10)?, [1..=3, 5..=6]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn gaps(&self, lsns: impl RangeBounds<Lsn>, limit: usize) -> Result<Vec<RangeInclusive<Lsn>>> {
        let (first, last) = closed(&lsns).into_inner();
        let end = match lsns.end_bound() {
            Bound::Unbounded => self.last_lsn()?,
            _ => self.last_lsn().map(|_| Some(last))?,
        };
        let Some(last) = end.map(|end| end.min(last)).filter(|last| first <= *last) else {
            return Ok(Vec::new());
        };
        let gaps = self.inner.gaps(first, last, limit)?;
        Ok(gaps.into_iter().map(|(first, last)| first..=last).collect())
    }

    /// Its name.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.name()?, "orders");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn name(&self) -> Result<String> {
        self.inner.name()
    }

    /// Its number, never given to another log of the store.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let first = store.log("orders")?.id();
    /// store.delete_log("orders")?;
    /// assert_ne!(store.log("orders")?.id(), first);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.inner.id()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({} of {:?})", self.id(), self.store)
    }
}

/// A range with both ends in it; one that is empty has its last below its first.
#[allow(clippy::reversed_empty_ranges, reason = "that is how an empty one is written")]
fn closed(lsns: &impl RangeBounds<Lsn>) -> RangeInclusive<Lsn> {
    let first = match lsns.start_bound() {
        Bound::Included(&first) => Some(first),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let last = match lsns.end_bound() {
        Bound::Included(&last) => Some(last),
        Bound::Excluded(&behind) => behind.checked_sub(1),
        Bound::Unbounded => Some(Lsn::MAX),
    };
    first.zip(last).map_or(1..=0, |(first, last)| first..=last)
}
