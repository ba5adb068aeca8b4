//! The logs that have recent records in a group, by group.
//!
//! A log is entered with its first record in a group, and all logs of the group leave when the index file of the group is there. If
//! that file is lost, they are entered again.

use crate::entry::LogId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct GroupLogs {
    /// In no order; some may have lost their records in the group since, or be gone.
    logs: BTreeMap<u64, Vec<LogId>>,
    taken_in: u64,
}

impl GroupLogs {
    /// Logs that have recent records in a group, `limit` at most from the `from`th on, in no order: what its index file is written
    /// from, by [`crate::index::LogIndex::recent_in`]. Some may have none left, or be gone. In a group that is closed they stay in
    /// their places.
    pub fn logs_in(&self, ltn: u64, from: usize, limit: usize) -> &[LogId] {
        let logs = self.logs.get(&ltn).and_then(|logs| logs.get(from..)).unwrap_or_default();
        logs.get(..limit).unwrap_or(logs)
    }

    /// How often the rows of a group were taken into memory ([`super::Logs::took_in`]). A reader compares the number before its
    /// look-up with that after its read of a block: if they differ, the block may be of another file in the place of the lost one.
    pub fn taken_in(&self) -> u64 {
        self.taken_in
    }

    /// A log has its first recent record in a group.
    pub(super) fn add(&mut self, ltn: u64, id: LogId) {
        self.logs.entry(ltn).or_default().push(id);
    }

    /// No log has recent records in a group any more.
    pub(super) fn remove(&mut self, ltn: u64) {
        self.logs.remove(&ltn);
    }

    /// The rows of a group were taken into memory.
    pub(super) fn took_in(&mut self) {
        self.taken_in += 1;
    }

    /// Bytes of the lists in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.logs.values().map(|logs| logs.capacity() * size_of::<LogId>()).sum()
    }
}
