//! One logical log: its name, its metadata, its highest LSNs, and its records.
//!
//! [`LiveRecords`] has the index, the trim and the truncations, `Ends` the highest LSNs, and
//! `Losses` the records that were unreadable at open. `Log` performs the operations that affect
//! several of them.

use super::ends::Ends;
use super::live::LiveRecords;
use super::losses::{Losses, PossibleLosses};
use super::truncations::Truncations;
use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn};
use crate::index::{Inserted, RecordLocation, RecordsInFile};
use crate::ledger::Ledger;
use base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;

/// One logical log.
#[derive(Clone, Debug)]
pub struct Log {
    id: LogId,
    name: Arc<str>,
    /// Sequence number of the operation that created the log.
    created: SeqNo,
    metadata: Option<(SeqNo, Arc<[u8]>)>,
    live: LiveRecords,
    ends: Ends,
    losses: Losses,
}

impl Log {
    /// Creates an empty log.
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

    /// Restores a log from a checkpoint, before replay.
    pub(super) fn restore(saved: SavedLog, name: Arc<str>) -> Log {
        Log {
            metadata: saved.metadata.map(|(seq, bytes)| (seq, bytes.into())),
            live: LiveRecords::new(saved.trimmed_below, Truncations::restore(&saved.truncations)),
            ends: Ends::restore(saved.last, saved.trimmed_below),
            ..Log::new(saved.id, name, saved.created)
        }
    }

    /// Returns the state of the log for a checkpoint.
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

    /// Returns the number of the log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Returns the name of the log.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the metadata, if set.
    pub fn metadata(&self) -> Option<&Arc<[u8]>> {
        self.metadata.as_ref().map(|(_, bytes)| bytes)
    }

    /// Returns the live records.
    pub fn live(&self) -> &LiveRecords {
        &self.live
    }

    pub(super) fn live_mut(&mut self) -> &mut LiveRecords {
        &mut self.live
    }

    /// Returns the records that may be lost.
    pub fn lost(&self) -> PossibleLosses<'_> {
        self.losses.of(&self.name, &self.live)
    }

    /// Returns the highest LSN with a record, counting trimmed records; writers continue above it.
    /// Returns `None` also after a truncation of all records if the LSNs of the trimmed ones are
    /// unknown: checkpoints do not store these.
    pub fn last(&self) -> Option<Lsn> {
        self.ends.last()
    }

    /// Returns an upper bound of the log's LSNs if some of its records are unknown. For repair.
    pub fn last_bound(&self) -> Option<Lsn> {
        self.ends.bound()
    }

    /// Checks whether a record may be appended. Returns `None` if its LSN is free, or else the
    /// existing record. If that has the same bytes, the append succeeds without effect; otherwise
    /// see [`Log::exists`].
    ///
    /// # Errors
    /// `Trimmed` below the trim.
    pub fn admit(&self, lsn: Lsn) -> Result<Option<RecordLocation>> {
        let below = self.live.trimmed_below();
        if lsn < below {
            let why = format!(
                "record {lsn} of log {} was trimmed: the first record is at or above {}",
                self.name, below
            );
            return Err(Error::new(ErrorKind::Trimmed, why));
        }
        Ok(self.live.index().get(self.id, lsn))
    }

    /// Locates a record.
    ///
    /// # Errors
    /// `Trimmed` below the trim, `NotFound` if the LSN has no record.
    pub fn find(&self, lsn: Lsn) -> Result<RecordLocation> {
        self.admit(lsn)?.ok_or_else(|| {
            Error::not_found(format!("log {} has no record {lsn}: read an LSN that the log has", self.name))
        })
    }

    /// Returns the error for an append whose LSN has other bytes.
    pub fn exists(&self, lsn: Lsn) -> Error {
        let why = format!(
            "log {} already has a record {lsn} with other bytes, which stays: truncate the log before writing it again",
            self.name
        );
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

    /// Trims the log. Returns true if dead records remain for [`LiveRecords::cut_some`].
    pub(super) fn trim(&mut self, below: Lsn, ledger: &mut Ledger) -> bool {
        if below > self.live.trimmed_below() {
            // The highest LSN that the trim removes.
            let last = self.ends.last().filter(|last| *last < below);
            self.ends.reach_trimmed(last.or_else(|| self.live.index().last_below(below)));
        }
        self.live.trim(below, ledger)
    }

    /// Truncates the log. Returns true if dead records remain for [`LiveRecords::cut_some`].
    pub(super) fn truncate_after(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let has_to_cut = self.live.truncate_after(lsn, seq, ledger);
        self.losses.truncate_after(lsn);
        // The index may have later records above the LSN.
        self.ends.truncate_after(lsn, self.live.index().last().max(self.losses.last()));
        has_to_cut
    }

    /// Notes that the LSN has a record, or had one when it was trimmed.
    pub(super) fn reach(&mut self, last: Lsn) {
        self.ends.reach(Some(last));
    }

    /// Marks the log as incomplete because a file is unreadable: missing records up to the current
    /// end count as lost, not absent.
    pub(super) fn set_lost(&mut self, why: &Arc<Error>) {
        self.ends.lose();
        self.losses.set(self.ends.last(), why);
    }

    pub(super) fn set_metadata(&mut self, seq: SeqNo, bytes: &[u8]) {
        if self.metadata.as_ref().is_none_or(|(there, _)| *there <= seq) {
            self.metadata = Some((seq, bytes.into()));
        }
    }

    /// Loads the log's part of a file at open, before replay.
    pub(super) fn load(&mut self, part: RecordsInFile, ledger: &mut Ledger) {
        let trimmed = self.live.load(part, ledger);
        self.ends.reach_trimmed(trimmed);
        self.ends.reach(self.live.index().last());
    }

    /// Returns the memory of the log with the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, |(_, bytes)| bytes.len() + COUNTS);
        size_of::<Log>() + self.name.len() + COUNTS + metadata + self.live.memory_bytes()
    }
}

/// Size of the two reference counts in an `Arc`, bytes.
const COUNTS: usize = 2 * size_of::<usize>();
