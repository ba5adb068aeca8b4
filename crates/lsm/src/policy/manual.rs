//! `compact_range`: everything in a range goes down level by level, from the top.
//!
//! The walk keeps no files between steps, only how far it has come, so automatic compactions may go on beside it. A
//! file that moves ahead of the walk is compacted again with the level it has reached; data written after the walk
//! began is not chased. At the bottom only files with tombstones are rewritten, since nothing else is to be gained.
//! What a table that cannot be read keeps where it is ([`super::set_aside`]) is passed over.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use base::{MAX_SEQ, key};
use version::Version;

/// A `compact_range` under way.
#[derive(Clone, Debug)]
pub struct ManualRange {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    /// Files of level 0 that are newer are left alone. Set by the first step.
    seq_max: Option<u64>,
    level: usize,
    /// The largest internal key that is done at `level`.
    done_to: Option<Vec<u8>>,
}

/// What is next.
#[derive(Clone, Debug)]
pub enum ManualStep {
    /// Start this compaction, and ask again once it has ended. If it is not started the walk goes on without it.
    Start(Box<Compaction>),
    /// A running compaction is in the way: ask again when one has ended.
    Wait,
    /// All is done.
    Done,
}

impl ManualRange {
    /// The user keys from `start` to `end`, both included; `None`: no border.
    pub fn new(start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let (low, high) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        ManualRange { low, high, seq_max: None, level: 0, done_to: None }
    }

    /// What to do next, given how things are now.
    pub fn step(&mut self, facts: &Facts<'_>, moves: &dyn Moves) -> ManualStep {
        let version = facts.version;
        let newest = version.levels.iter().flatten().map(|f| f.seq_range().1).max().unwrap_or(MAX_SEQ);
        let seq_max = *self.seq_max.get_or_insert(newest);
        loop {
            let bottom = version.deepest_level().unwrap_or(0);
            if self.level > bottom {
                return ManualStep::Done;
            }
            if self.level == 0 {
                let files = version.overlapping(0, self.low.as_deref(), self.high.as_deref());
                let mut old = files.iter().rev().filter(|f| f.seq_range().0 <= seq_max && !moves.stays(f));
                match old.next() {
                    Some(oldest) => return start_or_wait(moves.level_0(oldest, Reason::Manual, seq_max)),
                    None => self.level = 1,
                }
                continue;
            }
            match self.next_file(version, bottom) {
                Some(i) if facts.is_barred(self.level, i, self.level < bottom) => {
                    self.done_to = version.files(self.level).get(i).map(|f| f.largest.clone());
                }
                Some(i) => {
                    let pick = match self.level == bottom {
                        true => {
                            let file = version.files(self.level)[i].clone();
                            moves.in_place(self.level, vec![file], Reason::Manual, Vec::new())
                        }
                        false => moves.down(self.level, i, Reason::Manual),
                    };
                    if let Some(c) = &pick {
                        let upper = c.inputs.first().and_then(|(_, files)| files.last());
                        self.done_to = upper.map(|f| f.largest.clone());
                    }
                    return start_or_wait(pick);
                }
                None => (self.level, self.done_to) = (self.level + 1, None),
            }
        }
    }

    /// The next file of the level to be compacted.
    fn next_file(&self, version: &Version, bottom: usize) -> Option<usize> {
        let range = version.overlap_range(self.level, self.low.as_deref(), self.high.as_deref());
        let files = version.files(self.level);
        range.into_iter().find(|&i| {
            let fresh =
                self.done_to.as_deref().is_none_or(|done| key::compare(&files[i].smallest, done).is_gt());
            let has_tombstones = files[i].tombstones > 0 || files[i].range_tombstones > 0;
            fresh && (self.level < bottom || has_tombstones)
        })
    }
}

fn start_or_wait(pick: Option<Compaction>) -> ManualStep {
    pick.map_or(ManualStep::Wait, |c| ManualStep::Start(Box::new(c)))
}
