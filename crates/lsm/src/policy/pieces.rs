//! Splits a compaction into pieces that threads merge in parallel.
//!
//! A piece is a range of user keys: it has all versions of a key, and range tombstones are clipped
//! at its ends ([`MergeOptions::lower`](crate::MergeOptions)). Every decision of a merge depends on
//! one key, so the pieces together write the same entries as one merge. Exceptions are the tables
//! that end at a cut, and range tombstones: where older data lies under one piece only, the other
//! piece keeps nothing of them. Pieces may begin at different times, each with the snapshots of its
//! own start: a version that a later piece drops has no reader any more. Meanwhile older data can
//! only have moved further down.
//!
//! Cuts are made where tables begin, so that no table below is overlapped by two outputs. If the
//! output level is the first level in use, the cuts follow the level under it, whose overlap
//! decides where outputs end. Otherwise they follow the output level, whose tables are then read by
//! one piece each. If that level has too few tables, the cuts follow all input tables.
//!
//! A piece should yield at least two tables, and never less than one: the table that ends at a cut
//! is shorter than the target, and should stay rare. The bytes between two cuts are estimated by
//! spreading each table evenly over the cuts within its range.

use super::compaction::{Compaction, PHYSICAL_BYTES_GOOD, Reason};
use std::sync::Arc;
use version::{FileMeta, Version};

/// Minimum number of output tables of a piece.
const TABLES_MIN: u64 = 2;

/// Input bytes before a cut, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes {
    /// Size that decides where tables end: compensated or physical.
    size: u64,
    physical: u64,
}

impl Bytes {
    fn of(compaction: &Compaction, file: &FileMeta) -> Bytes {
        Bytes { size: if compaction.compensated { file.compensated() } else { file.len }, physical: file.len }
    }

    /// Returns the minimum size of a piece.
    fn worth_one(compaction: &Compaction) -> Bytes {
        let table = compaction.file_bytes.max(1);
        let physical = if compaction.compensated { PHYSICAL_BYTES_GOOD.min(table / 4) } else { table };
        Bytes { size: table.saturating_mul(TABLES_MIN), physical: physical.saturating_mul(TABLES_MIN).max(1) }
    }

    fn and(self, more: Bytes) -> Bytes {
        let size = self.size.saturating_add(more.size);
        Bytes { size, physical: self.physical.saturating_add(more.physical) }
    }

    fn without(self, less: Bytes) -> Bytes {
        Bytes {
            size: self.size.saturating_sub(less.size),
            physical: self.physical.saturating_sub(less.physical),
        }
    }

    fn part(self, of: usize) -> Bytes {
        let of = of.max(1) as u64;
        Bytes { size: self.size / of, physical: self.physical / of }
    }

    fn has(self, least: Bytes) -> bool {
        self.size >= least.size && self.physical >= least.physical
    }
}

/// Returns the user keys at which to cut `compaction`, ascending, into at most `pieces_max` pieces,
/// none of which is small. Returns none if a cut is not possible or not worthwhile. `version` is
/// the one from which it was picked.
pub fn cuts(compaction: &Compaction, version: &Version, pieces_max: usize) -> Vec<Vec<u8>> {
    // Reads search level 0 file by file, so one file is better than several. Relocation writes
    // values in the order of all keys.
    let is_whole = compaction.trivial_move
        || compaction.output_level == 0
        || compaction.reason == Reason::Relocation
        || !compaction.relocate_vssts.is_empty();
    if is_whole || pieces_max < 2 {
        return Vec::new();
    }
    let output = compaction.output_level;
    let is_first = (1..output).all(|level| version.files(level).is_empty());
    let decides = if is_first { output + 1 } else { output };
    let (low, high) = compaction.key_range();
    let there = version.files(decides).get(version.overlap_range(decides, Some(low), Some(high)));
    let cuts = cut_at(compaction, there.unwrap_or_default().iter(), pieces_max);
    if !cuts.is_empty() {
        return cuts;
    }
    cut_at(compaction, compaction.input_files().map(|(_, f)| f), pieces_max)
}

/// Returns the cuts among the first keys of these tables.
fn cut_at<'a>(
    compaction: &'a Compaction,
    tables: impl Iterator<Item = &'a Arc<FileMeta>>,
    pieces_max: usize,
) -> Vec<Vec<u8>> {
    let (low, high) = compaction.key_range();
    let mut places: Vec<&[u8]> =
        tables.map(|f| f.smallest_user_key()).filter(|&key| low < key && key <= high).collect();
    places.sort_unstable();
    places.dedup();
    let before = bytes_before(compaction, &places);
    let all =
        compaction.input_files().map(|(_, f)| Bytes::of(compaction, f)).fold(Bytes::default(), Bytes::and);
    let worth_one = Bytes::worth_one(compaction);
    let fit = (all.size / worth_one.size).min(all.physical / worth_one.physical);
    let least = worth_one.part(TABLES_MIN as usize);
    let pieces = usize::try_from(fit).unwrap_or(usize::MAX).min(pieces_max);
    let (mut cuts, mut last) = (Vec::new(), Bytes::default());
    for nth in 1..pieces {
        let ideal = all.part(pieces).size.saturating_mul(nth as u64);
        let Some(at) = (0..places.len()).min_by_key(|&at| before[at].size.abs_diff(ideal)) else { break };
        if before[at].without(last).has(least) && all.without(before[at]).has(least) {
            cuts.push(places[at].to_vec());
            last = before[at];
        }
    }
    cuts
}

/// Returns the approximate input bytes before each place.
fn bytes_before(compaction: &Compaction, places: &[&[u8]]) -> Vec<Bytes> {
    let mut before = vec![Bytes::default(); places.len()];
    // Evenly spread bytes that begin, and end, at each place.
    let mut begins = vec![Bytes::default(); places.len() + 2];
    let mut ends = begins.clone();
    for (_, file) in compaction.input_files() {
        let first = places.partition_point(|&place| place <= file.smallest_user_key());
        let behind = places.partition_point(|&place| !file.ends_before(place)) + 1;
        let each = Bytes::of(compaction, file).part(behind.saturating_sub(first));
        begins[first] = begins[first].and(each);
        ends[behind.max(first)] = ends[behind.max(first)].and(each);
    }
    let (mut now, mut sum) = (Bytes::default(), Bytes::default());
    for (at, stretch) in before.iter_mut().enumerate() {
        now = now.and(begins[at]).without(ends[at]);
        sum = sum.and(now);
        *stretch = sum;
    }
    before
}

#[cfg(test)]
mod tests;
