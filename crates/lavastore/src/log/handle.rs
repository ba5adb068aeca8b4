//! Log handles.

use super::{Completion, LogScan, LogStore, LogWriter, Lsn};
use crate::{Result, WriteOptions};
use lavakv::process::Owned;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// Writes and reads one log: records by LSN, and a small metadata value. [`LogStore::log`] returns
/// the handle.
///
/// The handle is cheap to clone and usable from any thread. Like a clone of the [`LogStore`] it
/// keeps the store open. Once the log is deleted, every use of the handle fails with `NotFound`,
/// even after a log of the same name is created. Writers and readers need no lock: a record is
/// visible to every read that begins after its append returned. [`LogBatch`](crate::LogBatch)
/// writes several operations atomically.
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
    // Dropped last: this may be the handle that keeps the store open.
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

    /// Returns the write methods of the log with another durability, for example `Buffered` appends
    /// in a store that is `Durable` by default. Each append, trim or change of metadata made
    /// through the result has it. The call writes and checks nothing; the writes refuse `Volatile`
    /// and a bound on the wait with `InvalidArgument`.
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

    /// Appends a record of at most 16 MiB at an LSN, and blocks until it has the durability of the
    /// store, by default `Durable`.
    ///
    /// Use [`Log::append_async`] to keep many appends in flight, and [`Log::writing`] for another
    /// durability. Concurrent appends to any logs share one device write. Readers see the record on
    /// return. It may be empty. LSNs may have gaps and come in any order. An identical record at
    /// the same LSN succeeds, so a retry is safe. At the space limit the call may wait up to ten
    /// seconds for garbage collection.
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
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// orders.append(1, "two apples")?; // A retry.
    /// let other = orders.append(1, "one pear").unwrap_err();
    /// assert_eq!(other.kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`, `AlreadyExists`: the LSN is trimmed, or has other bytes. Take another.
    /// * `InvalidArgument`: the LSN is 2^64 - 1.
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `TooLarge`: the record is above 16 MiB. Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the record may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the write exists; after another error
    /// nothing is written.
    pub fn append(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.writer().append(lsn, bytes)
    }

    /// Appends a record without waiting for the device, to keep many appends in flight on one
    /// thread.
    ///
    /// Readers see the record on return, before it is durable. [`Log::append`] blocks until it is
    /// durable. The completion resolves when it is durable, whatever the default of the store.
    /// Completions of consecutive appends resolve in order. At the space limit the call itself may
    /// wait up to ten seconds for garbage collection.
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
    /// * `Trimmed`, `AlreadyExists`: the LSN is trimmed, or has other bytes. Take another.
    /// * `InvalidArgument`: the LSN is 2^64 - 1.
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `TooLarge`: the record is above 16 MiB. Split it.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the record may exist. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the write exists; after another error
    /// nothing is written. The completion reports a later failure of the device.
    pub fn append_async(&self, lsn: Lsn, bytes: impl AsRef<[u8]>) -> Result<Completion> {
        Ok(Completion::new(self.inner.append_async(lsn, bytes.as_ref())?))
    }

    /// Removes all records below an LSN for good, to free their space; later appends below it are
    /// refused, and reads there fail with `Trimmed`.
    ///
    /// Use [`Log::truncate_after`] to remove the end of a log. A trim at or below the present trim
    /// point changes nothing. One above the last record removes all records. A trim is
    /// [`Buffered`](crate::Durability::Buffered): after a loss of power some of the records may be
    /// there again; [`Log::writing`] makes a durable one. Background collection frees the space
    /// later.
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed, and the trim may hold. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
    #[doc(alias = "purge")]
    pub fn trim(&self, below: Lsn) -> Result<()> {
        self.writer().trim(below)
    }

    /// Removes all records above an LSN, for example the conflicting end of a Raft log.
    ///
    /// On return no reader sees the records, and new ones may reuse their LSNs. The call has the
    /// durability of an append, `Durable` by default. Without a record above the LSN nothing
    /// changes. [`Log::trim`] removes the beginning. To replace the end without a moment in which
    /// it is missing, use a [`LogBatch`](crate::LogBatch).
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `NoSpace`: the volume lacks room even for trims. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed; records may be gone. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.writer().truncate_after(lsn)
    }

    /// Replaces the metadata of the log, at most 4096 bytes, such as the term and vote of a Raft
    /// group.
    ///
    /// On return readers see the new value, with the durability of an append, `Durable` by default.
    /// [`Log::metadata`] returns it. A [`LogBatch`](crate::LogBatch) changes records and metadata
    /// atomically.
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `TooLarge`: the metadata exceed 4096 bytes. Shorten them.
    /// * `NoSpace`: the limit or the volume is full. Trim or delete logs, or raise the limit.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: the device failed; metadata may be new. Close and reopen the store.
    ///
    /// After `Io` or `Poisoned` the next open decides whether the change exists; after another
    /// error nothing has changed.
    pub fn set_metadata(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.writer().set_metadata(bytes)
    }

    /// Returns the metadata, for example to restore the term and vote after an open; `None` if they
    /// were never set. [`Log::set_metadata`] sets them, at most 4096 bytes. Reads memory only; a
    /// change that is not durable yet is visible.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.metadata()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn metadata(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.inner.metadata()?.map(|bytes| bytes.to_vec()))
    }

    /// Reads the record at a known LSN; `None` if there is none. For many consecutive records use
    /// [`Log::scan`], which reads ahead.
    ///
    /// The newest records come from memory
    /// ([`LogOptions::recent_bytes`](crate::LogOptions::recent_bytes)); others cost a device read.
    /// A record may be visible before it is durable.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.read(7)?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Trimmed`: the LSN is below the trim point. Begin at [`Log::first_lsn`].
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Corruption`: the record is damaged, or may have been in a damaged part, at the error's
    ///   file and offset. Others stay readable.
    /// * `Busy`: the record moved during each attempt. Repeat, or open a read-only store again.
    /// * `Io`: the device or the system refused the read. Repeat the call.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn read(&self, lsn: Lsn) -> Result<Option<Vec<u8>>> {
        self.inner.read(lsn)
    }

    /// Reads the record at an LSN into `out`, a buffer of the caller: use it instead of
    /// [`Log::read`] to read many records without an allocation for each. The bytes are appended to
    /// `out`; the call returns false without a record, and `out` stays the same. The newest records
    /// come from memory; others cost a device read.
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
    /// * `Trimmed`: the LSN is below the trim point. Begin at [`Log::first_lsn`].
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Corruption`: the record is damaged, or may have been in a damaged part, at the error's
    ///   file and offset. Others stay readable.
    /// * `Busy`: the record moved during each attempt. Repeat, or open a read-only store again.
    /// * `Io`: the device or the system refused the read. Repeat the call.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    ///
    /// After an error `out` is unchanged.
    pub fn read_into(&self, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.inner.read_into(lsn, out)
    }

    /// Iterates over the records of a range of LSNs in order, to replay them, or to follow the end
    /// of a log with [`LogScan::wait_next`]. Gaps are skipped, and an empty range yields nothing.
    /// After the last record `next` returns `None`; called again it sees newer records. For one
    /// record use [`Log::read`].
    ///
    /// The call reads nothing and cannot fail: a deleted log (`NotFound`) or a closed store
    /// (`Closed`) is the error of the first record. Trimmed LSNs are skipped without an error.
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

    /// Returns the lowest LSN with a record, to begin a replay there; `None` if the log is empty.
    /// Of a trimmed log it is the first record that is left, not the trim point. [`Log::last_lsn`]
    /// tells about the end. Reads memory only.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.first_lsn()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn first_lsn(&self) -> Result<Option<Lsn>> {
        self.inner.first_lsn()
    }

    /// Returns the highest LSN ever written and not truncated, even if trimmed, to continue a log
    /// after an open; `None` without one.
    ///
    /// The next record may have the LSN after it. The record may still be on its way to the device.
    /// [`Log::first_lsn`] is the lowest LSN that is readable. Reads memory only.
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn last_lsn(&self) -> Result<Option<Lsn>> {
        self.inner.last_lsn()
    }

    /// Returns at most `limit` runs of LSNs in a range that have no record and are not trimmed, to
    /// find missing records before a retry.
    ///
    /// `limit` counts runs, not LSNs; with as many runs as that, more may follow. The runs are
    /// inclusive, disjoint and ascending. An unbounded range ends at the last record; an empty
    /// range or log has no gaps. Reads memory only.
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
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
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

    /// Returns the name of the log, 1 to 1024 bytes, for messages and for [`LogStore::delete_log`].
    /// [`Log::id`] tells two logs of one name apart. Reads memory only.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// assert_eq!(store.log("orders")?.name()?, "orders");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted, and the handle with it. `LogStore::log` creates it anew.
    /// * `Closed`, `Forked`: the handle is of no use any more. Open the store again.
    pub fn name(&self) -> Result<String> {
        self.inner.name()
    }

    /// Returns the number of the log, to tell a log from a later one with the same name: the store
    /// never reuses it. Numbers of other stores are not comparable. The call reads memory only, and
    /// works for a deleted log and a closed store.
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

/// Converts a range to an inclusive one. In an empty range the last LSN is below the first.
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
