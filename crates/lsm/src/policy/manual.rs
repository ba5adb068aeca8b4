//! `compact_range`: everything in a range goes down level by level, from the top.
//!
//! The walk keeps no files between steps, only how far it has come, so automatic compactions may go on beside it. A
//! file that moves ahead of the walk is compacted again with the level it has reached; data written after the walk
//! began is not chased. At the bottom only files with tombstones, or with versions that were kept for snapshots, are
//! rewritten, since nothing else is to be gained.
//! What a table that cannot be read keeps where it is ([`super::set_aside`]) is passed over.
//!
//! A walk that **rewrites** ([`ManualRange::rewriting`]) goes on at the bottom, where it has every table of the range written anew, one at a
//! time and in the order of keys, with the values that it references. All that was above lies there by then, so each is written once, under
//! the options of now. How far that has come is a key ([`ManualRange::rewritten_to`]): another walk may begin there, and a table whose job came to nothing
//! is taken again. Where the values of a table do not fit into the room, the table is cut first ([`ManualRange::cut`]).

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use base::{MAX_SEQ, key};
use version::{FileMeta, Version};

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
    /// What lies at the bottom is written anew.
    rewrites: bool,
    /// The table that is being rewritten, and what was done before it.
    under_way: Option<(u64, Option<Vec<u8>>)>,
    /// Tables rewritten.
    rewritten: u64,
    /// Cuts since the last table was rewritten.
    cuts: u32,
}

/// So often in a row a table may be cut: each time it stands for half as much at most, or cannot be cut.
const CUTS_MAX: u32 = 16;
/// A table that stands for less is not cut.
const CUT_BYTES_MIN: u64 = 64 << 10;

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
        ManualRange {
            low,
            high,
            seq_max: None,
            level: 0,
            done_to: None,
            rewrites: false,
            under_way: None,
            rewritten: 0,
            cuts: 0,
        }
    }

    /// The same, with all that lies at the bottom written anew.
    pub fn rewriting(self) -> Self {
        ManualRange { rewrites: true, ..self }
    }

    /// True if it rewrites what lies at the bottom.
    pub fn rewrites(&self) -> bool {
        self.rewrites
    }

    /// How many tables were rewritten.
    pub fn rewritten(&self) -> u64 {
        self.rewritten
    }

    /// The user key up to which, itself included, all is rewritten.
    pub fn rewritten_to(&self) -> Option<&[u8]> {
        let done_to =
            self.under_way.as_ref().map_or(self.done_to.as_deref(), |(_, before)| before.as_deref());
        done_to.filter(|_| self.rewritten > 0).map(key::user_key)
    }

    /// Tables that are still to be rewritten, and the bytes of them and of the values that they reference: as far as it can be told now.
    pub fn to_rewrite(&self, version: &Version) -> (u64, u64) {
        let Some(bottom) = version.deepest_level().filter(|bottom| *bottom > 0 && self.rewrites) else {
            return (0, 0);
        };
        let range = version.overlap_range(bottom, self.low.as_deref(), self.high.as_deref());
        let done = |f: &FileMeta| self.level > bottom || self.level == bottom && self.is_done(f);
        let left = version.files(bottom).get(range).unwrap_or_default().iter().filter(|f| !done(f));
        left.fold((0, 0), |(tables, bytes): (u64, u64), f| {
            (tables + 1, bytes.saturating_add(f.compensated()))
        })
    }

    fn is_done(&self, file: &FileMeta) -> bool {
        self.done_to.as_deref().is_some_and(|done| key::compare(&file.smallest, done).is_le())
    }

    /// The last step is over: the table that it rewrote is gone, or it came to nothing and is taken again.
    fn look_at_last(&mut self, version: &Version) {
        let Some((number, before)) = self.under_way.take() else { return };
        match version.files(self.level).iter().any(|f| f.number == number) {
            true => self.done_to = before,
            false => (self.rewritten, self.cuts) = (self.rewritten + 1, 0),
        }
    }

    /// Cuts the table that the last step is to rewrite, where there is room for outputs of so many bytes; the walk goes on with its
    /// first part. `None`: it is short, or cannot be cut, and the walk is as it was.
    pub fn cut(&mut self, compaction: &Compaction, room_bytes: u64) -> Option<Compaction> {
        // The output holds the values and the keys, which may be as long.
        let bytes = (room_bytes / 2).min(compaction.compensated_bytes() / 2);
        let (low, high) = compaction.key_range();
        if self.cuts == CUTS_MAX || bytes < CUT_BYTES_MIN || low == high {
            return None;
        }
        let (_, before) = self.under_way.take_if(|_| compaction.reason == Reason::Rewrite)?;
        (self.done_to, self.cuts) = (before, self.cuts + 1);
        Some(compaction.clone().cut(bytes))
    }

    /// What to do next, given how things are now.
    pub fn step(
        &mut self,
        facts: &Facts<'_>,
        moves: &dyn Moves,
        has_released: &dyn Fn(u64) -> bool,
    ) -> ManualStep {
        let version = facts.version;
        let newest = version.levels.iter().flatten().map(|f| f.seq_range().1).max().unwrap_or(MAX_SEQ);
        let seq_max = *self.seq_max.get_or_insert(newest);
        self.look_at_last(version);
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
            match self.next_file(version, bottom, has_released) {
                Some(i) if facts.is_barred(self.level, i, self.level < bottom) => {
                    self.done_to = version.files(self.level).get(i).map(|f| f.largest.clone());
                }
                Some(i) => {
                    let file = &version.files(self.level)[i];
                    let reason = if self.rewrites { Reason::Rewrite } else { Reason::Manual };
                    let pick = match self.level == bottom {
                        true => moves.in_place(self.level, vec![file.clone()], reason, Vec::new()),
                        false => moves.down(self.level, i, Reason::Manual),
                    };
                    if let Some(c) = &pick {
                        if c.reason == Reason::Rewrite {
                            self.under_way = Some((file.number, self.done_to.take()));
                        }
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
    fn next_file(
        &self,
        version: &Version,
        bottom: usize,
        has_released: &dyn Fn(u64) -> bool,
    ) -> Option<usize> {
        let range = version.overlap_range(self.level, self.low.as_deref(), self.high.as_deref());
        let files = version.files(self.level);
        range.into_iter().find(|&i| {
            let gains = || {
                let file = &files[i];
                file.tombstones > 0 || file.range_tombstones > 0 || has_released(file.number)
            };
            !self.is_done(&files[i]) && (self.level < bottom || self.rewrites || gains())
        })
    }
}

fn start_or_wait(pick: Option<Compaction>) -> ManualStep {
    pick.map_or(ManualStep::Wait, |c| ManualStep::Start(Box::new(c)))
}
