//! All logs of a store, and what operations do to them: the state that a replay of the log leads to.
//!
//! Operations are applied in the order of their sequences as far as they create or delete logs; all others of a log may come in any
//! order after it was created, and as often as anybody likes: the state is the same (`log`, [`crate::index`]). So replay may begin
//! anywhere before the end of a checkpoint that was written while operations went on, and a group may be replayed that has an index
//! file already. What is said of a log that was deleted is passed over: numbers of logs ascend and are never used twice, so one
//! below the next that there is no log of was deleted.
//!
//! What an operation costs does not depend on the number of logs, but for the logarithm in the look-up of a name. What goes through
//! many logs, because a file that has something of each comes or goes, does so in pieces ([`Logs::install`], [`Logs::relocate`],
//! [`Logs::forget_truncations`]): its caller lets others in between. That is right since each log changes as a whole, and no file that
//! it leads to goes before the last has changed. A trim, truncation or deletion of a log that has many files holds at once, and what it takes is taken
//! out of the index in pieces as well ([`Logs::cut_some`]).
//!
//! The parts of the state: [`Registry`] has the logs by number and by name, [`GroupLogs`] the logs with recent records in each group.
//! `Cuts` has the trimmed, truncated and deleted logs whose dead records are still in the index. [`Ledger`] has the live bytes of each
//! file. `Logs` performs the operations and the changes of files that concern several of them.
//!
//! Order of restoring: [`Logs::restore`] each log of the checkpoint, [`Logs::load`] what each file has of each log, and
//! [`Logs::apply`] what is in groups that were not retained.

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
pub use losses::LostRecords;
pub use registry::Registry;

use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Inserted, Part};
use crate::ledger::{Ledger, Usage};
use crate::ops::Op;
use base::{Error, Result, SeqNo};
use cuts::Cuts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    registry: Registry,
    groups: GroupLogs,
    /// The logs that remember truncations; some may have forgotten them since, or be gone.
    truncated: BTreeSet<LogId>,
    cuts: Cuts,
    ledger: Ledger,
}

/// What becomes of a log when files are collected.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Which log.
    pub log: LogId,
    /// The files that go, each with the lowest LSN that it had of the log when it was written.
    pub from: Vec<(Source, Lsn)>,
    /// What the file that takes their place has of it.
    pub to: Option<Part>,
}

/// Where the bytes of an operation are: in a group, at a place ([`crate::entry::at`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPlace {
    /// The log tag number of the group.
    pub ltn: u64,
    /// The place in it.
    pub at: u64,
}

impl Logs {
    /// No logs.
    pub fn new() -> Logs {
        Logs::default()
    }

    // What there is.

    /// The logs by number and by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A log.
    pub fn get(&self, id: LogId) -> Option<&Log> {
        self.registry.get(id)
    }

