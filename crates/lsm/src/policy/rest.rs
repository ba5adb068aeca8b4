//! Compactions that free deleted data: tombstones with the entries below them, and versions kept
//! for dropped snapshots.
//!
//! The engine requests them in a store at rest, and when iterators skip many tombstones. Unlike the
//! compactions of [`super::quiet`], these may write more than they free. The engine sets how many
//! bytes they may rewrite. In this order:
//!
//! 1. Level 0 goes down, if it has tombstones or such versions, or if all tables are there.
//! 2. Of the tables of the levels between, the one with the highest ratio of freed to written bytes
//!    goes down.
//! 3. Tables of the deepest level with many tombstones or such versions are rewritten in place.
//!
//! **End.** A compaction of the first two kinds moves its entries to a deeper level. One of the
//! third leaves no tombstone and no such version behind, since no snapshot is open.

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use super::gain::Gain;
use version::FileMeta;

/// Maximum number of entries for each tombstone at which a table of the deepest level is rewritten.
/// Nothing is below its tombstones.
const ENTRIES_PER_TOMBSTONE: u64 = 8;

/// Maximum number of tables of the deepest level that are rewritten together.
const NEIGHBORS_MAX: usize = 4;

/// The purpose of a compaction that frees deleted data, and its bound on written bytes.
pub struct RestRequest<'a> {
    /// [`Reason::Rest`] or [`Reason::Passed`].
    pub reason: Reason,
    /// Maximum bytes that a compaction may write.
    pub rewrite_bytes_max: u64,
    /// True for the number of a table with versions that were kept for snapshots, and that no
    /// snapshot reads any more.
    pub has_released: &'a dyn Fn(u64) -> bool,
}

/// Returns the next compaction: see the module.
pub fn pick(
    facts: &PickInputs<'_>,
    moves: &dyn SingleFileCompactions,
    request: &RestRequest<'_>,
) -> Option<Compaction> {
    let bottom = facts.version.deepest_level()?;
    let affordable = |c: &Compaction| written_bytes(facts, c) <= request.rewrite_bytes_max;
    level_0(facts, moves, request, bottom)
        .into_iter()
        .chain(between(facts, moves, request, bottom))
        .chain(in_place(facts, moves, request, bottom))
        .find(affordable)
}

fn written_bytes(facts: &PickInputs<'_>, compaction: &Compaction) -> u64 {
    match compaction.level == compaction.output_level {
        true => compaction.input_bytes(),
        false => Gain::of(facts.version, compaction).written as u64,
    }
}

fn frees(file: &FileMeta, request: &RestRequest<'_>) -> bool {
    file.tombstones > 0 || file.range_tombstones > 0 || (request.has_released)(file.number)
}

fn level_0(
    facts: &PickInputs<'_>,
    moves: &dyn SingleFileCompactions,
    request: &RestRequest<'_>,
    bottom: usize,
) -> Option<Compaction> {
    let files = facts.version.files(0);
    let is_wanted = files.iter().any(|f| frees(f, request)) || bottom == 0 && files.len() > 1;
    let oldest = files.iter().rev().find(|f| facts.is_free(f) && !moves.stays(f)).filter(|_| is_wanted)?;
    moves.level_0(oldest, request.reason, u64::MAX)
}

/// Returns the compaction with the best ratio.
fn between<'a>(
    facts: &'a PickInputs<'_>,
    moves: &'a dyn SingleFileCompactions,
    request: &'a RestRequest<'_>,
    bottom: usize,
) -> impl Iterator<Item = Compaction> + 'a {
    let down = move |level: usize| {
        let files = facts.version.files(level);
        let wanted = move |i: &usize| facts.is_free(&files[*i]) && frees(&files[*i], request);
        (0..files.len()).filter(wanted).filter_map(move |i| moves.down(level, i, request.reason))
    };
    let judged = (1..bottom).flat_map(down).map(|c| (Gain::of(facts.version, &c).ratio(), c));
    judged.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, compaction)| compaction).into_iter()
}

fn in_place<'a>(
    facts: &'a PickInputs<'_>,
    moves: &'a dyn SingleFileCompactions,
    request: &'a RestRequest<'_>,
    bottom: usize,
) -> impl Iterator<Item = Compaction> + 'a {
    let files = if bottom > 0 { facts.version.files(bottom) } else { &[] };
    let is_wanted = |f: &FileMeta| {
        let tombstones = f.tombstones.saturating_add(f.range_tombstones);
        tombstones > 0 && tombstones.saturating_mul(ENTRIES_PER_TOMBSTONE) >= f.entries
            || (request.has_released)(f.number)
    };
    let runs = files.chunk_by(move |a, b| is_wanted(a) && is_wanted(b)).filter(move |run| is_wanted(&run[0]));
    // Neighbors are merged together, because the remainder of each may be short.
    let few =
        runs.flat_map(|run| run.chunks(NEIGHBORS_MAX)).filter(|few| few.iter().all(|f| facts.is_free(f)));
    few.filter_map(move |few| moves.in_place(bottom, few.to_vec(), request.reason, Vec::new()))
}

#[cfg(test)]
mod tests;
