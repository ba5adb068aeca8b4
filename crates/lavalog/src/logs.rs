//! The state of all logs, and the effects of operations on it. Replay of the log produces this
//! state.
//!
//! Creations and deletions of logs are applied in sequence order. All other operations of a log may
//! be applied in any order after its creation, and repeatedly: the resulting state is the same
//! (`log`, [`crate::index`]). So replay may start anywhere before the end of a fuzzy checkpoint,
//! and may include a group that has an index file already. Operations on deleted logs are skipped.
//! Log numbers ascend and are never reused, so a number below the next one without a log belongs to
//! a deleted log.
//!
//! The cost of an operation does not depend on the number of logs, except for the logarithmic
//! look-up of a name. Adding or removing a file may affect many logs; [`Logs::install`],
//! [`Logs::relocate`] and [`Logs::forget_truncations`] do it in steps, and the caller releases the
//! lock between them. This is safe because each log changes atomically, and no file is removed
//! before the last log has changed. A trim, truncation or deletion of a log with many files takes
//! effect at once; [`Logs::cut_some`] then removes the dead entries from the index in steps.
//!
//! Components of the state: [`Registry`] has the logs by number and by name, [`GroupLogs`] the logs
//! with recent records in each group. `Cuts` has the logs with dead records still in the index.
//! [`Ledger`] has the live bytes of each file. `Logs` performs the operations and the changes of
//! files that affect several of them.
//!
//! Order of restoring: [`Logs::restore`] each log of the checkpoint, [`Logs::load`] the parts of
//! each file for each log, then [`Logs::apply`] the operations of the unsealed groups.

mod cuts;
mod ends;
mod groups;
mod live;
mod log;
mod losses;
mod registry;
mod truncations;

pub use groups::GroupLogs;
pub use live::LiveRecords;
pub use log::Log;
pub use losses::PossibleLosses;
pub use registry::Registry;

use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Inserted, RecordsInFile};
use crate::ledger::{Ledger, Usage};
use crate::ops::Op;
use base::{Error, Result, SeqNo};
use cuts::Cuts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The state of all logs.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    registry: Registry,
    groups: GroupLogs,
    /// The logs that may have truncations to remember. Some have dropped them since or were
    /// deleted.
    truncated: BTreeSet<LogId>,
    cuts: Cuts,
    ledger: Ledger,
}

/// Change of one log's files by garbage collection.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The log.
    pub log: LogId,
    /// The collected files, each with the log's lowest LSN in it when the file was written.
    pub from: Vec<(Source, Lsn)>,
    /// The log's part of the file that replaces them.
    pub to: Option<RecordsInFile>,
}

/// Position of an operation's bytes in a log group ([`crate::entry::at`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// Segment number (LTN) of the group.
    pub ltn: u64,
    /// Position in the group.
    pub at: u64,
}

impl Logs {
    /// Creates an empty state.
    pub fn new() -> Logs {
        Logs::default()
    }

    // Queries.

    /// Returns the logs by number and by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns a log.
    pub fn get(&self, id: LogId) -> Option<&Log> {
        self.registry.get(id)
    }

