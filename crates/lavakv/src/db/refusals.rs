//! Refusals that need an explanation.

use base::{Error, ErrorKind};

/// What a close says that closed nothing.
pub(super) fn still_open(others: usize, snapshots: usize, iterators: usize) -> Error {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let why = format!(
        "the store stays open: it has {} beside this one, with {} and {} in all; it closes when the last of them is dropped",
        count(others.max(1), "handle"),
        count(snapshots, "snapshot"),
        count(iterators, "iterator"),
    );
    Error::new(ErrorKind::Busy, why)
}
