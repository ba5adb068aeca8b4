//! The completion of a durable write.

use crate::Result;
use lavakv::process::Owned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Tells when an asynchronous append is durable, so that a caller can acknowledge it to a client.
/// It is a future for any runtime; threads call [`Completion::wait`].
///
/// [`Log::append_async`](crate::Log::append_async) and
/// [`LogStore::write_async`](crate::LogStore::write_async) return it. Until it resolves, readers
/// see the write, but a loss of power may take it. A background thread makes the write durable and
/// wakes the task. Dropping the completion does not cancel the write. The completion does not keep
/// the store open: a closing store makes pending writes durable and resolves their completions.
///
/// ```
/// use lavastore::{Log, Result};
/// async fn accept(orders: &Log, lsn: u64, order: &[u8]) -> Result<()> {
///     orders.append_async(lsn, order)?.await
/// }
/// # let store = lavastore::testing::log_store();
/// # let orders = store.log("orders")?;
/// # let mut accepted = std::pin::pin!(accept(&orders, 1, b"two apples"));
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(accepted.as_mut().poll(&mut context).is_pending());
/// # store.sync()?;
/// # assert!(accepted.as_mut().poll(&mut context).is_ready());
/// # use std::future::Future;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "before it has resolved, what was written may be lost"]
pub struct Completion(Owned<lavalog::Completion>);

impl Completion {
    pub(super) fn new(inner: lavalog::Completion) -> Completion {
        Completion(Owned::new(inner))
    }

    /// Blocks the thread until the write is durable, where the caller is no asynchronous task; a
    /// task awaits the completion instead. The wait has no limit of time. Wait for the last of many
    /// appends: it covers the earlier ones, and concurrent waiters share one device write.
    ///
    /// ```
    /// # let store = lavastore::testing::log_store();
    /// store.log("orders")?.append_async(1, "two apples")?.wait()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io`, `Poisoned`: the device failed at this write or an earlier one. The next open decides
    ///   whether the write exists: close and reopen the store.
    /// * `Closed`: the store was closed and the outcome is unknown. Open it and read the record.
    /// * `Forked`: a parent process made the completion. Wait there.
    pub fn wait(self) -> Result<()> {
        Owned::process(&self.0).check()?;
        Owned::into_inner(self.0).wait()
    }
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut *self.0).poll(context)
    }
}
