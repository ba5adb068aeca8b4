//! The conditions of a write that belongs to a transaction.

use super::row_locks::LockOwner;
use super::validation::ReadSet;

/// The conditions under which a write takes effect; see [`crate::Db::write_if`].
#[derive(Debug, Default)]
pub struct Conditions {
    /// Keys and ranges that must be unchanged since their read.
    pub reads: Option<ReadSet>,
    /// The owner of the row locks under which the write happens. They must not have expired; once
    /// the write has its sequence, they are released.
    pub owner: Option<LockOwner>,
}
