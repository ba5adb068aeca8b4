//! For each log group, the logs with recent records in it.
//!
//! A log is added with its first record in a group. Installing the index file of the group removes
//! all its logs. If that file is lost later, they are added again.

use crate::entry::LogId;
use std::collections::BTreeMap;

/// For each log group, the logs with recent records in it.
#[derive(Clone, Debug, Default)]
pub struct GroupLogs {
    /// Unordered. Some logs may have lost their records in the group since, or may be deleted.
    logs: BTreeMap<u64, Vec<LogId>>,
    taken_in: u64,
}

impl GroupLogs {
    /// Returns at most `limit` logs with recent records in a group, from index `from` on,
    /// unordered. The seal job writes the index file from these logs, by
    /// [`crate::index::LogIndex::recent_in`]. Some may have no records left or may be deleted. The
    /// list of a closed group does not change.
    pub fn logs_in(&self, ltn: u64, from: usize, limit: usize) -> &[LogId] {
        let logs = self.logs.get(&ltn).and_then(|logs| logs.get(from..)).unwrap_or_default();
        logs.get(..limit).unwrap_or(logs)
    }

    /// Returns the number of times that rows of a group were restored to memory
    /// ([`super::Logs::took_in`]). A reader compares the values before its look-up and after its
    /// read of a block. If they differ, the block may come from another file than the lost one.
    pub fn taken_in(&self) -> u64 {
        self.taken_in
    }

    /// Adds a log with its first recent record in a group.
    pub(super) fn add(&mut self, ltn: u64, id: LogId) {
        self.logs.entry(ltn).or_default().push(id);
    }

    /// Removes a group: no log has recent records in it any more.
    pub(super) fn remove(&mut self, ltn: u64) {
        self.logs.remove(&ltn);
    }

    /// Counts a restoration of a group's rows to memory.
    pub(super) fn took_in(&mut self) {
        self.taken_in += 1;
    }

    /// Returns the memory of the lists, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.logs.values().map(|logs| logs.capacity() * size_of::<LogId>()).sum()
    }
}
