//! The errors of writes of unknown fate.

use base::{Error, ErrorKind};

/// Turns the error of a write that a restart may find in the log into a kind that does not promise
/// the opposite.
///
/// `Poisoned` and `NoSpace` promise that the batch is not in the store. But the log returns
/// `Poisoned` to all writes that wait for a failed sync. A file system may do so after a failure
/// elsewhere, and a device may be full late.
pub(crate) fn of_unknown_fate(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Poisoned | ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
        _ => error,
    }
}
