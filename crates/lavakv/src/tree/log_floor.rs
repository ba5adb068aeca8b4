//! The log floor: the sequence below which the log is no longer needed.
//!
//! No record below the *floor* is only in the log and in memtables, so a log group with no record
//! at or above it may be released. A background thread computes the floor while other threads write
//! and flush, without taking their locks. It may be too low, but never too high.
//!
//! **The visible frontier is read first**, and bounds the floor. A write becomes visible after it
//! is in its memtable. So a write that is visible at that moment is later found in a memtable, or
//! was flushed. A family created meanwhile begins above the frontier, as do later writes. In the
//! other order, a write that begins and ends between the two reads would be below the floor and in
//! no memtable that was read.
//!
//! Floors are sequences, not log groups, because one lock gives sequences, log batches and
//! memtables the same order. So a memtable holds exactly the changes of its family from its first
//! sequence to its last. `last + 1` is then an exact floor after its flush: replay applies no
//! change twice, and a rotation need not end a log group.
//!
//! A flush removes memtables only after its edit is durable, in one step with the new tables (see
//! `Family::install`). So a memtable that is missing from a read state is in durable tables.

use crate::tree::snapshot::Snapshots;
use base::SeqNo;

/// Returns the lowest sequence that may be only in the log and in memtables. `oldest_unflushed`
/// returns the lowest sequence in the memtables of all families, read during the call.
pub(crate) fn log_floor(snapshots: &Snapshots, oldest_unflushed: impl FnOnce() -> Option<SeqNo>) -> SeqNo {
    let next = snapshots.visible() + 1;
    oldest_unflushed().map_or(next, |seq| seq.min(next))
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
