//! Scans of a log, which can wait for future records.

use super::{LogStore, Lsn};
use crate::Result;
use lavakv::process::Owned;
use std::time::Duration;

/// Reads the records of a log in LSN order, also future ones: to replay a log, or to follow its
/// end. [`Log::scan`](crate::Log::scan) returns it; for single records use
/// [`Log::read`](crate::Log::read).
///
/// * **Visibility.** The scan sees every record that existed at its start, unless the record is
///   truncated before the scan reaches it. It sees later records above its position. It may or may
///   not see records that are trimmed before it reaches them.
/// * **End.** `None` means no further record now: call it again to see newer records.
/// * **Errors.** An error comes in place of a record, and the position stays: the next call repeats
///   the read. So a loop must end at an error, or skip the damage with [`LogScan::skip_to`].
/// * **Cost.** The scan blocks no writer and holds no space. It reads up to 512 KiB ahead, and
///   blocks on the device for records outside of memory. It keeps the store open.
///
/// ```
/// use std::time::Duration;
/// # let store = lavastore::testing::log_store();
/// let orders = store.log("orders")?;
/// let mut tail = orders.scan(..);
/// assert!(tail.next().is_none(), "nothing yet");
/// orders.append(1, "two apples")?;
/// let (lsn, bytes) = tail.wait_next(Duration::from_secs(1))?.expect("it is there");
/// assert_eq!((lsn, &bytes[..]), (1, &b"two apples"[..]));
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it reads nothing until it is asked"]
pub struct LogScan {
    inner: Owned<lavalog::Scan>,
    // Dropped last: this may be the handle that keeps the store open.
    _store: LogStore,
}

impl LogScan {
    pub(super) fn new(inner: lavalog::Scan, store: LogStore) -> LogScan {
        LogScan { inner: Owned::new(inner), _store: store }
    }

    /// Returns the next record, and waits for it at most `timeout`: to follow a log without
    /// polling. `None` if none came in time. A returned record may not be durable yet.
    ///
    /// `None` comes at once behind the end of the range. Many scans may wait at the same time;
    /// appends of any thread wake them. The iterator's `next` never waits for a record.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let mut tail = store.log("orders")?.scan(..);
    /// assert_eq!(tail.wait_next(std::time::Duration::from_millis(10))?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the log was deleted. End the scan.
    /// * `Corruption`: the next record is damaged; the error names file and offset. Skip it with
    ///   [`LogScan::skip_to`].
    /// * `Io`, `Busy`: the read failed, or the record moved during each attempt. Repeat the call.
    ///   In a read-only store `Busy` means that the writer collected the record: open the store
    ///   again.
    /// * `Closed`, `Forked`, `Poisoned`: open the store again, and scan from the last LSN on.
    ///
    /// After an error the scan stays before the record, and a repeated call reads it again.
    #[doc(alias = "tail")]
    pub fn wait_next(&mut self, timeout: Duration) -> Result<Option<(Lsn, Vec<u8>)>> {
        self.inner.wait_next(timeout)
    }

    /// Skips to an LSN, for example behind a damaged record; does nothing if the scan is already
    /// behind it. To begin a scan elsewhere use [`Log::scan`](crate::Log::scan).
    ///
    /// The call reads nothing, discards the read-ahead and cannot fail. After a `Corruption` at the
    /// next of consecutive records, continue two above the last LSN that the scan returned. A scan
    /// cannot go back: make a new one.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let orders = store.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// orders.append(2, "one pear")?;
    /// let mut scan = orders.scan(..);
    /// scan.skip_to(2);
    /// assert_eq!(scan.count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    #[doc(alias = "seek")]
    pub fn skip_to(&mut self, lsn: Lsn) {
        self.inner.skip_to(lsn);
    }
}

impl Iterator for LogScan {
    type Item = Result<(Lsn, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next()
    }
}
