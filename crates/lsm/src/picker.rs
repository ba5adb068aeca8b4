//! Which files to compact next: pure functions of a version, the options and what is running.
//!
//! The policy is *leveled* compaction in RocksDB's shape (Dong et al., "Optimizing Space Amplification in RocksDB",
//! CIDR 2017): level 0 collects flushed files, the deepest level holds most of the data, and the targets of the levels
//! between follow from the size of the deepest one, so that the levels above it hold about a ninth of its bytes whatever
//! the size of the store. Level 0 is compacted into the *base level*, the first one that has a target.
//!
//! Sizes that decide the shape (targets, scores, which file goes first, debt) are compensated bytes, as Scavenger+
//! has it: values kept elsewhere count as if they were inline, and tombstones as what they hide. Sizes that limit a
//! job's input and output (overlap, widest job) are physical.
//!
//! * [`leveled`]: targets, scores, automatic picks.
//! * [`manual`]: the walk of `compact_range`.
//! * [`quiet`]: what is worth compacting when nobody writes.
//! * [`rebuild`]: values back into the order of their keys.
//! * [`space`]: picks where room is short; `gain`: what they bring.
//! * [`set_aside`]: what tables that cannot be read keep where it is.
//! * [`cutter`]: where the outputs of a compaction end.
//!
//! What keeps concurrent compactions of one family from treading on each other is in [`InProgress`].

use base::HashSet;
use base::limits::LEVELS_MAX;
use std::sync::Arc;
use version::{FamilyId, FileMeta, Version};

pub mod cutter;
mod gain;
pub mod leveled;
pub mod manual;
pub mod quiet;
pub mod rebuild;
pub mod set_aside;
pub mod space;

pub use cutter::Cutter;
pub use leveled::{
    L0Load, LevelTargets, debt_bytes, l0_load, l0_wants_compaction, level_targets, pick, pick_l0, scores,
    usual_width_bytes,
};
pub use manual::{ManualRange, ManualStep};
pub use quiet::pick_quiet;
pub use rebuild::{Rebuild, RebuildOptions, RebuildStep};
pub use set_aside::SetAside;
pub use space::{Need, pick_for_space, pick_rewrite};

/// Which file of a level goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileChoice {
    /// The one with the largest compensated size: it brings the level nearer to its target, and carries the most
    /// garbage where tombstones and separated values are.
    LargestCompensated,
    /// The one whose merge writes least for what it moves: physical bytes of it and of what it meets below, over its
    /// compensated bytes.
    #[default]
    MinOverlap,
}

/// The options of leveled compaction.
#[derive(Clone, Debug)]
pub struct LeveledOptions {
    /// Files in level 0 that start a compaction.
    pub l0_compaction_files: usize,
    /// Compensated bytes in level 0 that start one however few the files are.
    pub l0_compaction_bytes: u64,
    /// The largest target of the base level, compensated bytes.
    pub level_base_bytes: u64,
    /// How much larger each level is than the one above.
    pub level_multiplier: u64,
    /// Levels in use, level 0 included.
    pub levels: usize,
    /// The size of output files, compensated bytes.
    pub file_bytes: u64,
    /// An output ends when it meets as much as this many full tables in the level below its own, physical bytes.
    pub overlap_ratio_max: u64,
    /// Level 0, merges within it and walks are not widened beyond this many physical input bytes. 0: 25 times `file_bytes`.
    /// A file of a deeper level takes neighbours along up to `overlap_ratio_max` and two full tables, if that is less.
    pub compaction_bytes_max: u64,
    /// Which file of a level goes first.
    pub choice: FileChoice,
    /// Sizes that decide the shape are compensated bytes. False: physical bytes everywhere, for measuring.
    pub compensated: bool,
    /// The location of new files, by level.
    pub placement: [u8; LEVELS_MAX],
    /// Tables that cannot be read.
    pub set_aside: Arc<SetAside>,
}

impl Default for LeveledOptions {
    fn default() -> Self {
        LeveledOptions {
            l0_compaction_files: 4,
            l0_compaction_bytes: 256 << 20,
            level_base_bytes: 64 << 20,
            level_multiplier: 10,
            levels: LEVELS_MAX,
            file_bytes: 16 << 20,
            overlap_ratio_max: 10,
            compaction_bytes_max: 0,
            choice: FileChoice::default(),
            compensated: true,
            placement: [0; LEVELS_MAX],
            set_aside: Arc::default(),
        }
    }
}

