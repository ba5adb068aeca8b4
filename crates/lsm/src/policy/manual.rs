//! `compact_range`: compacts all data of a range down level by level, from the top.
//!
//! The walk keeps no files between steps, only its position, so automatic compactions may go on
//! beside it. A file that moves ahead of the walk is compacted again with the level that it
//! reached. Data written after the walk began is not chased. At the bottom the walk rewrites only
//! files with tombstones, or with versions that were kept for snapshots. Files held in place by an
//! unreadable table ([`super::set_aside`]) are skipped.
//!
//! A walk that **rewrites** ([`ManualRange::rewriting`]) continues at the bottom. There it rewrites
//! every table of the range, one at a time and in key order, with the values that it references.
//! All data from above is there by then, so each entry is written once under the current options.
//! The progress is a key ([`ManualRange::rewritten_to`]), from which another walk may continue. A
//! table whose job failed is taken again. If the values of a table do not fit into the free space,
//! the table is cut first ([`ManualRange::cut`]).

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use base::{MAX_SEQ, key};
use version::{FileMeta, Version};

/// A `compact_range` in progress.
#[derive(Clone, Debug)]
pub struct ManualRange {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    /// Sequence above which files of level 0 are skipped. Set by the first step.
    seq_max: Option<u64>,
    level: usize,
    /// Largest internal key that is done at `level`.
    done_to: Option<Vec<u8>>,
    /// Whether to rewrite the tables at the bottom.
    rewrites: bool,
    /// The table being rewritten, and the value of `done_to` before it.
    under_way: Option<(u64, Option<Vec<u8>>)>,
    /// Number of tables rewritten.
    rewritten: u64,
    /// Number of cuts since the last table was rewritten.
    cuts: u32,
}

/// Maximum number of consecutive cuts of a table. Each cut at least halves its size, or is not
/// possible.
const CUTS_MAX: u32 = 16;
/// Minimum compensated size of a cut output; smaller tables are not cut.
const CUT_BYTES_MIN: u64 = 64 << 10;

/// Next step of a walk.
#[derive(Clone, Debug)]
pub enum ManualStep {
    /// Start this compaction, and call again once it has ended. If it is not started, the walk
    /// continues without it.
    Start(Box<Compaction>),
    /// A running compaction is in the way: call again when one has ended.
    Wait,
    /// The walk is complete.
    Done,
}

impl ManualRange {
    /// Returns a walk over the user keys from `start` to `end`, both included; `None`: unbounded.
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

    /// Makes the walk rewrite all tables at the bottom.
    pub fn rewriting(self) -> Self {
        ManualRange { rewrites: true, ..self }
    }

    /// Returns true if the walk rewrites the tables at the bottom.
    pub fn rewrites(&self) -> bool {
        self.rewrites
    }

    /// Returns the number of tables rewritten.
    pub fn rewritten(&self) -> u64 {
        self.rewritten
    }

    /// Returns the last user key of the rewritten range.
    pub fn rewritten_to(&self) -> Option<&[u8]> {
        let done_to =
            self.under_way.as_ref().map_or(self.done_to.as_deref(), |(_, before)| before.as_deref());
        done_to.filter(|_| self.rewritten > 0).map(key::user_key)
    }

    /// Returns the number of tables still to be rewritten, and their bytes including referenced
    /// values, as an estimate.
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

    /// Evaluates the last step: its table is gone, or the job failed and the table is taken again.
    fn look_at_last(&mut self, version: &Version) {
        let Some((number, before)) = self.under_way.take() else { return };
        match version.files(self.level).iter().any(|f| f.number == number) {
            true => self.done_to = before,
            false => (self.rewritten, self.cuts) = (self.rewritten + 1, 0),
        }
    }

    /// Returns a cut of the table that the last step is to rewrite, with outputs that need at most
    /// `room_bytes`. The walk continues with the first part. Returns `None`, and leaves the walk
    /// unchanged, if the table is short or cannot be cut.
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

    /// Returns the next step for the current tree.
    pub fn step(
        &mut self,
        facts: &PickInputs<'_>,
        moves: &dyn SingleFileCompactions,
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

    /// Returns the next file of the level to compact.
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
