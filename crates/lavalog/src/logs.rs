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
//! Order of restoring: [`Logs::restore`] each log of the checkpoint, [`Logs::load`] what each file has of each log, and
//! [`Logs::apply`] what is in groups that were not retained.

mod ends;
mod live;
mod log;
mod losses;
mod truncations;

pub use live::LiveRecords;
pub use log::Log;
pub use losses::LostRecords;

use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Inserted, Part};
use crate::ledger::{Ledger, Usage};
use crate::limits::{LOGS_MAX, NAME_LEN_MAX};
use crate::ops::Op;
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    logs: HashMap<LogId, Box<Log>>,
    names: BTreeMap<Arc<str>, LogId>,
    next_id: LogId,
    /// The logs that have recent records in a group, in no order; some may have lost them since, or be gone.
    in_group: BTreeMap<u64, Vec<LogId>>,
    /// The logs that remember truncations; some may have forgotten them since, or be gone.
    truncated: BTreeSet<LogId>,
    /// The logs that have something in the index which is trimmed; some may be gone.
    to_cut: BTreeSet<LogId>,
    /// Logs that were deleted and have something in the index still: nobody finds them.
    deleted: Vec<Log>,
    ledger: Ledger,
    /// How often the rows of a group were taken into memory: see [`Logs::taken_in`].
    taken_in: u64,
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

    /// How many logs there are.
    pub fn len(&self) -> usize {
        self.logs.len()
    }

    /// True if there is no log.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// The number of the next log that is created.
    pub fn next_id(&self) -> LogId {
        self.next_id
    }

    /// A log.
    pub fn get(&self, id: LogId) -> Option<&Log> {
        self.logs.get(&id).map(|log| &**log)
    }

    /// A log that must be there.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn log(&self, id: LogId) -> Result<&Log> {
        self.get(id).ok_or_else(|| Error::not_found(format!("log {id} was deleted, or never created")))
    }

    /// The log of a name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn named(&self, name: &str) -> Result<&Log> {
        let log = self.names.get(name).and_then(|id| self.get(*id));
        log.ok_or_else(|| Error::not_found(format!("there is no log {name}")))
    }

    /// The logs whose names are at or behind one, in the order of their names.
    pub fn list_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Log> + 'a {
        let from = (std::ops::Bound::Included(name), std::ops::Bound::Unbounded);
        self.names.range::<str, _>(from).filter_map(|(_, id)| self.get(*id))
    }

    /// The logs whose names are behind one, in the order of their names; all of them for `None`.
    pub fn list_after<'a>(&'a self, name: Option<&str>) -> impl Iterator<Item = &'a Log> + 'a {
        let from = name.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.names.range::<str, _>((from, std::ops::Bound::Unbounded)).filter_map(|(_, id)| self.get(*id))
    }

    /// All logs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Log> + '_ {
        self.logs.values().map(|log| &**log)
    }

    /// How much of each file is alive.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether a log may be created.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` and `TooLarge` for the name; `TooLarge` if there are as many logs as there can be.
    pub fn check_create(&self, name: &str) -> Result<()> {
        let too_large = |why: String| Err(Error::new(ErrorKind::TooLarge, why));
        if name.is_empty() {
            return Err(Error::invalid("a log without a name"));
        }
        if name.len() > NAME_LEN_MAX {
            return too_large(format!("the name of a log is over its limit of {NAME_LEN_MAX} bytes"));
        }
        if self.names.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a log {name}")));
        }
        if self.logs.len() >= LOGS_MAX {
            return too_large(format!("there are {LOGS_MAX} logs: delete one"));
        }
        Ok(())
    }

    // What happens to it.

    /// Applies an operation; `place` is where its bytes are in the log, if it has any.
    ///
    /// # Errors
    /// `Corruption`: on a log that was never created.
    pub fn apply(&mut self, seq: SeqNo, op: &Op<'_>, place: GroupPlace) -> Result<()> {
        let id = op.log();
        if let Op::Create { name, .. } = op {
            self.create(id, name, seq);
            return Ok(());
        }
        if let Op::Delete { .. } = op {
            self.delete(id);
            return Ok(());
        }
        let Some(log) = self.logs.get_mut(&id) else { return self.check_deleted(id) };
        let ledger = &mut self.ledger;
        match *op {
            Op::Append { lsn, bytes, .. } => {
                // A record is never longer than that: the limits say so.
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let entry = Entry { log: id, lsn, seq, at: place.at, len };
                if log.append(place.ltn, &entry, ledger) == Inserted::NewInGroup {
                    self.in_group.entry(place.ltn).or_default().push(id);
                }
            }
            Op::Trim { below, .. } => {
                if log.trim(below, ledger) {
                    self.to_cut.insert(id);
                }
            }
            Op::TruncateAfter { lsn, .. } => {
                if log.truncate_after(lsn, seq, ledger) {
                    self.to_cut.insert(id);
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
        if let Some(log) = self.logs.get_mut(&entry.log) {
            let entry = Entry { at: place.at, ..*entry };
            log.append(place.ltn, &entry, &mut self.ledger);
        }
    }

    /// The last LSN of a log is at least this: for repair.
    pub(crate) fn reach_last(&mut self, id: LogId, last: Lsn) {
        self.logs.get_mut(&id).iter_mut().for_each(|log| log.reach(last));
    }

    fn check_deleted(&self, id: LogId) -> Result<()> {
        if id < self.next_id {
            return Ok(());
        }
        Err(Error::corruption(format!("an operation on log {id}, which was never created")))
    }

    fn create(&mut self, id: LogId, name: &str, seq: SeqNo) {
        if id < self.next_id {
            // It is there, or it was deleted by an operation that is in the state already.
            return;
        }
        self.next_id = id.saturating_add(1);
        // A checkpoint may have one that was created while it was written.
        if !self.logs.contains_key(&id) {
            self.insert(Log::new(id, name.into(), seq));
        }
    }

    fn insert(&mut self, log: Log) {
        // Where replay begins before a checkpoint ended, a log may come up whose name another one has since: until it is deleted
        // again, which is replayed, too, it has none.
        let owner = self.names.entry(log.name().clone()).or_insert(log.id());
        *owner = log.id().max(*owner);
        self.logs.insert(log.id(), Box::new(log));
    }

    fn delete(&mut self, id: LogId) {
        self.next_id = self.next_id.max(id.saturating_add(1));
        let Some(mut log) = self.logs.remove(&id) else { return };
        if self.names.get(log.name()) == Some(&id) {
            self.names.remove(log.name());
        }
        // The same as a trim of everything.
        if log.trim(Lsn::MAX, &mut self.ledger) {
            self.deleted.push(*log);
        }
    }

    /// True if something is in the index or the ledger that was trimmed or truncated, or is of a log that was deleted.
    pub fn has_to_cut(&self) -> bool {
        !self.deleted.is_empty() || !self.to_cut.is_empty()
    }

    /// Takes some of it out. True if there is more.
    pub fn cut_some(&mut self) -> bool {
        if let Some(log) = self.deleted.last_mut() {
            if !log.live_mut().cut_some(&mut self.ledger) {
                self.deleted.pop();
            }
        } else if let Some(id) = self.to_cut.first().copied() {
            let log = self.logs.get_mut(&id);
            if !log.is_some_and(|log| log.live_mut().cut_some(&mut self.ledger)) {
                self.to_cut.remove(&id);
            }
        }
        self.has_to_cut()
    }

    // Files.

    /// Logs that have recent records in a group, `limit` at most from the `from`th on, in no order: what its index file is written
    /// from, by [`crate::index::LogIndex::recent_in`]. Some may have none left, or be gone. In a group that is closed they stay in
    /// their places.
    pub fn recent_in(&self, ltn: u64, from: usize, limit: usize) -> &[LogId] {
        let logs = self.in_group.get(&ltn).and_then(|logs| logs.get(from..)).unwrap_or_default();
        logs.get(..limit).unwrap_or(logs)
    }

    /// The index file of a group is there, and named: what it has of each log takes the place of the recent records of that group.
    /// For some of the logs that it has recent records of; [`Logs::installed`] once all were here.
    pub fn install(&mut self, ltn: u64, logs: impl IntoIterator<Item = (LogId, Option<Part>)>) {
        for (id, part) in logs {
            if let Some(log) = self.logs.get_mut(&id) {
                log.live_mut().install(ltn, part, &mut self.ledger);
            }
        }
    }

    /// No log has recent records in a group any more.
    pub fn installed(&mut self, ltn: u64) {
        self.in_group.remove(&ltn);
    }

    /// The index file of a group is lost: what is alive of some logs in it, of each by LSN, becomes recent records again. False if some of
    /// it is missing; these logs are as they were. [`Logs::took_in`] once all were here.
    pub fn take_in<'a>(&mut self, ltn: u64, logs: impl IntoIterator<Item = (LogId, &'a [Entry])>) -> bool {
        let mut is_whole = true;
        for (id, rows) in logs {
            match self.logs.get_mut(&id).map(|log| log.live_mut().take_in(ltn, rows)) {
                Some(Some(true)) => self.in_group.entry(ltn).or_default().push(id),
                Some(None) => is_whole = false,
                Some(Some(false)) | None => {}
            }
        }
        is_whole
    }

    /// No log leads to the lost index file of a group any more.
    pub fn took_in(&mut self) {
        self.taken_in += 1;
    }

    /// How often that was so. Who has found the block of a record, and sees another number after he has read it, may have read another file
    /// in the place of the one that was meant.
    pub fn taken_in(&self) -> u64 {
        self.taken_in
    }

    /// Files were collected: for some of the logs that they have something of. [`Logs::forget`] them once all were here.
    pub fn relocate(&mut self, logs: impl IntoIterator<Item = Moved>) {
        for Moved { log, from, to } in logs {
            if let Some(log) = self.logs.get_mut(&log) {
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
        let name: Arc<str> = saved.name.as_str().into();
        if self.names.contains_key(&name) || self.logs.contains_key(&saved.id) {
            return Err(Error::corruption(format!("log {} ({name}) is in the checkpoint twice", saved.id)));
        }
        if !saved.truncations.is_empty() {
            self.truncated.insert(saved.id);
        }
        self.insert(Log::restore(saved, name));
        Ok(())
    }

    /// A file cannot be read: what is not found of these logs is lost, not absent. Once, at open.
    pub fn set_lost(&mut self, why: Error) {
        let why = Arc::new(why);
        self.logs.values_mut().for_each(|log| log.set_lost(&why));
    }

    /// The numbers below were given.
    pub fn reach_id(&mut self, next_id: LogId) {
        self.next_id = self.next_id.max(next_id);
    }

    /// What a file has of a log, at open. The logs of the checkpoint are there, and nothing is replayed yet. False if there is no such
    /// log: it was deleted, or it is younger than the checkpoint, and then the group of the file has to be replayed.
    pub fn load(&mut self, id: LogId, part: Part) -> bool {
        let Some(log) = self.logs.get_mut(&id) else { return false };
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
            let log = self.logs.get_mut(&id);
            if log.is_none_or(|log| !log.live_mut().forget_truncations(needed_from)) {
                self.truncated.remove(&id);
            }
        }
        next
    }

    /// Bytes that the maps of logs take in memory, estimated.
    pub fn map_bytes(&self) -> usize {
        let maps = self.logs.len() * NAME_BYTES + self.logs.capacity() * SLOT_BYTES;
        let groups: usize = self.in_group.values().map(|logs| logs.capacity() * size_of::<LogId>()).sum();
        maps + groups + self.truncated.len() * 2 * size_of::<LogId>()
    }

    /// Bytes that all of it takes in memory, as far as it is known: those of all logs and of the maps of them.
    pub fn memory_bytes(&self) -> usize {
        self.map_bytes() + self.logs.values().map(|log| log.memory_bytes()).sum::<usize>()
    }
}

/// Bytes of a place in the map of logs: number, pointer, and a byte of the map's own.
const SLOT_BYTES: usize = size_of::<(LogId, Box<Log>)>() + 1;
/// Bytes of a name in the ordered map, whose nodes are two thirds full.
const NAME_BYTES: usize = size_of::<(Arc<str>, LogId)>() * 3 / 2;

#[cfg(test)]
mod tests;