    /// A log that must be there.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn log(&self, id: LogId) -> Result<&Log> {
        self.registry.log(id)
    }

    /// The logs with recent records in each group.
    pub fn groups(&self) -> &GroupLogs {
        &self.groups
    }

    /// How much of each file is alive.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    // What happens to it.

    /// Applies an operation; `place` is where its bytes are in the log, if it has any.
    ///
    /// # Errors
    /// `Corruption`: on a log that was never created.
    pub fn apply(&mut self, seq: SeqNo, op: &Op<'_>, place: GroupPlace) -> Result<()> {
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
                // A record is never longer than that: the limits say so.
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

    /// Takes a record as [`Logs::apply`] takes an append, without its bytes: for repair.
    pub(crate) fn claim(&mut self, entry: &Entry, place: GroupPlace) {
        if let Some(log) = self.registry.get_mut(entry.log) {
            let entry = Entry { at: place.at, ..*entry };
            log.append(place.ltn, &entry, &mut self.ledger);
        }
    }

    /// The last LSN of a log is at least this: for repair.
    pub(crate) fn reach_last(&mut self, id: LogId, last: Lsn) {
        self.registry.get_mut(id).into_iter().for_each(|log| log.reach(last));
    }

    /// True if something is in the index or the ledger that was trimmed or truncated, or is of a log that was deleted.
    pub fn has_to_cut(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Takes some of it out. True if there is more.
    pub fn cut_some(&mut self) -> bool {
        self.cuts.cut_some(&mut self.registry, &mut self.ledger);
        self.has_to_cut()
    }

    // Files.

    /// The index file of a group is there, and named: what it has of each log takes the place of the recent records of that group.
    /// For some of the logs that it has recent records of; [`Logs::installed`] once all were here.
    pub fn install(&mut self, ltn: u64, logs: impl IntoIterator<Item = (LogId, Option<Part>)>) {
        for (id, part) in logs {
            if let Some(log) = self.registry.get_mut(id) {
                log.live_mut().install(ltn, part, &mut self.ledger);
            }
        }
    }

    /// No log has recent records in a group any more.
    pub fn installed(&mut self, ltn: u64) {
        self.groups.remove(ltn);
    }

    /// The index file of a group is lost: what is alive of some logs in it, of each by LSN, becomes recent records again. False if some of
    /// it is missing; these logs are as they were. [`Logs::took_in`] once all were here.
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

    /// No log leads to the lost index file of a group any more.
    pub fn took_in(&mut self) {
        self.groups.took_in();
    }

    /// Files were collected: for some of the logs that they have something of. [`Logs::forget`] them once all were here.
    pub fn relocate(&mut self, logs: impl IntoIterator<Item = Moved>) {
        for Moved { log, from, to } in logs {
            if let Some(log) = self.registry.get_mut(log) {
                log.live_mut().relocate(&from, to, &mut self.ledger);
            }
        }
    }

    /// No log leads to these files any more.
    pub fn forget(&mut self, sources: &[Source]) {
        sources.iter().for_each(|source| self.ledger.forget(*source));
    }

    /// Files of which something has died since this was last asked, `limit` at most.
    pub fn take_changed(&mut self, limit: usize) -> Vec<(Source, Usage)> {
        self.ledger.take_changed(limit)
    }

    // Restoring, and what a checkpoint is made of.

    /// A log of a checkpoint. All numbers of logs below `next_id` were given when the checkpoint was begun.
    ///
    /// # Errors
    /// `Corruption`: its name or number is there twice.
    pub fn restore(&mut self, saved: SavedLog) -> Result<()> {
        let (id, is_truncated) = (saved.id, !saved.truncations.is_empty());
        self.registry.restore(saved)?;
        if is_truncated {
            self.truncated.insert(id);
        }
        Ok(())
    }

    /// A file cannot be read: what is not found of these logs is lost, not absent. Once, at open.
    pub fn set_lost(&mut self, why: Error) {
        let why = Arc::new(why);
        self.registry.iter_mut().for_each(|log| log.set_lost(&why));
    }

    /// The numbers below were given.
    pub fn reach_id(&mut self, next_id: LogId) {
        self.registry.reach_id(next_id);
    }

    /// What a file has of a log, at open. The logs of the checkpoint are there, and nothing is replayed yet. False if there is no such
    /// log: it was deleted, or it is younger than the checkpoint, and then the group of the file has to be replayed.
    pub fn load(&mut self, id: LogId, part: Part) -> bool {
        let Some(log) = self.registry.get_mut(id) else { return false };
        log.load(part, &mut self.ledger);
        true
    }

    /// Lets logs forget the truncations that are not needed any more: all operations below a sequence are in a checkpoint, or
    /// are about to be, and in no group that is kept. `limit` logs at most, from this number on; returns the number to go on with, if there are more.
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

    /// Bytes that the maps of logs take in memory, estimated.
    pub fn map_bytes(&self) -> usize {
        let truncated = self.truncated.len() * 2 * size_of::<LogId>();
        self.registry.map_bytes() + self.groups.memory_bytes() + truncated
    }

    /// Bytes that all of it takes in memory, as far as it is known: those of all logs and of the maps of them.
    pub fn memory_bytes(&self) -> usize {
        self.map_bytes() + self.registry.iter().map(Log::memory_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