impl LeveledOptions {
    /// The deepest level.
    pub(crate) fn last_level(&self) -> usize {
        self.levels.clamp(2, LEVELS_MAX) - 1
    }

    /// What a table counts for the shape of the tree.
    pub(crate) fn size_of(&self, file: &FileMeta) -> u64 {
        if self.compensated { file.compensated() } else { file.len }
    }

    /// What a level counts for the shape of the tree.
    pub(crate) fn level_size(&self, version: &Version, level: usize) -> u64 {
        if self.compensated { version.level_compensated_bytes(level) } else { version.level_bytes(level) }
    }

    pub(crate) fn widest_bytes(&self) -> u64 {
        match self.compaction_bytes_max {
            0 => self.file_bytes.saturating_mul(25),
            bytes => bytes,
        }
    }

    /// About how long a table of a level is that has its size, physical bytes. Where values are separated it is a small
    /// part of `file_bytes`.
    pub(crate) fn table_bytes(&self, version: &Version, level: usize) -> u64 {
        let (files, tables) = (version.files(level), version.level_bytes(level));
        if !self.compensated || files.is_empty() {
            return self.file_bytes;
        }
        let stands_for = u128::from(version.level_compensated_bytes(level).max(1));
        let part = u128::from(self.file_bytes) * u128::from(tables) / stands_for;
        let least = cutter::PHYSICAL_BYTES_GOOD.min(self.file_bytes);
        u64::try_from(part).unwrap_or(u64::MAX).clamp(least, self.file_bytes)
    }

    /// As much as a table of a level should meet in the next level, physical bytes.
    pub(crate) fn overlap_max(&self, version: &Version, level: usize) -> u64 {
        self.table_bytes(version, level + 1).saturating_mul(self.overlap_ratio_max)
    }
}

/// Why a compaction was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Level 0 has too many files or bytes.
    L0Files,
    /// Level 0 cannot go down now, because the base level is busy: its newest files become one.
    L0Intra,
    /// A level is over its target.
    LevelBytes,
    /// Somebody asked for it.
    Manual,
    /// Nobody writes, and it frees more than it writes.
    Quiet,
    /// Values are to lie in the order of their keys again.
    Rebuild,
    /// Room is short, and it may free some.
    Space,
    /// A table that cannot be read makes room for what is newer.
    SetAside,
}

/// A compaction: everything a job needs to know.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The family.
    pub family: FamilyId,
    /// The level it starts from.
    pub level: usize,
    /// The level its outputs go to.
    pub output_level: usize,
    /// Its inputs: the files of `level`, then those of `output_level`, each in the order of its level; lists without
    /// files are left out.
    pub inputs: Vec<(usize, Vec<Arc<FileMeta>>)>,
    /// Why.
    pub reason: Reason,
    /// True if the inputs can change their level as they are.
    pub trivial_move: bool,
    /// Where outputs end, see [`Compaction::cutter`].
    pub file_bytes: u64,
    /// Where outputs end, see [`Compaction::cutter`].
    pub overlap_max: u64,
    /// `file_bytes` are compensated bytes.
    pub compensated: bool,
    /// vSSTs whose values the job writes anew, in key order, as it meets references to them.
    pub rebuild_vssts: Vec<u64>,
    /// The location of its outputs.
    pub placement: u8,
}

