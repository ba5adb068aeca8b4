//! The life of files: made, listed, open, damaged, obsolete, removed.
//!
//! * `tables`: those that are open.
//! * `log_groups`: those of the log, made ahead and used again.
//! * `damaged`: those that cannot be read. `obsolete`: those that nobody names any more. `unfinished`: a directory that is no
//!   store yet.

pub(crate) mod damaged;
pub(crate) mod log_groups;
pub(crate) mod obsolete;
pub(crate) mod tables;
pub(crate) mod unfinished;
