//! Options of checkpoints and verifications.

use crate::Cancel;

/// Makes a long checkpoint cancellable, or gives it a deadline: options of
/// [`Db::checkpoint_with`](crate::Db::checkpoint_with) and
/// [`LogStore::checkpoint_with`](crate::LogStore::checkpoint_with).
///
/// ```
/// # let db = lavastore::testing::store();
/// use lavastore::{Cancel, CheckpointOptions, ErrorKind};
/// let options = CheckpointOptions { cancel: Some(Cancel::new()) };
/// options.cancel.iter().for_each(Cancel::cancel);
/// let none = db.checkpoint_with("/monday", &options);
/// assert_eq!(none.unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Cancels the checkpoint, which then fails with `Cancelled`; no part of the copy is left. One
    /// token may serve several calls; it is checked before each file and during copies. Default:
    /// none.
    pub cancel: Option<Cancel>,
}

/// Makes a long verification cancellable, or gives it a deadline: options of
/// [`Db::verify_with`](crate::Db::verify_with) and
/// [`LogStore::verify_with`](crate::LogStore::verify_with).
///
/// ```
/// # let db = lavastore::testing::store();
/// use lavastore::{Cancel, Env, ErrorKind, VerifyOptions};
/// let at_once = Cancel::with_deadline(&Env::kernel(), std::time::Duration::ZERO);
/// let none = db.verify_with(&VerifyOptions { cancel: Some(at_once) });
/// assert_eq!(none.unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Cancels the verification, which then fails with `Cancelled` and returns no report. The store
    /// is unchanged. Cancel by [`Cancel::cancel`], or by a deadline. Default: none.
    pub cancel: Option<Cancel>,
}
