//! Going through the records of a log, and waiting for those to come.

use super::{LogStore, Lsn};
use crate::Result;
use lavakv::process::Owned;
use std::time::Duration;

/// The records of a log in the order of their LSNs; made by [`Log::scan`](crate::Log::scan). It keeps the store open.
///
/// It sees every record that was there when it began and was not truncated before it came there, and of later ones those above
/// where it stands. Records that are trimmed before it comes there it may see, or not. It holds no lock, and nothing is kept for its sake. After `None` it may be asked again: there may be more by
/// then.
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
    // Dropped last: it may be what keeps the store open.
    _store: LogStore,
}

impl LogScan {
    pub(super) fn new(inner: lavalog::Scan, store: LogStore) -> LogScan {
        LogScan { inner: Owned::new(inner), _store: store }
    }

    /// The next record; if there is none yet it is waited for, so long at most. Behind the end of the range: `None`, at once.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// let mut tail = store.log("orders")?.scan(..);
    /// assert_eq!(tail.wait_next(std::time::Duration::from_millis(10))?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `Corruption` with file and offset if the next record is damaged ([`LogScan::skip_to`] goes
    /// behind it); what stopped the store; `Io`.
    #[doc(alias = "tail")]
    pub fn wait_next(&mut self, timeout: Duration) -> Result<Option<(Lsn, Vec<u8>)>> {
        self.inner.wait_next(timeout)
    }

    /// Goes on at an LSN, if it has not come there yet.
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
