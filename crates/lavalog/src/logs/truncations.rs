//! The truncations that a log has to remember.
//!
//! A truncation has the sequence number of its operation. It removes the records above its LSN with
//! lower sequence numbers; later records may reuse these LSNs. It must be remembered while a record
//! that it removes may reappear. There are three cases: earlier operations may be replayed; they
//! are in a sealed group, from which index rows may be rebuilt; or a file has records that it
//! removed.
//!
//! Invariant: of two truncations the later one has the higher LSN. Otherwise the earlier one would
//! be redundant.

use crate::entry::Lsn;
use base::SeqNo;

/// Removes the records above an LSN with sequence numbers below its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Truncation {
    seq: SeqNo,
    lsn: Lsn,
    /// Whether a file may have records that this truncation removed.
    in_files: bool,
}

/// The truncations that a log has to remember.
#[derive(Clone, Debug, Default)]
pub(super) struct Truncations {
    /// In ascending order of sequence numbers.
    list: Vec<Truncation>,
    /// Number of truncations since the store was opened.
    applied: u64,
}

impl Truncations {
    /// Restores the truncations of a log from a checkpoint.
    pub fn restore(saved: &[(SeqNo, Lsn)]) -> Truncations {
        let mut truncations = Truncations::default();
        saved.iter().for_each(|(seq, lsn)| truncations.remember(*seq, *lsn, false));
        truncations
    }

    /// Returns the truncations for a checkpoint.
    pub fn save(&self) -> Vec<(SeqNo, Lsn)> {
        self.list.iter().map(|t| (t.seq, t.lsn)).collect()
    }

    /// Returns the number of truncations since the store was opened.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns true if a truncation removed the record of this LSN appended with this sequence
    /// number.
    pub fn took(&self, lsn: Lsn, seq: SeqNo) -> bool {
        // Of the later truncations, the first has the lowest LSN.
        let later = self.list.partition_point(|t| t.seq < seq);
        self.list.get(later).is_some_and(|t| lsn > t.lsn)
    }

    /// Adds a truncation. `in_files`: files have records that it removed.
    pub fn add(&mut self, seq: SeqNo, lsn: Lsn, in_files: bool) {
        self.remember(seq, lsn, in_files);
        self.applied += 1;
    }

    /// Remembers a truncation unless it is redundant, and drops those that it makes redundant.
    fn remember(&mut self, seq: SeqNo, lsn: Lsn, mut in_files: bool) {
        let covering = self.list.iter_mut().find(|t| t.seq >= seq && t.lsn <= lsn);
        if let Some(covering) = covering {
            covering.in_files |= in_files;
            return;
        }
        self.list.retain(|t| {
            let needless = t.seq <= seq && t.lsn >= lsn;
            in_files |= needless && t.in_files;
            !needless
        });
        let at = self.list.partition_point(|t| t.seq < seq);
        self.list.insert(at, Truncation { seq, lsn, in_files });
    }

    /// Notes a file at open. `take` removes the file's records that a truncation covers, and
    /// returns true if there were any.
    pub fn take_from_file(&mut self, mut take: impl FnMut(Lsn, SeqNo) -> bool) {
        self.list.iter_mut().for_each(|t| t.in_files |= take(t.lsn, t.seq));
    }

    /// Notes a file with dead records; a truncation may be the reason.
    pub fn note_in_files(&mut self) {
        self.list.iter_mut().for_each(|t| t.in_files = true);
    }

    /// Drops the truncations whose records cannot reappear. All operations below `needed_from` are
    /// in the checkpoint and the files, and in no replayable or sealed group. Returns true if some
    /// truncations remain.
    pub fn forget(&mut self, needed_from: SeqNo) -> bool {
        self.list.retain(|t| t.in_files || t.seq >= needed_from);
        self.list.shrink_to_fit();
        !self.list.is_empty()
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Truncation>()
    }
}
