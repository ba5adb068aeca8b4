//! Options of checkpoints and verifications.

use crate::Cancel;

/// Options of [`Db::checkpoint_with`](crate::Db::checkpoint_with): a token that cancels the copy.
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
    /// Cancels the checkpoint; no part of the copy is left. Default: none.
    pub cancel: Option<Cancel>,
}

/// Options of [`Db::verify_with`](crate::Db::verify_with): a token that cancels the check.
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
    /// Cancels the verification, without a report. Default: none.
    pub cancel: Option<Cancel>,
}
