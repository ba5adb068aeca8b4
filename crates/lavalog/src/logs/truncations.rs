//! The truncations that a log remembers.
//!
//! A truncation has the sequence of its operation. It takes the records above its LSN that came before it; later records may have
//! the same LSNs. It is remembered while a record may come up that it applies to. That is so in three cases: the operations before
//! it may be replayed; they are in a kept group, from which index rows may be made again; or a file has records that it took.
//!
//! Invariant: of two truncations the later one has the higher LSN. Otherwise the earlier one would say nothing more.

use crate::entry::Lsn;
use base::SeqNo;

/// Records above an LSN that came before a sequence are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Truncation {
    seq: SeqNo,
    lsn: Lsn,
    /// There may be a file that has records which it took.
    in_files: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Truncations {
    /// Sequences ascend.
    list: Vec<Truncation>,
    /// How many there were since the store was opened.
    applied: u64,
}

impl Truncations {
    /// The truncations of a log in a checkpoint.
    pub fn restore(saved: &[(SeqNo, Lsn)]) -> Truncations {
        let mut truncations = Truncations::default();
        saved.iter().for_each(|(seq, lsn)| truncations.remember(*seq, *lsn, false));
        truncations
    }

    /// What a checkpoint keeps of them.
    pub fn save(&self) -> Vec<(SeqNo, Lsn)> {
        self.list.iter().map(|t| (t.seq, t.lsn)).collect()
    }

    /// How many there were since the store was opened.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// True if one took what was appended with this LSN by an operation of this sequence.
    pub fn took(&self, lsn: Lsn, seq: SeqNo) -> bool {
        // Of those that came later, the first has the lowest LSN.
        let later = self.list.partition_point(|t| t.seq < seq);
        self.list.get(later).is_some_and(|t| lsn > t.lsn)
    }

    /// A truncation was applied. `in_files`: files have records that it took.
    pub fn add(&mut self, seq: SeqNo, lsn: Lsn, in_files: bool) {
        self.remember(seq, lsn, in_files);
        self.applied += 1;
    }

    /// Adds a truncation to those that are remembered, unless it says nothing new, and forgets those that it makes needless.
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

    /// A file came at open. `take` removes the file's records of a truncation, and returns true if there were any.
    pub fn take_from_file(&mut self, mut take: impl FnMut(Lsn, SeqNo) -> bool) {
        self.list.iter_mut().for_each(|t| t.in_files |= take(t.lsn, t.seq));
    }

    /// A file came of which some records are not alive; a truncation may be the reason.
    pub fn note_in_files(&mut self) {
        self.list.iter_mut().for_each(|t| t.in_files = true);
    }

    /// Forgets the truncations that nothing can come up for any more: all operations below `needed_from` are in the checkpoint and in
    /// the files, and in no group. True if some are left.
    pub fn forget(&mut self, needed_from: SeqNo) -> bool {
        self.list.retain(|t| t.in_files || t.seq >= needed_from);
        self.list.shrink_to_fit();
        !self.list.is_empty()
    }

    /// Bytes they have allocated, besides their own size.
    pub fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Truncation>()
    }
}
