//! A compaction: what a policy hands to the job that carries it out.

use std::sync::Arc;
use version::{FamilyId, FileMeta, Version};

/// Up to this many physical bytes a file with separated values may stand for more than its part: to make, to open and to remove a file
/// takes milliseconds, in which many references are merged.
pub(super) const PHYSICAL_BYTES_GOOD: u64 = 1 << 20;

/// Why a compaction was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Level 0 has too many files or bytes.
    L0Files,
    /// Level 0 cannot go down now, because the base level is busy: its newest files become one.
    L0Intra,
    /// A level is over its target.
    LevelBytes,
    /// Level 0 cannot go down before its output level has sent something on.
    Spill,
    /// The same, and whatever could go meets more below it than it should.
    PoorSpill,
    /// Somebody asked for it.
    Manual,
    /// Somebody asked for tables and values to be written anew, under the options of now.
    Rewrite,
    /// A table is to be written anew, and its values are too long for the room: it is cut first.
    Cut,
    /// Nobody writes, and it frees more than it writes.
    Quiet,
    /// The store is at rest, and it frees deleted data.
    Rest,
    /// Iterators pass many tombstones or old versions.
    Passed,
    /// Values are to lie in the order of their keys again.
    Relocation,
    /// Room is short, and it may free some.
    Space,
    /// Writers pay for garbage, and it brings most of what is hidden to light.
    Exposes,
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
    /// Where outputs end, see [`super::Cutter`].
    pub file_bytes: u64,
    /// Where outputs end, see [`super::Cutter`].
    pub overlap_max: u64,
    /// `file_bytes` are compensated bytes.
    pub compensated: bool,
    /// vSSTs whose values the job writes anew, in key order, as it meets references to them.
    pub relocate_vssts: Vec<u64>,
    /// The location of its outputs.
    pub volume: u8,
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

    /// The values of the inputs with what else they stand for, bytes.
    pub fn compensated_bytes(&self) -> u64 {
        self.input_files().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.compensated()))
    }

    /// The same inputs, cut into tables that stand for about so many bytes. Values stay where they are.
    pub fn cut(self, bytes: u64) -> Compaction {
        Compaction { reason: Reason::Cut, file_bytes: bytes, compensated: true, ..self }
    }

    /// The smallest and the largest user key of the inputs: the outputs lie between them.
    pub fn key_range(&self) -> (&[u8], &[u8]) {
        let low = self.input_files().map(|(_, f)| f.smallest_user_key()).min();
        let high = self.input_files().map(|(_, f)| f.largest_user_key()).max();
        (low.unwrap_or_default(), high.unwrap_or_default())
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

    /// About how long an output will be at most, physical bytes: what is worth reserving on the device. Where values are
    /// separated that is a small part of `file_bytes`.
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
