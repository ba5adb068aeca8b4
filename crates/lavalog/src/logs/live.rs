//! The live records of a log: the index, and the trim and the truncations that apply to it.
//!
//! A trim is a watermark that only rises: the records below it are gone, whenever they were appended and wherever they are copied
//! to. It is remembered always; of truncations see [`truncations`](super::truncations).
//!
//! A trim holds from the moment that it is applied, but its records leave the index in pieces ([`LiveRecords::cut_some`]): they may
//! be in a hundred thousand parts, and all other operations wait meanwhile. Until then no read finds them: a look-up compares its LSN
//! with the trim first, and a range begins at the trim. The records of a truncation leave the index at once, and the ledger in pieces.
//!
//! Invariant: nothing in the index is below the trim, but for the parts whose files have nothing below `cut_from`, and recent
//! records, as long as that is not [`DONE`].

use super::truncations::Truncations;
use crate::entry::{Entry, Lsn, Source};
use crate::index::{Inserted, LogIndex, Part};
use crate::ledger::Ledger;
use crate::limits::LSN_MAX;
use base::SeqNo;

/// Parts and pieces of recent records that go while nobody else looks at any log. In tests so few that trims are mostly not done at once.
const CUT_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };
/// All that is below the trim has been taken out.
const DONE: Lsn = Lsn::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct LiveRecords {
    index: LogIndex,
    trimmed_below: Lsn,
    cut_from: Lsn,
    truncations: Truncations,
}

impl LiveRecords {
    /// No records, below a trim.
    pub(super) fn new(trimmed_below: Lsn, truncations: Truncations) -> LiveRecords {
        LiveRecords { index: LogIndex::default(), trimmed_below, cut_from: DONE, truncations }
    }

    /// Where the records are.
    pub fn index(&self) -> &LogIndex {
        &self.index
    }

    /// The first LSN that was not trimmed.
    pub fn trimmed_below(&self) -> Lsn {
        self.trimmed_below
    }

    /// How often the log was truncated since the store was opened. Of what was read before, some may be gone, and others in its places.
    pub fn truncated(&self) -> u64 {
        self.truncations.applied()
    }

    pub(super) fn truncations(&self) -> &Truncations {
        &self.truncations
    }

    /// The lowest LSN.
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

    /// The LSNs of a range, both ends of which count, that have no records and are not trimmed: `limit` runs at most, each
    /// with its first and last.
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

    /// Raises the trim; true if [`LiveRecords::cut_some`] has something to do.
    pub(super) fn trim(&mut self, below: Lsn, ledger: &mut Ledger) -> bool {
        if below > self.trimmed_below {
            self.trimmed_below = below;
            self.cut_from = 0;
        }
        self.cut_some(ledger)
    }

    /// Truncates the log; true if [`LiveRecords::cut_some`] has something to do.
    pub(super) fn truncate_after(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let in_files = self.index.remove_above(lsn, seq, CUT_AT_ONCE, ledger);
        self.truncations.add(seq, lsn, in_files);
        self.index.cut_detached(0, ledger)
    }

    /// Takes some of what is below the trim out of the index, and of what was truncated out of the ledger. True if there is more.
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

    /// What a file has of the log, at open, before replay. Returns the highest LSN of it that is trimmed.
    pub(super) fn load(&mut self, part: Part, ledger: &mut Ledger) -> Option<Lsn> {
        self.index.load(part, ledger);
        self.truncations.take_from_file(|lsn, seq| self.index.remove_above(lsn, seq, usize::MAX, ledger));
        let trimmed = self.index.last_below(self.trimmed_below);
        self.index.remove_below(self.trimmed_below, 0, usize::MAX, ledger);
        trimmed
    }

    /// See [`LogIndex::install`].
    pub(super) fn install(&mut self, ltn: u64, part: Option<Part>, ledger: &mut Ledger) {
        let is_whole = self.index.install(ltn, part, self.trimmed_below, ledger);
        self.note_file(is_whole);
    }

    /// See [`LogIndex::take_in`].
    pub(super) fn take_in(&mut self, ltn: u64, rows: &[Entry]) -> Option<bool> {
        self.index.take_in(ltn, rows)
    }

    /// See [`LogIndex::relocate`].
    pub(super) fn relocate(&mut self, inputs: &[(Source, Lsn)], part: Option<Part>, ledger: &mut Ledger) {
        let is_whole = self.index.relocate(inputs, part, self.trimmed_below, ledger);
        self.note_file(is_whole);
    }

    /// A file has come; `is_whole`, if nothing had died that it has. If it had, a truncation may be why.
    fn note_file(&mut self, is_whole: bool) {
        if !is_whole {
            self.truncations.note_in_files();
        }
    }

    /// Bytes they have allocated, besides their own size.
    pub(super) fn memory_bytes(&self) -> usize {
        self.truncations.memory_bytes() + self.index.memory_bytes()
    }
}
