//! The logs by number and by name, and the next log number.
//!
//! Numbers ascend and are never reused: a number below the next one without a log belongs to a
//! deleted log. Names are unique, except during a replay that begins before the end of a checkpoint
//! (see [`Registry::insert`]).

use super::Log;
use crate::checkpoint::SavedLog;
use crate::entry::LogId;
use crate::limits::{LOGS_MAX, NAME_LEN_MAX};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Effect of a refused name. (The caller may have created the store for it.)
const NOTHING_MADE: &str = "no log was created, and no record was written";

/// The logs by number and by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    logs: HashMap<LogId, Box<Log>>,
    names: BTreeMap<Arc<str>, LogId>,
    next_id: LogId,
}

impl Registry {
    /// Returns the number of logs.
    pub fn len(&self) -> usize {
        self.logs.len()
    }

    /// Returns true if there is no log.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Returns the number for the next new log.
    pub fn next_id(&self) -> LogId {
        self.next_id
    }

    /// Returns a log.
    pub fn get(&self, id: LogId) -> Option<&Log> {
        self.logs.get(&id).map(|log| &**log)
    }

    /// Returns a log, or an error if it does not exist.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn log(&self, id: LogId) -> Result<&Log> {
        self.get(id).ok_or_else(|| {
            Error::not_found(format!("log {id} was deleted, or never created: create it, or use another log"))
        })
    }

    /// Returns the log with a name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn named(&self, name: &str) -> Result<&Log> {
        let log = self.names.get(name).and_then(|id| self.get(*id));
        log.ok_or_else(|| Error::not_found(format!("there is no log {name}: create it, or name another log")))
    }

    /// Iterates over the logs with names at or after `name`, in name order.
    pub fn list_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Log> + 'a {
        let from = (std::ops::Bound::Included(name), std::ops::Bound::Unbounded);
        self.names.range::<str, _>(from).filter_map(|(_, id)| self.get(*id))
    }

    /// Iterates over the logs with names after `name`, in name order; over all logs for `None`.
    pub fn list_after<'a>(&'a self, name: Option<&str>) -> impl Iterator<Item = &'a Log> + 'a {
        let from = name.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.names.range::<str, _>((from, std::ops::Bound::Unbounded)).filter_map(|(_, id)| self.get(*id))
    }

    /// Iterates over all logs, unordered.
    pub fn iter(&self) -> impl Iterator<Item = &Log> + '_ {
        self.logs.values().map(|log| &**log)
    }

    /// Checks whether a log with this name may be created.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` and `TooLarge` for the name; `TooLarge` if the store has
    /// the maximum number of logs.
    pub fn check_create(&self, name: &str) -> Result<()> {
        let too_large = |why: String| Err(Error::new(ErrorKind::TooLarge, why).with_remedy(NOTHING_MADE));
        if name.is_empty() {
            let why = "the name of a log is empty: give it one";
            return Err(Error::invalid(why).with_remedy(NOTHING_MADE));
        }
        if name.len() > NAME_LEN_MAX {
            return too_large(format!(
                "the name of a log has {} bytes, over the limit of {NAME_LEN_MAX} bytes: shorten it",
                name.len()
            ));
        }
        if self.names.contains_key(name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("a log {name} exists already: choose another name"),
            ));
        }
        if self.logs.len() >= LOGS_MAX {
            return too_large(format!("the store has the maximum of {LOGS_MAX} logs: delete one"));
        }
        Ok(())
    }

    /// Refuses an operation on a log number that was never assigned.
    pub(super) fn check_deleted(&self, id: LogId) -> Result<()> {
        if id < self.next_id {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "an operation changes the log with the id {id}, which no earlier operation created"
        )))
    }

    pub(super) fn get_mut(&mut self, id: LogId) -> Option<&mut Log> {
        self.logs.get_mut(&id).map(|log| &mut **log)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Log> {
        self.logs.values_mut().map(|log| &mut **log)
    }

    /// Raises the next log number to at least `next_id`.
    pub(super) fn reach_id(&mut self, next_id: LogId) {
        self.next_id = self.next_id.max(next_id);
    }

    pub(super) fn create(&mut self, id: LogId, name: &str, seq: SeqNo) {
        if id < self.next_id {
            // The log exists, or the state already reflects its deletion.
            return;
        }
        self.next_id = id.saturating_add(1);
        // A checkpoint may contain a log that was created during its writing.
        if !self.logs.contains_key(&id) {
            self.insert(Log::new(id, name.into(), seq));
        }
    }

    /// Restores a log from a checkpoint.
    pub(super) fn restore(&mut self, saved: SavedLog) -> Result<()> {
        let name: Arc<str> = saved.name.as_str().into();
        if self.names.contains_key(&name) || self.logs.contains_key(&saved.id) {
            return Err(Error::corruption(format!("log {} ({name}) is in the checkpoint twice", saved.id)));
        }
        self.insert(Log::restore(saved, name));
        Ok(())
    }

    fn insert(&mut self, log: Log) {
        // A replay from before the end of a checkpoint may create a log whose name a later log has.
        // The earlier log has no name until the replay of its deletion.
        let owner = self.names.entry(log.name().clone()).or_insert(log.id());
        *owner = log.id().max(*owner);
        self.logs.insert(log.id(), Box::new(log));
    }

    /// Removes a log and its name. The number counts as assigned even if the log does not exist.
    pub(super) fn remove(&mut self, id: LogId) -> Option<Box<Log>> {
        self.reach_id(id.saturating_add(1));
        let log = self.logs.remove(&id)?;
        if self.names.get(log.name()) == Some(&id) {
            self.names.remove(log.name());
        }
        Some(log)
    }

    /// Estimates the memory of the maps without the logs, bytes.
    pub(super) fn map_bytes(&self) -> usize {
        self.logs.len() * NAME_BYTES + self.logs.capacity() * SLOT_BYTES
    }
}

/// Size of an entry in the map of logs: number, pointer, and one control byte.
const SLOT_BYTES: usize = size_of::<(LogId, Box<Log>)>() + 1;
/// Size of a name in the ordered map, whose nodes are two thirds full.
const NAME_BYTES: usize = size_of::<(Arc<str>, LogId)>() * 3 / 2;
