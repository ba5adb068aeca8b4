//! One logical log: its name, its metadata, its ends, and its records.
//!
//! The parts of its state: [`LiveRecords`] has the index, the trim and the truncations, `Ends` the highest LSNs, and `Losses` what
//! could not be read when the store was opened. The log performs the operations that concern several of them.

use super::ends::Ends;
use super::live::LiveRecords;
use super::losses::{Losses, LostRecords};
use super::truncations::Truncations;
use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn};
use crate::index::{Found, Inserted, Part};
use crate::ledger::Ledger;
use base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub struct Log {
    id: LogId,
    name: Arc<str>,
    /// The sequence of the operation that created it.
    created: SeqNo,
    metadata: Option<(SeqNo, Arc<[u8]>)>,
    live: LiveRecords,
    ends: Ends,
    losses: Losses,
}

impl Log {
    /// A new log.
    pub(super) fn new(id: LogId, name: Arc<str>, created: SeqNo) -> Log {
        Log {
            id,
            name,
            created,
            metadata: None,
            live: LiveRecords::new(0, Truncations::default()),
            ends: Ends::default(),
            losses: Losses::default(),
        }
    }

    /// A log of which nothing is replayed yet.
    pub(super) fn restore(saved: SavedLog, name: Arc<str>) -> Log {
        Log {
            metadata: saved.metadata.map(|(seq, bytes)| (seq, bytes.into())),
            live: LiveRecords::new(saved.trimmed_below, Truncations::restore(&saved.truncations)),
            ends: Ends::restore(saved.last, saved.trimmed_below),
            ..Log::new(saved.id, name, saved.created)
        }
    }

    /// What a checkpoint keeps of it.
    pub fn save(&self) -> SavedLog {
        SavedLog {
            id: self.id,
            created: self.created,
            name: self.name.to_string(),
            trimmed_below: self.live.trimmed_below(),
            last: self.ends.last(),
            metadata: self.metadata.as_ref().map(|(seq, bytes)| (*seq, bytes.to_vec())),
            truncations: self.live.truncations().save(),
        }
    }

    /// Its number.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its metadata, if there are any.
    pub fn metadata(&self) -> Option<&Arc<[u8]>> {
        self.metadata.as_ref().map(|(_, bytes)| bytes)
    }

    /// Its records.
    pub fn live(&self) -> &LiveRecords {
        &self.live
    }

    pub(super) fn live_mut(&mut self) -> &mut LiveRecords {
        &mut self.live
    }

    /// Its records that may be lost.
    pub fn lost(&self) -> LostRecords<'_> {
        self.losses.of(&self.name, &self.live)
    }

    /// The highest LSN that it has, or had when that was trimmed: a writer goes on behind it. `None` also where a truncation took all
    /// records and those that were trimmed before are forgotten: a checkpoint does not have them.
    pub fn last(&self) -> Option<Lsn> {
        self.ends.last()
    }

    /// The highest LSN that it may have had, if its records are not all known: for repair.
    pub fn last_bound(&self) -> Option<Lsn> {
        self.ends.bound()
    }

    /// Whether a record may be appended: `None` if its LSN is free, or else where the one is that has it. If that has the same bytes
    /// nothing has to be done, and if not, see [`Log::exists`].
    ///
    /// # Errors
    /// `Trimmed` below the trim.
    pub fn admit(&self, lsn: Lsn) -> Result<Option<Found>> {
        let below = self.live.trimmed_below();
        if lsn < below {
            let why = format!("record {lsn} of log {} is trimmed: all below {} are", self.name, below);
            return Err(Error::new(ErrorKind::Trimmed, why));
        }
        Ok(self.live.index().get(self.id, lsn))
    }

    /// Where a record is.
    ///
    /// # Errors
    /// `Trimmed` below the trim, `NotFound` where there is none.
    pub fn find(&self, lsn: Lsn) -> Result<Found> {
        self.admit(lsn)?.ok_or_else(|| Error::not_found(format!("log {} has no record {lsn}", self.name)))
    }

    /// The error for an append whose LSN has other bytes.
    pub fn exists(&self, lsn: Lsn) -> Error {
        let why =
            format!("log {} has a record {lsn} with other bytes: truncate it to write it anew", self.name);
        Error::new(ErrorKind::AlreadyExists, why)
    }

    pub(super) fn append(&mut self, ltn: u64, entry: &Entry, ledger: &mut Ledger) -> Inserted {
        if self.live.truncations().took(entry.lsn, entry.seq) {
            return Inserted::Not;
        }
        self.ends.reach(Some(entry.lsn));
        if entry.lsn < self.live.trimmed_below() {
            self.ends.reach_trimmed(Some(entry.lsn));
            return Inserted::Not;
        }
        self.live.insert(ltn, entry, ledger)
    }

    /// Trims it; true if [`LiveRecords::cut_some`] has something to do.
    pub(super) fn trim(&mut self, below: Lsn, ledger: &mut Ledger) -> bool {
        if below > self.live.trimmed_below() {
            // The highest LSN that the trim takes.
            let last = self.ends.last().filter(|last| *last < below);
            self.ends.reach_trimmed(last.or_else(|| self.live.index().last_below(below)));
        }
        self.live.trim(below, ledger)
    }

    /// Truncates it; true if [`LiveRecords::cut_some`] has something to do.
    pub(super) fn truncate_after(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let has_to_cut = self.live.truncate_after(lsn, seq, ledger);
        self.losses.truncate_after(lsn);
        // The index may have records above the LSN, which came after the truncation.
        self.ends.truncate_after(lsn, self.live.index().last().max(self.losses.last()));
        has_to_cut
    }

    /// It has a record of this LSN, or had one when it was trimmed.
    pub(super) fn reach(&mut self, last: Lsn) {
        self.ends.reach(Some(last));
    }

    /// A file with unknown records of this log cannot be read: a record up to the present end that is not found is lost, not absent.
    pub(super) fn set_lost(&mut self, why: &Arc<Error>) {
        self.ends.lose();
        self.losses.set(self.ends.last(), why);
    }

    pub(super) fn set_metadata(&mut self, seq: SeqNo, bytes: &[u8]) {
        if self.metadata.as_ref().is_none_or(|(there, _)| *there <= seq) {
            self.metadata = Some((seq, bytes.into()));
        }
    }

    /// What a file has of it, at open, before replay.
    pub(super) fn load(&mut self, part: Part, ledger: &mut Ledger) {
        let trimmed = self.live.load(part, ledger);
        self.ends.reach_trimmed(trimmed);
        self.ends.reach(self.live.index().last());
    }

    /// Bytes it takes in memory, with its own size.
    pub fn memory_bytes(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, |(_, bytes)| bytes.len() + COUNTS);
        size_of::<Log>() + self.name.len() + COUNTS + metadata + self.live.memory_bytes()
    }
}

/// Bytes of the two reference counts before what an `Arc` holds.
const COUNTS: usize = 2 * size_of::<usize>();
