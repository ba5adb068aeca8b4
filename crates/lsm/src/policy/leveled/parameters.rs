//! What leveled compaction can be told, and the sizes that follow from it.

use crate::policy::compaction::PHYSICAL_BYTES_GOOD;
use base::limits::LEVELS_MAX;
use version::{FileMeta, Version};

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

/// Leveled compaction with its parameters.
#[derive(Clone, Debug)]
pub struct Leveled {
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
    pub volume: [u8; LEVELS_MAX],
}

impl Default for Leveled {
    fn default() -> Self {
        Leveled {
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
            volume: [0; LEVELS_MAX],
        }
    }
}

impl Leveled {
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
        let least = PHYSICAL_BYTES_GOOD.min(self.file_bytes);
        u64::try_from(part).unwrap_or(u64::MAX).clamp(least, self.file_bytes)
    }

    /// As much as a table of a level should meet in the next level, physical bytes.
    pub(crate) fn overlap_max(&self, version: &Version, level: usize) -> u64 {
        self.table_bytes(version, level + 1).saturating_mul(self.overlap_ratio_max)
    }
}
