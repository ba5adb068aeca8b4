//! One logical log: what it is called, what was trimmed and truncated, its metadata, and the index of its records.
//!
//! A trim is a watermark that only rises: what is below it is gone, whenever it was appended and wherever it is copied to. A
//! truncation has the sequence of its operation, and takes what is above its LSN and came before it; what comes later may have the
//! same LSNs. Both are remembered for as long as a record may come up that they apply to: the trim always, a truncation while the
//! operations before it may be replayed or are in a group that is kept, whose rows may have to be made again from it, or a file has
//! records that it took.
//!
//! A trim holds from the moment that it is applied, but what it takes is taken out of the index some at a time ([`Log::cut_some`]), because
//! that may be a hundred thousand parts, and all others wait meanwhile. Until then the index has what nobody finds: who asks for a record
//! is told of the trim first, and who asks for a range begins at it. What a truncation takes is out of the index at once, and out of the
//! ledger some at a time.
//!
//! Invariants: of two truncations the later one has the higher LSN (else the earlier one would say nothing more); nothing in the index
//! is below the trim, but for the parts whose files have nothing below `cut_from`, and recent records, as long as that is not [`DONE`].

use super::ends::Ends;
use crate::checkpoint::SavedLog;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Found, Inserted, LogIndex, Part};
use crate::ledger::Ledger;
use crate::limits::LSN_MAX;
use base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;

/// Records above an LSN that came before a sequence are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Truncation {
    seq: SeqNo,
    lsn: Lsn,
    /// There may be a file that has records which it took.
    in_files: bool,
}

/// Parts and pieces of recent records that go while nobody else looks at any log. In tests so few that trims are mostly not done at once.
const CUT_AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };
/// All that is below the trim has been taken out.
const DONE: Lsn = Lsn::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct Log {
    id: LogId,
    name: Arc<str>,
    created: SeqNo,
    trimmed_below: Lsn,
    ends: Ends,
    truncations: Vec<Truncation>,
    /// How many there were since the store was opened.
    truncated: u64,
    metadata: Option<(SeqNo, Arc<[u8]>)>,
    index: LogIndex,
    cut_from: Lsn,
    /// Up to this LSN what the index does not know may have been in a file that could not be read when the store was opened, and why.
    lost: Option<(Lsn, Arc<Error>)>,
}

impl Log {
    /// A new log.
    pub(super) fn new(id: LogId, name: Arc<str>, created: SeqNo) -> Log {
        let (truncations, index) = (Vec::new(), LogIndex::default());
        Log {
            id,
            name,
            created,
            trimmed_below: 0,
            ends: Ends::default(),
            truncations,
            truncated: 0,
            metadata: None,
            index,
            cut_from: DONE,
            lost: None,
        }
    }

    /// A log of which nothing is replayed yet.
    pub(super) fn restore(saved: SavedLog, name: Arc<str>) -> Log {
        let mut log = Log::new(saved.id, name, saved.created);
        log.trimmed_below = saved.trimmed_below;
        log.ends = Ends::restore(saved.last, saved.trimmed_below);
        log.metadata = saved.metadata.map(|(seq, bytes)| (seq, bytes.into()));
        saved.truncations.iter().for_each(|(seq, lsn)| log.remember(*seq, *lsn, false));
        log
    }

