//! The live records of a log: the index, with the trim and the truncations applied to it.
//!
//! A trim is a watermark that only rises. The records below it are gone, whenever they were
//! appended and wherever they are copied to. The trim is always remembered; for truncations see
//! [`truncations`](super::truncations).
//!
//! A trim takes effect when it is applied, but its records leave the index in steps
//! ([`LiveRecords::cut_some`]). They may span a hundred thousand parts, and all other operations
//! wait during a step. Reads never find them meanwhile: a look-up first compares its LSN with the
//! trim, and a range begins at the trim. The records of a truncation leave the index at once, and
//! the ledger in steps.
//!
//! Invariant: the index has nothing below the trim, except while `cut_from` is not [`DONE`]. Then
//! recent records may be below the trim, and so may parts whose [`RecordsInFile::low`] is at least
//! `cut_from`.

use super::truncations::Truncations;
use crate::entry::{Entry, Lsn, Source};
use crate::index::{Inserted, LogIndex, RecordsInFile};
use crate::ledger::Ledger;
use crate::limits::LSN_MAX;
use base::SeqNo;

/// Parts, or chunks of recent records, removed under one hold of the lock. Few in tests, so that
/// most trims take several steps.
const CUT_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };
/// Value of `cut_from` after all records below the trim are removed.
const DONE: Lsn = Lsn::MAX;

/// The live records of a log.
#[derive(Clone, Debug)]
pub struct LiveRecords {
    index: LogIndex,
    trimmed_below: Lsn,
    cut_from: Lsn,
    truncations: Truncations,
}

impl LiveRecords {
    /// Creates an empty set of records with a trim.
    pub(super) fn new(trimmed_below: Lsn, truncations: Truncations) -> LiveRecords {
        LiveRecords { index: LogIndex::default(), trimmed_below, cut_from: DONE, truncations }
    }

    /// Returns the index of the records.
    pub fn index(&self) -> &LogIndex {
        &self.index
    }

    /// Returns the lowest LSN that is not trimmed.
    pub fn trimmed_below(&self) -> Lsn {
        self.trimmed_below
    }

    /// Returns the number of truncations since the store was opened. A change tells a reader that
    /// earlier results may be gone or replaced.
    pub fn truncated(&self) -> u64 {
        self.truncations.applied()
    }

    pub(super) fn truncations(&self) -> &Truncations {
        &self.truncations
    }

    /// Returns the lowest LSN with a record.
    pub fn first(&self) -> Option<Lsn> {
        match self.cut_from {
            DONE => self.index.first(),
            _ => self
                .index
                .runs_from(self.trimmed_below)
                .next()
                .map(|(first, _)| first.max(self.trimmed_below)),
        }
    }

    /// Returns at most `limit` runs of missing LSNs from `from` to `to`, both included, each as its
    /// first and last LSN. Trimmed LSNs are not missing.
    pub fn gaps(&self, from: Lsn, to: Lsn, limit: usize) -> Vec<(Lsn, Lsn)> {
        let (mut out, mut next) = (Vec::new(), from.max(self.trimmed_below));
        let to = to.min(LSN_MAX);
        for (first, last) in self.index.runs_from(next) {
            if out.len() == limit || first > to {
                break;
            }
            if first > next {
                out.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= to && out.len() < limit {
            out.push((next, to));
        }
        out
    }

    /// Adds a record that is neither trimmed nor truncated.
    pub(super) fn insert(&mut self, ltn: u64, entry: &Entry, ledger: &mut Ledger) -> Inserted {
        self.index.insert(ltn, entry, ledger)
    }

    /// Raises the trim. Returns true if dead records remain for [`LiveRecords::cut_some`].
    pub(super) fn trim(&mut self, below: Lsn, ledger: &mut Ledger) -> bool {
        if below > self.trimmed_below {
            self.trimmed_below = below;
            self.cut_from = 0;
        }
        self.cut_some(ledger)
    }

    /// Truncates the log. Returns true if dead records remain for [`LiveRecords::cut_some`].
    pub(super) fn truncate_after(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let in_files = self.index.remove_above(lsn, seq, CUT_AT_ONCE, ledger);
        self.truncations.add(seq, lsn, in_files);
        self.index.cut_detached(0, ledger)
    }

    /// Performs one step of removing trimmed records from the index and truncated records from the
    /// ledger. Returns true if more remain.
    pub(super) fn cut_some(&mut self, ledger: &mut Ledger) -> bool {
        if self.cut_from != DONE {
            let next = self.index.remove_below(self.trimmed_below, self.cut_from, CUT_AT_ONCE, ledger);
            self.cut_from = next.unwrap_or(DONE);
            return self.cut_from != DONE || self.index.cut_detached(0, ledger);
        }
        self.index.cut_detached(CUT_AT_ONCE, ledger)
    }

    /// See [`Truncations::forget`].
    pub(super) fn forget_truncations(&mut self, needed_from: SeqNo) -> bool {
        self.truncations.forget(needed_from)
    }

    /// Loads the log's part of a file at open, before replay. Returns the highest trimmed LSN of
    /// the part.
    pub(super) fn load(&mut self, part: RecordsInFile, ledger: &mut Ledger) -> Option<Lsn> {
        self.index.load(part, ledger);
        self.truncations.take_from_file(|lsn, seq| self.index.remove_above(lsn, seq, usize::MAX, ledger));
        let trimmed = self.index.last_below(self.trimmed_below);
        self.index.remove_below(self.trimmed_below, 0, usize::MAX, ledger);
        trimmed
    }

    /// See [`LogIndex::install`].
    pub(super) fn install(&mut self, ltn: u64, part: Option<RecordsInFile>, ledger: &mut Ledger) {
        let is_whole = self.index.install(ltn, part, self.trimmed_below, ledger);
        self.note_file(is_whole);
    }

    /// See [`LogIndex::take_in`].
    pub(super) fn take_in(&mut self, ltn: u64, rows: &[Entry]) -> Option<bool> {
        self.index.take_in(ltn, rows)
    }

    /// See [`LogIndex::relocate`].
    pub(super) fn relocate(
        &mut self,
        inputs: &[(Source, Lsn)],
        part: Option<RecordsInFile>,
        ledger: &mut Ledger,
    ) {
        let is_whole = self.index.relocate(inputs, part, self.trimmed_below, ledger);
        self.note_file(is_whole);
    }

    /// Notes a new file. `is_whole` is false if some of its records have died; a truncation may be
    /// the reason.
    fn note_file(&mut self, is_whole: bool) {
        if !is_whole {
            self.truncations.note_in_files();
        }
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.truncations.memory_bytes() + self.index.memory_bytes()
    }
}
