//! Up to where the log is not needed any more.
//!
//! The *floor* is a sequence: no record below it is in the log and in memtables alone, so a group of the log with nothing
//! at or above it may go. It is asked for by a background thread while others write and flush, under no lock that they
//! take, and it may be too low, but never too high.
//!
//! **The visible frontier is read first**, and nothing above it is ever promised. A write becomes visible after it is in
//! its memtable. So what is visible when the frontier is read is seen in a memtable afterwards, or was flushed, or is
//! being created in a family that begins after it; what becomes visible later is above the frontier. In the other order a
//! write that begins and ends between the two would be below the floor and in no memtable that was looked at.
//!
//! A flush removes memtables only once its edit is durable, and does so in one step with its tables (see
//! `Family::install`), so a memtable that is gone from a read state is in tables that survive.

use crate::tree::snapshot::Snapshots;
use base::SeqNo;

/// The lowest sequence that perhaps only the log and memtables hold. `oldest_unflushed`: the lowest in a memtable of any
/// family, found by looking at all of them when it is called.
pub(crate) fn log_floor(snapshots: &Snapshots, oldest_unflushed: impl FnOnce() -> Option<SeqNo>) -> SeqNo {
    let next = snapshots.visible() + 1;
    oldest_unflushed().map_or(next, |seq| seq.min(next))
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
