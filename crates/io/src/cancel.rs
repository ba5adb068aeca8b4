//! Cancellation of long calls: on request, or at a deadline.

use crate::{Clock, Env};
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Ends long calls, such as a checkpoint or a compaction, on request or at a deadline; clones are
/// the same token.
///
/// Put it into the options of the call. The call checks it between steps of some milliseconds. Once
/// the token is cancelled, or its deadline has passed, the call removes its unfinished files and
/// fails with [`ErrorKind::Cancelled`]. One token may serve many calls, and a cancelled one stays
/// cancelled: make a new one to repeat a call. A signal handler may call [`Cancel::cancel`].
///
/// ```
/// use lavastore_io::Cancel;
/// let cancel = Cancel::new();
/// assert!(cancel.check().is_ok());
/// cancel.clone().cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct Cancel(Arc<Token>);

#[derive(Default)]
struct Token {
    cancelled: AtomicBool,
    /// A clock, and nanoseconds on it.
    deadline: Option<(Arc<dyn Clock>, u64)>,
}

impl Cancel {
    /// Returns a token without a deadline, for a call that another thread or a signal handler may
    /// end; [`Cancel::with_deadline`] ends it by time too.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Returns a token for a call that may take at most this time, counted from now on the clock of
    /// an environment; [`Cancel::cancel`] ends it sooner. The time counts for all calls with the
    /// token together; make a token for each call otherwise.
    ///
    /// ```
    /// use lavastore_io::{Cancel, Env};
    /// let cancel = Cancel::with_deadline(&Env::kernel(), std::time::Duration::ZERO);
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn with_deadline(env: &Env, after: Duration) -> Cancel {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let at_ns = env.clock.now_ns().saturating_add(after_ns);
        Cancel(Arc::new(Token {
            cancelled: AtomicBool::new(false),
            deadline: Some((env.clock.clone(), at_ns)),
        }))
    }

    /// Ends all calls that have the token, and those that will get it; returns at once, from any
    /// thread, before the calls have ended. It cannot be undone: make a new token for a later call.
    ///
    /// ```
    /// let cancel = lavastore_io::Cancel::new();
    /// cancel.cancel();
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Returns true once the token is cancelled or its deadline has passed, for loops of the
    /// program that share it; [`Cancel::check`] suits loops with `?`. It reads memory and, with a
    /// deadline, the clock.
    ///
    /// ```
    /// assert!(!lavastore_io::Cancel::new().is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
            || self.0.deadline.as_ref().is_some_and(|(clock, at_ns)| clock.now_ns() >= *at_ns)
    }

    /// Fails once the token is cancelled or its deadline has passed, for loops of the program that
    /// use `?`; [`Cancel::is_cancelled`] returns a `bool`.
    ///
    /// ```
    /// assert!(lavastore_io::Cancel::new().check().is_ok());
    /// ```
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }
}

/// Returns the error of a call whose token is cancelled.
#[cold]
fn cancelled() -> Error {
    let why = "the call was cancelled, or its deadline has passed: its unfinished files are \
               removed; repeat the call";
    Error::new(ErrorKind::Cancelled, why)
}

/// Two tokens are equal if they are clones of one.
impl PartialEq for Cancel {
    fn eq(&self, other: &Cancel) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cancel {}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cancel(cancelled: {})", self.is_cancelled())
    }
}

/// Fails once the optional token of a call is cancelled.
///
/// # Errors
/// `Cancelled`.
pub fn check(cancel: Option<&Cancel>) -> Result<()> {
    cancel.map_or(Ok(()), Cancel::check)
}
