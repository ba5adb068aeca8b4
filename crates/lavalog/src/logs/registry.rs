//! The logs by number and by name, and which numbers were given.
//!
//! Numbers ascend and are never given twice: a number below the next one that leads to no log is of a deleted log. Each log has
//! a name of its own, except in a replay that begins before the end of a checkpoint (see [`Registry::insert`]).

use super::Log;
use crate::checkpoint::SavedLog;
use crate::entry::LogId;
use crate::limits::{LOGS_MAX, NAME_LEN_MAX};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    logs: HashMap<LogId, Box<Log>>,
    names: BTreeMap<Arc<str>, LogId>,
    next_id: LogId,
}

impl Registry {
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

    /// Refuses an operation on a number without a log that was never given.
    pub(super) fn check_deleted(&self, id: LogId) -> Result<()> {
        if id < self.next_id {
            return Ok(());
        }
        Err(Error::corruption(format!("an operation on log {id}, which was never created")))
    }

    pub(super) fn get_mut(&mut self, id: LogId) -> Option<&mut Log> {
        self.logs.get_mut(&id).map(|log| &mut **log)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Log> {
        self.logs.values_mut().map(|log| &mut **log)
    }

    /// The numbers below were given.
    pub(super) fn reach_id(&mut self, next_id: LogId) {
        self.next_id = self.next_id.max(next_id);
    }

    pub(super) fn create(&mut self, id: LogId, name: &str, seq: SeqNo) {
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

    /// Adds a log of a checkpoint.
    pub(super) fn restore(&mut self, saved: SavedLog) -> Result<()> {
        let name: Arc<str> = saved.name.as_str().into();
        if self.names.contains_key(&name) || self.logs.contains_key(&saved.id) {
            return Err(Error::corruption(format!("log {} ({name}) is in the checkpoint twice", saved.id)));
        }
        self.insert(Log::restore(saved, name));
        Ok(())
    }

    fn insert(&mut self, log: Log) {
        // Where replay begins before a checkpoint ended, a log may come up whose name another one has since: until it is deleted
        // again, which is replayed, too, it has none.
        let owner = self.names.entry(log.name().clone()).or_insert(log.id());
        *owner = log.id().max(*owner);
        self.logs.insert(log.id(), Box::new(log));
    }

    /// Removes a log, and its name. Its number counts as given, even if there is no such log.
    pub(super) fn remove(&mut self, id: LogId) -> Option<Box<Log>> {
        self.reach_id(id.saturating_add(1));
        let log = self.logs.remove(&id)?;
        if self.names.get(log.name()) == Some(&id) {
            self.names.remove(log.name());
        }
        Some(log)
    }

    /// Bytes that the maps take in memory, estimated; without the logs.
    pub(super) fn map_bytes(&self) -> usize {
        self.logs.len() * NAME_BYTES + self.logs.capacity() * SLOT_BYTES
    }
}

/// Bytes of a place in the map of logs: number, pointer, and a byte of the map's own.
const SLOT_BYTES: usize = size_of::<(LogId, Box<Log>)>() + 1;
/// Bytes of a name in the ordered map, whose nodes are two thirds full.
const NAME_BYTES: usize = size_of::<(Arc<str>, LogId)>() * 3 / 2;