    /// What a checkpoint keeps of it.
    pub fn save(&self) -> SavedLog {
        SavedLog {
            id: self.id,
            created: self.created,
            name: self.name.to_string(),
            trimmed_below: self.trimmed_below,
            last: self.ends.last(),
            metadata: self.metadata.as_ref().map(|(seq, bytes)| (*seq, bytes.to_vec())),
            truncations: self.truncations.iter().map(|t| (t.seq, t.lsn)).collect(),
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

    /// The sequence of the operation that created it.
    pub fn created(&self) -> SeqNo {
        self.created
    }

    /// The first LSN that was not trimmed.
    pub fn trimmed_below(&self) -> Lsn {
        self.trimmed_below
    }

    /// The lowest LSN that it has.
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

    /// The highest LSN that it has, or had when that was trimmed: a writer goes on behind it. `None` also where a truncation took all
    /// records and those that were trimmed before are forgotten: a checkpoint does not have them.
    pub fn last(&self) -> Option<Lsn> {
        self.ends.last()
    }

    /// The highest LSN that it may have had, if its records are not all known: for repair.
    pub fn last_bound(&self) -> Option<Lsn> {
        self.ends.bound()
    }

    /// How often it was truncated since the store was opened. Of what was read before, some may be gone, and others in its places.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Its metadata, if there are any.
    pub fn metadata(&self) -> Option<&Arc<[u8]>> {
        self.metadata.as_ref().map(|(_, bytes)| bytes)
    }

    /// Where its records are.
    pub fn index(&self) -> &LogIndex {
        &self.index
    }

    /// Whether a record may be appended: `None` if its LSN is free, or else where the one is that has it. If that has the same bytes
    /// nothing has to be done, and if not, see [`Log::exists`].
    ///
    /// # Errors
    /// `Trimmed` below the trim.
    pub fn admit(&self, lsn: Lsn) -> Result<Option<Found>> {
        if lsn < self.trimmed_below {
            return Err(self.trimmed(lsn));
        }
        Ok(self.index.get(self.id, lsn))
    }

    /// A file cannot be read, nobody knows what of this log was in it: what is not found up to the present end is lost, not absent.
    pub(super) fn set_lost(&mut self, why: &Arc<Error>) {
        self.ends.lose();
        self.lost = self.ends.last().map(|last| (last, why.clone()));
    }

    /// # Errors
    /// `Corruption`, if the first of these LSNs that has no record may have had one.
    pub fn check_lost(&self, from: Lsn, to: Lsn) -> Result<()> {
        let Some((lost_to, why)) = &self.lost else { return Ok(()) };
        match self.gaps(from, to.min(*lost_to), 1).first() {
            Some((first, last)) if from <= *lost_to => {
                let what = format!("records {first} to {last} of log {} may be lost", self.name);
                Err(Error::clone(why).context(what))
            }
            _ => Ok(()),
        }
    }

    /// The first LSN from this one on that may have had a record which is lost.
    pub fn first_lost(&self, from: Lsn) -> Option<Lsn> {
        let (lost_to, _) = self.lost.as_ref().filter(|(lost_to, _)| from <= *lost_to)?;
        self.gaps(from, *lost_to, 1).first().map(|(first, _)| *first)
    }

    /// Where records may have been that are lost, as first and last of each run.
    pub fn lost_runs(&self) -> Vec<(Lsn, Lsn)> {
        self.lost.as_ref().map_or_else(Vec::new, |(lost_to, _)| self.gaps(0, *lost_to, usize::MAX))
    }

    /// Where a record is.
    ///
    /// # Errors
    /// `Trimmed` below the trim, `NotFound` where there is none.
    pub fn find(&self, lsn: Lsn) -> Result<Found> {
        self.admit(lsn)?.ok_or_else(|| Error::not_found(format!("log {} has no record {lsn}", self.name)))
    }

    fn trimmed(&self, lsn: Lsn) -> Error {
        let why =
            format!("record {lsn} of log {} is trimmed: all below {} are", self.name, self.trimmed_below);
        Error::new(ErrorKind::Trimmed, why)
    }

    /// The error for an append whose LSN has other bytes.
    pub fn exists(&self, lsn: Lsn) -> Error {
        let why =
            format!("log {} has a record {lsn} with other bytes: truncate it to write it anew", self.name);
        Error::new(ErrorKind::AlreadyExists, why)
    }

    /// The LSNs of a range, both ends of which count, that it has no records of and that are not trimmed: `limit` runs at most, each
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

    /// True if a truncation took what was appended with this LSN by an operation of this sequence.
    fn is_truncated(&self, lsn: Lsn, seq: SeqNo) -> bool {
        // Of those that came later, the first has the lowest LSN.
        let later = self.truncations.partition_point(|t| t.seq < seq);
        self.truncations.get(later).is_some_and(|t| lsn > t.lsn)
    }

    pub(super) fn append(&mut self, ltn: u64, entry: &Entry, ledger: &mut Ledger) -> Inserted {
        if self.is_truncated(entry.lsn, entry.seq) {
            return Inserted::Not;
        }
        self.ends.reach(Some(entry.lsn));
        if entry.lsn < self.trimmed_below {
            self.ends.reach_trimmed(Some(entry.lsn));
            return Inserted::Not;
        }
        self.index.insert(ltn, entry, ledger)
    }

    /// Trims it; true if [`Log::cut_some`] has something to do.
    pub(super) fn trim(&mut self, below: Lsn, ledger: &mut Ledger) -> bool {
        if below > self.trimmed_below {
            self.note_trimmed(below);
            self.trimmed_below = below;
            self.cut_from = 0;
        }
        self.cut_some(ledger)
    }

    /// Remembers the highest LSN that a trim takes.
    fn note_trimmed(&mut self, below: Lsn) {
        let last = self.ends.last().filter(|last| *last < below);
        self.ends.reach_trimmed(last.or_else(|| self.index.last_below(below)));
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

    /// It was deleted: as [`Log::trim`], of everything.
    pub(super) fn clear(&mut self, ledger: &mut Ledger) -> bool {
        self.trim(Lsn::MAX, ledger)
    }

    /// Truncates it; true if [`Log::cut_some`] has something to do.
    pub(super) fn truncate_after(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let in_files = self.index.remove_above(lsn, seq, CUT_AT_ONCE, ledger);
        self.remember(seq, lsn, in_files);
        self.truncated += 1;
        self.lost.iter_mut().for_each(|(lost_to, _)| *lost_to = lsn.min(*lost_to));
        // The index may have records above the LSN, which came after the truncation.
        let lost = self.lost.as_ref().map(|(lost_to, _)| *lost_to);
        self.ends.truncate_after(lsn, self.index.last().max(lost));
        self.index.cut_detached(0, ledger)
    }

    /// It has a record of this LSN, or had one when it was trimmed.
    pub(super) fn reach(&mut self, last: Lsn) {
        self.ends.reach(Some(last));
    }

    /// Adds a truncation to those that are remembered, unless it says nothing new, and forgets those that it makes needless.
    fn remember(&mut self, seq: SeqNo, lsn: Lsn, mut in_files: bool) {
        let covering = self.truncations.iter_mut().find(|t| t.seq >= seq && t.lsn <= lsn);
        if let Some(covering) = covering {
            covering.in_files |= in_files;
            return;
        }
        self.truncations.retain(|t| {
            let needless = t.seq <= seq && t.lsn >= lsn;
            in_files |= needless && t.in_files;
            !needless
        });
        let at = self.truncations.partition_point(|t| t.seq < seq);
        self.truncations.insert(at, Truncation { seq, lsn, in_files });
    }

    /// Forgets the truncations that nothing can come up for any more: all operations below `needed_from` are in the checkpoint and in
    /// the files, and in no group. True if some are left.
    pub(super) fn forget_truncations(&mut self, needed_from: SeqNo) -> bool {
        self.truncations.retain(|t| t.in_files || t.seq >= needed_from);
        self.truncations.shrink_to_fit();
        !self.truncations.is_empty()
    }

    pub(super) fn set_metadata(&mut self, seq: SeqNo, bytes: &[u8]) {
        if self.metadata.as_ref().is_none_or(|(there, _)| *there <= seq) {
            self.metadata = Some((seq, bytes.into()));
        }
    }

    /// What a file has of it, at open, before replay.
    pub(super) fn load(&mut self, part: Part, ledger: &mut Ledger) {
        self.index.load(part, ledger);
        for truncation in &mut self.truncations {
            truncation.in_files |=
                self.index.remove_above(truncation.lsn, truncation.seq, usize::MAX, ledger);
        }
        self.ends.reach_trimmed(self.index.last_below(self.trimmed_below));
        self.index.remove_below(self.trimmed_below, 0, usize::MAX, ledger);
        self.ends.reach(self.index.last());
    }

    pub(super) fn install(&mut self, ltn: u64, part: Option<Part>, ledger: &mut Ledger) {
        let whole = self.index.install(ltn, part, self.trimmed_below, ledger);
        self.note_files(whole);
    }

    /// See [`LogIndex::take_in`].
    pub(super) fn take_in(&mut self, ltn: u64, rows: &[Entry]) -> Option<bool> {
        self.index.take_in(ltn, rows)
    }

    pub(super) fn relocate(&mut self, inputs: &[(Source, Lsn)], part: Option<Part>, ledger: &mut Ledger) {
        let whole = self.index.relocate(inputs, part, self.trimmed_below, ledger);
        self.note_files(whole);
    }

    /// A file has come; `whole`, if nothing had died that it has. If it had, a truncation may be why.
    fn note_files(&mut self, whole: bool) {
        self.truncations.iter_mut().for_each(|t| t.in_files |= !whole);
    }

    /// Bytes it takes in memory, with its own size.
    pub fn memory_bytes(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, |(_, bytes)| bytes.len() + COUNTS);
        let truncations = self.truncations.capacity() * size_of::<Truncation>();
        size_of::<Log>() + self.name.len() + COUNTS + metadata + truncations + self.index.memory_bytes()
    }
}

/// Bytes of the two reference counts before what an `Arc` holds.
const COUNTS: usize = 2 * size_of::<usize>();
