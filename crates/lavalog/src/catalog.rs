//! All logs, shared: the state that operations and files lead to ([`crate::logs`]), its lock, and the changes that go through many logs.
//!
//! No file is touched under the lock. A change that goes through many logs lets others in between ([`LOGS_AT_ONCE`]); each log changes as a
//! whole, and the files that it leads to stay readable until the last log has changed. So a reader finds every record all the time.

use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::Part;
use crate::ledger::Usage;
use crate::logs::{GroupPlace, Log, Logs, Moved};
use crate::ops::Op;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{RwLock, RwLockReadGuard, rank, read, write};
use base::{HashMap, Result, SeqNo};
use std::sync::Arc;

/// Logs that change under one write lock.
const LOGS_AT_ONCE: usize = 256;
/// Logs that are looked at under one read lock.
const IDS_AT_ONCE: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Guards the state of all logs.
    logs: RwLock<Logs, rank::Records>,
    /// Truncations and deletions that were applied.
    removals: AtomicU64,
}

impl Catalog {
    /// Of the logs that an open found.
    pub fn new(logs: Logs) -> Catalog {
        Catalog { logs: RwLock::new(logs), removals: AtomicU64::new(0) }
    }

    /// The logs as they are now; no change comes in between until the guard is dropped.
    pub fn view(&self) -> RwLockReadGuard<'_, Logs> {
        read(&self.logs)
    }

    /// How many truncations and deletions were applied. A reader that has read ahead before one of them looks whether it was of its log. A
    /// removal counts itself under the write lock, so a look-up under the read lock sees exactly those that are counted.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Applies the operations of a batch, which is seen as a whole.
    ///
    /// # Errors
    /// `Corruption`: an operation on a log that was never created.
    pub fn apply<'a>(&self, ops: impl Iterator<Item = (SeqNo, Op<'a>, GroupPlace)>) -> Result<()> {
        let mut logs = write(&self.logs);
        for (seq, op, place) in ops {
            logs.apply(seq, &op, place)?;
            if matches!(op, Op::TruncateAfter { .. } | Op::Delete { .. }) {
                self.removals.fetch_add(1, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Takes what these operations removed out of the index, a bounded part at a time. The caller is the writer that removed it.
    pub fn cut_trimmed(&self, ops: &[Op<'_>]) {
        let takes =
            |op: &Op<'_>| matches!(op, Op::Trim { .. } | Op::TruncateAfter { .. } | Op::Delete { .. });
        if ops.iter().any(takes) && self.view().has_to_cut() {
            while write(&self.logs).cut_some() {}
        }
    }

    /// The logs that have recent records in a group that is closed, their numbers ascending.
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

    /// Looks at all logs, a bounded number of them at a time; of those that come or go meanwhile, at any.
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

    /// The index file of a group takes the place of the recent records in the group. `logs`: those that have some; `parts`: what the file has
    /// of each.
    pub fn install(&self, ltn: u64, logs: &[LogId], parts: Vec<(LogId, Part)>) {
        let mut parts: HashMap<LogId, Part> = parts.into_iter().collect();
        for some in logs.chunks(LOGS_AT_ONCE) {
            let some: Vec<_> = some.iter().map(|log| (*log, parts.remove(log))).collect();
            write(&self.logs).install(ltn, some);
        }
        write(&self.logs).installed(ltn);
    }

    /// Some files take the place of others.
    pub fn relocate(&self, inputs: &[Source], moved: Vec<Moved>) {
        let mut moved = moved.into_iter();
        while !moved.as_slice().is_empty() {
            write(&self.logs).relocate(moved.by_ref().take(LOGS_AT_ONCE));
        }
        write(&self.logs).forget(inputs);
    }

    /// The index file of a group is lost: its rows, by log and LSN, are in memory again. False if some of them are missing.
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
        // From here on nobody finds a block of the lost file, and who has found one asks again: another file may take its place.
        write(&self.logs).took_in();
        true
    }

    /// Lets logs forget the truncations before a sequence, after all of them know what the files have of them.
    pub fn forget_truncations(&self, needed_from: SeqNo) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = write(&self.logs).forget_truncations(needed_from, from, LOGS_AT_ONCE);
        }
    }

    /// Files of which something has died since this was last asked, `limit` at most.
    pub fn take_changed(&self, limit: usize) -> Vec<(Source, Usage)> {
        write(&self.logs).take_changed(limit)
    }

    /// For repair: the numbers of logs below were given.
    pub fn reach_id(&self, next_id: LogId) {
        write(&self.logs).reach_id(next_id);
    }

    /// For repair: the last LSN of a log is at least this.
    pub fn reach_last(&self, id: LogId, last: Lsn) {
        write(&self.logs).reach_last(id, last);
    }

    /// For tests that stand in the place of a file or of a writer that is still at it.
    #[cfg(test)]
    pub fn edit(&self) -> base::sync::RwLockWriteGuard<'_, Logs> {
        write(&self.logs)
    }
}