impl Compaction {
    /// Every input with its level.
    pub fn input_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> + '_ {
        self.inputs.iter().flat_map(|(level, files)| files.iter().map(move |f| (*level, f)))
    }

    /// Physical bytes of the inputs.
    pub fn input_bytes(&self) -> u64 {
        self.input_files().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.len))
    }

    /// The smallest and the largest user key of the inputs: the outputs lie between them.
    pub fn key_range(&self) -> (&[u8], &[u8]) {
        let low = self.input_files().map(|(_, f)| f.smallest_user_key()).min();
        let high = self.input_files().map(|(_, f)| f.largest_user_key()).max();
        (low.unwrap_or_default(), high.unwrap_or_default())
    }

    /// Decides where the outputs end; `version` is the one the compaction was picked from.
    pub fn cutter(&self, version: &Version) -> Cutter {
        Cutter::new(self, version)
    }

    /// True if the compaction could still be picked from `version`: its inputs are where they were, and the output
    /// level has nothing else within their range. For compactions that were held back after they were picked.
    pub fn is_current(&self, version: &Version) -> bool {
        let (low, high) = self.key_range();
        let there =
            |(level, f): (usize, &Arc<FileMeta>)| version.files(level).iter().any(|g| g.number == f.number);
        let listed = |f: &Arc<FileMeta>| {
            self.input_files().any(|(level, g)| level == self.output_level && g.number == f.number)
        };
        let below = self.output_level;
        let same = below == 0
            || version.files(below)[version.overlap_range(below, Some(low), Some(high))].iter().all(listed);
        same && self.input_files().all(there)
    }
}

/// What running compactions of a family hold.
///
/// A new compaction may start if it shares no input with a running one, if no running one writes to the same level
/// within its key range, and, when it takes level 0 down, if no other one does: two of those could reach different
/// levels in the wrong order of age. That is enough, because a compaction takes every file of the output level that
/// lies within its range.
#[derive(Clone, Debug, Default)]
pub struct InProgress {
    files: HashSet<u64>,
    vssts: HashSet<u64>,
    outputs: Vec<Output>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Output {
    from: usize,
    level: usize,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl Output {
    fn of(c: &Compaction) -> Self {
        let (low, high) = c.key_range();
        Output { from: c.level, level: c.output_level, low: low.to_vec(), high: high.to_vec() }
    }
}

impl InProgress {
    /// A compaction starts.
    ///
    /// # Panics
    /// If it is not [allowed](InProgress::allows).
    pub fn add(&mut self, compaction: &Compaction) {
        assert!(self.allows(compaction), "a compaction that meets a running one");
        self.files.extend(compaction.input_files().map(|(_, f)| f.number));
        self.vssts.extend(&compaction.rebuild_vssts);
        self.outputs.push(Output::of(compaction));
    }

    /// A compaction has ended, whatever its outcome.
    pub fn remove(&mut self, compaction: &Compaction) {
        compaction.input_files().for_each(|(_, f)| {
            self.files.remove(&f.number);
        });
        compaction.rebuild_vssts.iter().for_each(|n| {
            self.vssts.remove(n);
        });
        let output = Output::of(compaction);
        if let Some(i) = self.outputs.iter().position(|o| *o == output) {
            self.outputs.swap_remove(i);
        }
    }

    /// True if the compaction may run beside those that do.
    pub fn allows(&self, c: &Compaction) -> bool {
        let (low, high) = c.key_range();
        let writes_here =
            |o: &Output| o.level == c.output_level && o.low.as_slice() <= high && low <= o.high.as_slice();
        let takes_l0_down = c.level == 0 && c.output_level > 0;
        let meets = c.input_files().any(|(_, f)| self.has_file(f.number))
            || c.rebuild_vssts.iter().any(|n| self.has_vsst(*n))
            || takes_l0_down && self.l0_goes_down()
            || c.output_level > 0 && self.outputs.iter().any(writes_here);
        !meets
    }

    /// True if a running compaction reads this table.
    pub fn has_file(&self, number: u64) -> bool {
        self.files.contains(&number)
    }

    /// True if a running job rewrites this vSST. Garbage collection registers its inputs here as well.
    pub fn has_vsst(&self, number: u64) -> bool {
        self.vssts.contains(&number)
    }

    /// Garbage collection begins to rewrite a vSST; false if a running job does already.
    pub fn claim_vsst(&mut self, number: u64) -> bool {
        self.vssts.insert(number)
    }

    /// Garbage collection has ended.
    pub fn release_vsst(&mut self, number: u64) {
        self.vssts.remove(&number);
    }

    /// True if nothing runs.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.vssts.is_empty() && self.outputs.is_empty()
    }

    fn l0_goes_down(&self) -> bool {
        self.outputs.iter().any(|o| o.from == 0 && o.level > 0)
    }
}

#[cfg(test)]
mod tests;
