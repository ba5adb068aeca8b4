//! The shared state of all logs ([`crate::logs`]), its lock, and the changes that span many logs.
//!
//! No I/O happens under the lock. A change that spans many logs releases the lock between batches
//! of [`LOGS_AT_ONCE`] logs. Each log changes atomically, and the files that it refers to stay
//! readable until the last log has changed. So readers find every record at any time.

use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::RecordsInFile;
use crate::ledger::Usage;
use crate::logs::{GroupPosition, Log, Logs, Moved};
use crate::ops::Op;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{RwLock, RwLockReadGuard, rank, read, write};
use base::{HashMap, Result, SeqNo};
use std::sync::Arc;

/// Number of logs that change under one write lock.
const LOGS_AT_ONCE: usize = 256;
/// Number of logs visited under one read lock.
const IDS_AT_ONCE: usize = 1024;

#[derive(Debug)]
pub(crate) struct Catalog {
    /// Guards the state of all logs.
    logs: RwLock<Logs, rank::Records>,
    /// Number of truncations and deletions applied.
    removals: AtomicU64,
}

impl Catalog {
    /// Shares the logs that an open restored.
    pub fn new(logs: Logs) -> Catalog {
        Catalog { logs: RwLock::new(logs), removals: AtomicU64::new(0) }
    }

    /// Locks the logs for reading; they do not change until the guard is dropped.
    pub fn view(&self) -> RwLockReadGuard<'_, Logs> {
        read(&self.logs)
    }

    /// Returns the number of truncations and deletions applied. A scan that read ahead compares it
    /// to detect a removal in its log. A removal increments the counter under the write lock, so a
    /// look-up under the read lock sees exactly the counted removals.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Applies the operations of a batch. Readers see all of them or none.
    ///
    /// # Errors
    /// `Corruption` for an operation on a log that was never created.
    pub fn apply<'a>(&self, ops: impl Iterator<Item = (SeqNo, Op<'a>, GroupPosition)>) -> Result<()> {
        let mut logs = write(&self.logs);
        for (seq, op, place) in ops {
            logs.apply(seq, &op, place)?;
            if matches!(op, Op::TruncateAfter { .. } | Op::Delete { .. }) {
                self.removals.fetch_add(1, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Removes dead records of these operations from the index, in bounded steps. The writer of the
    /// operations calls it.
    pub fn cut_trimmed(&self, ops: &[Op<'_>]) {
        let takes =
            |op: &Op<'_>| matches!(op, Op::Trim { .. } | Op::TruncateAfter { .. } | Op::Delete { .. });
        if ops.iter().any(takes) && self.view().has_to_cut() {
            while write(&self.logs).cut_some() {}
        }
    }

    /// Returns the logs with recent records in a closed group, in ascending order of their numbers.
    pub fn logs_in(&self, ltn: u64) -> Vec<LogId> {
        let mut out: Vec<LogId> = Vec::new();
        loop {
            let begun = out.len();
            out.extend_from_slice(self.view().groups().logs_in(ltn, begun, IDS_AT_ONCE));
            if out.len() == begun {
                break;
            }
        }
        out.sort_unstable();
        out
    }

    /// Calls `look` for every log, releasing the lock after every [`IDS_AT_ONCE`] logs. Logs
    /// created or deleted meanwhile may be missed.
    pub fn each_log(&self, mut look: impl FnMut(&Log)) {
        let mut last: Option<Arc<str>> = None;
        loop {
            let (logs, mut next) = (self.view(), None);
            for log in logs.registry().list_after(last.as_deref()).take(IDS_AT_ONCE) {
                look(log);
                next = Some(log.name());
            }
            match next.cloned() {
                Some(next) => last = Some(next),
                None => return,
            }
        }
    }

    /// Replaces the recent records of a group by its index file. `logs` are the logs with recent
    /// records in the group; `parts` are the index file's parts for each log.
    pub fn install(&self, ltn: u64, logs: &[LogId], parts: Vec<(LogId, RecordsInFile)>) {
        let mut parts: HashMap<LogId, RecordsInFile> = parts.into_iter().collect();
        for some in logs.chunks(LOGS_AT_ONCE) {
            let some: Vec<_> = some.iter().map(|log| (*log, parts.remove(log))).collect();
            write(&self.logs).install(ltn, some);
        }
        write(&self.logs).installed(ltn);
    }

    /// Replaces collected files by the files with their live records.
    pub fn relocate(&self, inputs: &[Source], moved: Vec<Moved>) {
        let mut moved = moved.into_iter();
        while !moved.as_slice().is_empty() {
            write(&self.logs).relocate(moved.by_ref().take(LOGS_AT_ONCE));
        }
        write(&self.logs).forget(inputs);
    }

    /// Restores the rows of a lost index file to memory. `rows` is ordered by log and LSN. Returns
    /// false if rows are missing.
    pub fn take_in(&self, ltn: u64, rows: &[Entry]) -> bool {
        let mut logs = rows.chunk_by(|a, b| a.log == b.log);
        loop {
            let some: Vec<&[Entry]> = logs.by_ref().take(LOGS_AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let some = some.into_iter().filter_map(|rows| Some((rows.first()?.log, rows)));
            if !write(&self.logs).take_in(ltn, some) {
                return false;
            }
        }
        // From here on no look-up returns a block of the lost file, and readers that hold one look
        // up again. The file's successor may therefore replace it.
        write(&self.logs).took_in();
        true
    }

    /// Drops the truncations before a sequence number that every file of the index already
    /// reflects.
    pub fn forget_truncations(&self, needed_from: SeqNo) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = write(&self.logs).forget_truncations(needed_from, from, LOGS_AT_ONCE);
        }
    }

    /// Returns at most `limit` files with new garbage since the last call.
    pub fn take_changed(&self, limit: usize) -> Vec<(Source, Usage)> {
        write(&self.logs).take_changed(limit)
    }

    /// Raises the next log number to at least `next_id`, for repair.
    pub fn reach_id(&self, next_id: LogId) {
        write(&self.logs).reach_id(next_id);
    }

    /// Raises the last LSN of a log to at least `last`, for repair.
    pub fn reach_last(&self, id: LogId, last: Lsn) {
        write(&self.logs).reach_last(id, last);
    }

    /// Locks the logs for writing, for tests that play the role of a file or of a concurrent
    /// writer.
    #[cfg(test)]
    pub fn edit(&self) -> base::sync::RwLockWriteGuard<'_, Logs> {
        write(&self.logs)
    }
}
