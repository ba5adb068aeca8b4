//! Parameters of leveled compaction, and the sizes derived from them.

use crate::policy::compaction::PHYSICAL_BYTES_GOOD;
use base::limits::LEVELS_MAX;
use version::{FileMeta, Version};

/// Order in which the files of a level are compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileChoice {
    /// The file with the largest compensated size first: it brings the level nearer to its target,
    /// and has the most garbage if it has tombstones or separated values.
    LargestCompensated,
    /// The file whose merge writes least for the data that it moves first: physical bytes of the
    /// file and its overlap below, divided by its compensated bytes.
    #[default]
    MinOverlap,
}

/// Leveled compaction with its parameters.
#[derive(Clone, Debug)]
pub struct Leveled {
    /// Number of files in level 0 that starts a compaction.
    pub l0_compaction_files: usize,
    /// Compensated bytes in level 0 that start a compaction, however few the files are.
    pub l0_compaction_bytes: u64,
    /// Maximum target of the base level, in compensated bytes.
    pub level_base_bytes: u64,
    /// Ratio of the sizes of adjacent levels.
    pub level_multiplier: u64,
    /// Number of levels in use, level 0 included.
    pub levels: usize,
    /// Target size of output files, in compensated bytes.
    pub file_bytes: u64,
    /// Number of full tables of the next level; an output that overlaps that many physical bytes
    /// ends.
    pub overlap_ratio_max: u64,
    /// Maximum physical input bytes to which compactions of level 0, merges within it and shared
    /// picks are widened. 0: 25 times `file_bytes`. A file of a deeper level takes neighbors along
    /// up to `overlap_ratio_max` and two full tables, if that is less.
    pub compaction_bytes_max: u64,
    /// Order in which the files of a level are compacted.
    pub choice: FileChoice,
    /// Whether sizes that decide the shape are compensated bytes. False: physical bytes everywhere,
    /// for measuring.
    pub compensated: bool,
    /// Location of new files, by level.
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
    /// Returns the deepest level.
    pub(crate) fn last_level(&self) -> usize {
        self.levels.clamp(2, LEVELS_MAX) - 1
    }

    /// Returns the size of a table for the shape of the tree.
    pub(crate) fn size_of(&self, file: &FileMeta) -> u64 {
        if self.compensated { file.compensated() } else { file.len }
    }

    /// Returns the size of a level for the shape of the tree.
    pub(crate) fn level_size(&self, version: &Version, level: usize) -> u64 {
        if self.compensated { version.level_compensated_bytes(level) } else { version.level_bytes(level) }
    }

    pub(crate) fn widest_bytes(&self) -> u64 {
        match self.compaction_bytes_max {
            0 => self.file_bytes.saturating_mul(25),
            bytes => bytes,
        }
    }

    /// Returns the approximate physical length of a full table of a level. With separated values it
    /// is a small part of `file_bytes`.
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

    /// Returns the maximum overlap of a table of `level` with the next level, in physical bytes.
    pub(crate) fn overlap_max(&self, version: &Version, level: usize) -> u64 {
        self.table_bytes(version, level + 1).saturating_mul(self.overlap_ratio_max)
    }
}
