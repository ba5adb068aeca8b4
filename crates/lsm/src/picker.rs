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

use base::limits::LEVELS_MAX;
use std::sync::Arc;
use version::{FileMeta, Version};

pub mod leveled;
pub mod manual;
pub mod quiet;
pub mod rebuild;
pub mod set_aside;
pub mod space;

pub use crate::policy::{Compaction, FileChoice, InProgress, Reason, SetAside};
pub use leveled::{
    L0Load, LevelTargets, debt_bytes, l0_load, l0_wants_compaction, level_targets, pick, pick_l0, scores,
    usual_width_bytes,
};
pub use manual::{ManualRange, ManualStep};
pub use quiet::pick_quiet;
pub use rebuild::{Rebuild, RebuildOptions, RebuildStep};
pub use space::{Need, pick_for_space, pick_rewrite};

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
        let least = crate::policy::compaction::PHYSICAL_BYTES_GOOD.min(self.file_bytes);
        u64::try_from(part).unwrap_or(u64::MAX).clamp(least, self.file_bytes)
    }

    /// As much as a table of a level should meet in the next level, physical bytes.
    pub(crate) fn overlap_max(&self, version: &Version, level: usize) -> u64 {
        self.table_bytes(version, level + 1).saturating_mul(self.overlap_ratio_max)
    }
}
