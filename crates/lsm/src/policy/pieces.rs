//! Where a compaction can be cut into pieces that threads merge side by side.
//!
//! A piece is a stretch of user keys: all versions of a key are in one, and range tombstones are clipped at its ends
//! ([`MergeOptions::lower`](crate::MergeOptions)). Whatever a merge decides it decides by the key, so the pieces together write what
//! one merge would, but for tables that end at a cut, and for what is left of a range tombstone with nothing under the piece.
//!
//! Cuts are where tables begin, so that none of what lies below is met twice. Into the first level in use that is the level
//! under it, whose tables decide where those above end; elsewhere it is the output level, whose tables then are read by one piece
//! each. Where that level has too few, any table that is read will do.
//!
//! A piece is to stand for two tables or more, and never for less than one: the table that ends at a cut is shorter than it should
//! be, and that is to stay rare.
//! How much there is between two cuts is estimated: a table is spread evenly over what lies within its range.

use super::compaction::{Compaction, PHYSICAL_BYTES_GOOD, Reason};
use std::sync::Arc;
use version::{FileMeta, Version};

/// A piece is to stand for so many tables.
const TABLES_MIN: u64 = 2;

/// What lies before a place, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes {
    /// What decides how long tables are.
    size: u64,
    physical: u64,
}

impl Bytes {
    fn of(compaction: &Compaction, file: &FileMeta) -> Bytes {
        Bytes { size: if compaction.compensated { file.compensated() } else { file.len }, physical: file.len }
    }

    /// So much is worth a piece.
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

/// The user keys at which `compaction` is cut, ascending: into at most `pieces_max` pieces, none of which is small. None if it is
/// not worth it, or not possible. `version` is the one it was picked from.
pub fn cuts(compaction: &Compaction, version: &Version, pieces_max: usize) -> Vec<Vec<u8>> {
    // Level 0 is searched file by file: one is better than several. And values are relocated in the order of all keys.
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

/// The same, where these tables begin.
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

/// About how much the inputs have before each place.
fn bytes_before(compaction: &Compaction, places: &[&[u8]]) -> Vec<Bytes> {
    let mut before = vec![Bytes::default(); places.len()];
    // Where what is spread evenly begins, and where it ends.
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
