//! A compaction: the result of a policy, and the input of a compaction job.

use std::sync::Arc;
use version::{FamilyId, FileMeta, Version};

/// Physical size up to which a file with separated values may exceed its target size. Creating,
/// opening and removing a file takes milliseconds, in which many references can be merged.
pub(super) const PHYSICAL_BYTES_GOOD: u64 = 1 << 20;

/// Reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Level 0 has too many files or bytes.
    L0Files,
    /// The base level is busy, so level 0 cannot be compacted into it. Its newest files are merged
    /// into one.
    L0Intra,
    /// A level is over its target.
    LevelBytes,
    /// Level 0 waits until its output level has spilled into the next level.
    Spill,
    /// Like `Spill`, but every candidate overlaps more of the next level than it should.
    PoorSpill,
    /// A manual compaction.
    Manual,
    /// A manual request to rewrite tables and values under the current options.
    Rewrite,
    /// A table that is to be rewritten has too many values for the free space, so it is split
    /// first.
    Cut,
    /// The store is idle, and the compaction frees more than it writes.
    Quiet,
    /// The store is at rest, and the compaction frees deleted data.
    Rest,
    /// Iterators skip many tombstones or old versions.
    Passed,
    /// Restores the key order of separated values.
    Relocation,
    /// Space is short, and the compaction may free some.
    Space,
    /// Writers are throttled for garbage, and the compaction exposes the most garbage.
    Exposes,
    /// Moves an unreadable table down, out of the way of newer data.
    SetAside,
}

/// A compaction, with all inputs of its job.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// Id of the family.
    pub family: FamilyId,
    /// Start level.
    pub level: usize,
    /// Output level.
    pub output_level: usize,
    /// Input files: those of `level`, then those of `output_level`, each in the order of its level.
    /// Levels without files are left out.
    pub inputs: Vec<(usize, Vec<Arc<FileMeta>>)>,
    /// Reason for the compaction.
    pub reason: Reason,
    /// True if the inputs can move to the output level without being rewritten.
    pub trivial_move: bool,
    /// Target size of an output, see [`super::Cutter`].
    pub file_bytes: u64,
    /// Maximum overlap of an output with the next level, see [`super::Cutter`].
    pub overlap_max: u64,
    /// True if `file_bytes` are compensated bytes.
    pub compensated: bool,
    /// vSSTs whose values the job rewrites, in key order, as it reads references to them.
    pub relocate_vssts: Vec<u64>,
    /// Location of the outputs.
    pub volume: u8,
}

impl Compaction {
    /// Returns every input with its level.
    pub fn input_files(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> + '_ {
        self.inputs.iter().flat_map(|(level, files)| files.iter().map(move |f| (*level, f)))
    }

    /// Returns the physical bytes of the inputs.
    pub fn input_bytes(&self) -> u64 {
        self.input_files().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.len))
    }

    /// Returns the compensated bytes of the inputs.
    pub fn compensated_bytes(&self) -> u64 {
        self.input_files().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.compensated()))
    }

    /// Returns a compaction of the same inputs that splits them into tables of about `bytes`
    /// compensated bytes. Values stay where they are.
    pub fn cut(self, bytes: u64) -> Compaction {
        Compaction { reason: Reason::Cut, file_bytes: bytes, compensated: true, ..self }
    }

    /// Returns the smallest and the largest user key of the inputs, which bound the outputs.
    pub fn key_range(&self) -> (&[u8], &[u8]) {
        let low = self.input_files().map(|(_, f)| f.smallest_user_key()).min();
        let high = self.input_files().map(|(_, f)| f.largest_user_key()).max();
        (low.unwrap_or_default(), high.unwrap_or_default())
    }

    /// Returns true if the compaction could still be picked from `version`: its inputs are where
    /// they were, and the output level has no other file within their range. For compactions that
    /// were deferred after the pick.
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

    /// Returns the approximate maximum length of an output, in physical bytes, for reserving space
    /// on the device. With separated values this is a small part of `file_bytes`.
    pub fn expected_output_len(&self) -> u64 {
        let inputs = self.input_bytes();
        if !self.compensated {
            return inputs.min(self.file_bytes);
        }
        let compensated: u128 = self.input_files().map(|(_, f)| u128::from(f.compensated())).sum();
        let part = u128::from(self.file_bytes) * u128::from(inputs) / compensated.max(1);
        let longest = self.file_bytes.min(inputs);
        u64::try_from(part).unwrap_or(u64::MAX).max(PHYSICAL_BYTES_GOOD).min(longest)
    }
}