    /// Returns a log, or an error if it does not exist.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn log(&self, id: LogId) -> Result<&Log> {
        self.registry.log(id)
    }

    /// Returns the logs with recent records in each group.
    pub fn groups(&self) -> &GroupLogs {
        &self.groups
    }

    /// Returns the live bytes of each file.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    // Operations.

    /// Applies an operation. `place` is the position of its bytes in the log, if it has any.
    ///
    /// # Errors
    /// `Corruption` for an operation on a log that was never created.
    pub fn apply(&mut self, seq: SeqNo, op: &Op<'_>, place: GroupPosition) -> Result<()> {
        let id = op.log();
        if let Op::Create { name, .. } = op {
            self.registry.create(id, name, seq);
            return Ok(());
        }
        if let Op::Delete { .. } = op {
            if let Some(log) = self.registry.remove(id) {
                self.cuts.delete(log, &mut self.ledger);
            }
            return Ok(());
        }
        let Some(log) = self.registry.get_mut(id) else { return self.registry.check_deleted(id) };
        let ledger = &mut self.ledger;
        match *op {
            Op::Append { lsn, bytes, .. } => {
                // The limits keep every record shorter.
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let entry = Entry { log: id, lsn, seq, at: place.at, len };
                if log.append(place.ltn, &entry, ledger) == Inserted::NewInGroup {
                    self.groups.add(place.ltn, id);
                }
            }
            Op::Trim { below, .. } => {
                if log.trim(below, ledger) {
                    self.cuts.add(id);
                }
            }
            Op::TruncateAfter { lsn, .. } => {
                if log.truncate_after(lsn, seq, ledger) {
                    self.cuts.add(id);
                }
                self.truncated.insert(id);
            }
            Op::SetMetadata { bytes, .. } => log.set_metadata(seq, bytes),
            Op::Create { .. } | Op::Delete { .. } => {}
        }
        Ok(())
    }

    /// Adds an index entry as [`Logs::apply`] does for an append, but without the record's bytes.
    /// For repair.
    pub(crate) fn claim(&mut self, entry: &Entry, place: GroupPosition) {
        if let Some(log) = self.registry.get_mut(entry.log) {
            let entry = Entry { at: place.at, ..*entry };
            log.append(place.ltn, &entry, &mut self.ledger);
        }
    }

    /// Raises the last LSN of a log to at least `last`, for repair.
    pub(crate) fn reach_last(&mut self, id: LogId, last: Lsn) {
        self.registry.get_mut(id).into_iter().for_each(|log| log.reach(last));
    }

    /// Returns true if the index or the ledger still has trimmed or truncated records, or records
    /// of deleted logs.
    pub fn has_to_cut(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Removes some dead records from the index and the ledger. Returns true if more remain.
    pub fn cut_some(&mut self) -> bool {
        self.cuts.cut_some(&mut self.registry, &mut self.ledger);
        self.has_to_cut()
    }

    // Changes of files.

    /// Replaces the recent records of a group by the parts of its index file, for some of the logs
    /// with such records. The caller calls [`Logs::installed`] after the last log.
    pub fn install(&mut self, ltn: u64, logs: impl IntoIterator<Item = (LogId, Option<RecordsInFile>)>) {
        for (id, part) in logs {
            if let Some(log) = self.registry.get_mut(id) {
                log.live_mut().install(ltn, part, &mut self.ledger);
            }
        }
    }

    /// Marks a group as having no recent records.
    pub fn installed(&mut self, ltn: u64) {
        self.groups.remove(ltn);
    }

    /// Turns the live rows of a lost index file back into recent records, for some of its logs.
    /// Each log's rows are ordered by LSN. Returns false if rows are missing; the affected logs are
    /// then unchanged. The caller calls [`Logs::took_in`] after the last log.
    pub fn take_in<'a>(&mut self, ltn: u64, logs: impl IntoIterator<Item = (LogId, &'a [Entry])>) -> bool {
        let mut is_whole = true;
        for (id, rows) in logs {
            match self.registry.get_mut(id).map(|log| log.live_mut().take_in(ltn, rows)) {
                Some(Some(true)) => self.groups.add(ltn, id),
                Some(None) => is_whole = false,
                Some(Some(false)) | None => {}
            }
        }
        is_whole
    }

    /// Marks the end of references to a lost index file.
    pub fn took_in(&mut self) {
        self.groups.took_in();
    }

    /// Applies the replacement of collected files to some of the affected logs. The caller calls
    /// [`Logs::forget`] after the last log.
    pub fn relocate(&mut self, logs: impl IntoIterator<Item = Moved>) {
        for Moved { log, from, to } in logs {
            if let Some(log) = self.registry.get_mut(log) {
                log.live_mut().relocate(&from, to, &mut self.ledger);
            }
        }
    }

    /// Removes files from the ledger after the last reference to them is gone.
    pub fn forget(&mut self, sources: &[Source]) {
        sources.iter().for_each(|source| self.ledger.forget(*source));
    }

    /// Returns at most `limit` files with new garbage since the last call.
    pub fn take_changed(&mut self, limit: usize) -> Vec<(Source, Usage)> {
        self.ledger.take_changed(limit)
    }

    // Restoring and checkpointing.

    /// Restores a log from a checkpoint. The caller also restores the next log number.
    ///
    /// # Errors
    /// `Corruption` if its name or number occurs twice.
    pub fn restore(&mut self, saved: SavedLog) -> Result<()> {
        let (id, is_truncated) = (saved.id, !saved.truncations.is_empty());
        self.registry.restore(saved)?;
        if is_truncated {
            self.truncated.insert(id);
        }
        Ok(())
    }

    /// Marks all logs as incomplete because a file is unreadable: missing records count as lost,
    /// not absent. Called once, at open.
    pub fn set_lost(&mut self, why: Error) {
        let why = Arc::new(why);
        self.registry.iter_mut().for_each(|log| log.set_lost(&why));
    }

    /// Raises the next log number to at least `next_id`.
    pub fn reach_id(&mut self, next_id: LogId) {
        self.registry.reach_id(next_id);
    }

    /// Loads the log's part of a file at open, after the checkpoint and before replay. Returns
    /// false if the log does not exist. Then it was deleted, or it is younger than the checkpoint
    /// and the group of the file must be replayed.
    pub fn load(&mut self, id: LogId, part: RecordsInFile) -> bool {
        let Some(log) = self.registry.get_mut(id) else { return false };
        log.load(part, &mut self.ledger);
        true
    }

    /// Drops truncations that are no longer needed: all operations below `needed_from` are, or are
    /// about to be, in a checkpoint and in no replayed group. Visits at most `limit` logs from
    /// number `from` on. Returns the number to continue with, if there are more.
    pub fn forget_truncations(&mut self, needed_from: SeqNo, from: LogId, limit: usize) -> Option<LogId> {
        let mut some: Vec<LogId> =
            self.truncated.range(from..).take(limit.saturating_add(1)).copied().collect();
        let next = if some.len() > limit { some.pop() } else { None };
        for id in some {
            let log = self.registry.get_mut(id);
            if log.is_none_or(|log| !log.live_mut().forget_truncations(needed_from)) {
                self.truncated.remove(&id);
            }
        }
        next
    }

    /// Estimates the memory of the maps of logs, bytes.
    pub fn map_bytes(&self) -> usize {
        let truncated = self.truncated.len() * 2 * size_of::<LogId>();
        self.registry.map_bytes() + self.groups.memory_bytes() + truncated
    }

    /// Estimates the memory of all logs and of their maps, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.map_bytes() + self.registry.iter().map(Log::memory_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
