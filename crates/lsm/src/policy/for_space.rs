//! Compactions that make room: what lies above the deepest level goes down, whatever the targets say.
//!
//! A level that is not over its target may still hide garbage: every entry above the deepest level may be the newer
//! version of one below, or its tombstone. Where room is short nobody can wait until the level is full. What brings most
//! for what it writes goes first. A file of a level that is nearly empty meets so many below it that its compaction would
//! write many times what it frees: it is left for when nothing else can make room ([`Need::Any`]). Each of these
//! compactions moves files down, so they end: when all is in the deepest level, none is left.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use super::gain::Gain;

/// What a compaction must bring to be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It may write up to so many bytes for each that it frees.
    Worth(u32),
    /// It may free something.
    Any,
}

impl Need {
    fn is_met(self, gain: &Gain) -> bool {
        match self {
            Need::Worth(written) => gain.ratio() * f64::from(written) >= 1.0,
            Need::Any => true,
        }
    }
}

/// The compaction that is likely to free most for what it writes, if any may run beside those that do.
pub fn pick(facts: &Facts<'_>, moves: &dyn Moves, need: Need) -> Option<Compaction> {
    let version = facts.version;
    let bottom = version.deepest_level()?;
    // Level 0 alone hides only what its files hide of each other, or what tombstones are still kept for.
    let files = version.files(0);
    let hides = files.len() > 1 || files.iter().any(|f| f.tombstones > 0 || f.range_tombstones > 0);
    let oldest = files.iter().rev().find(|f| facts.is_free(f) && (bottom > 0 || hides));
    let level_0 = oldest.and_then(|oldest| moves.level_0(oldest, Reason::Space, u64::MAX));
    let free = |level| {
        let files = version.files(level);
        (0..files.len()).filter(|&i| facts.is_free(&files[i])).map(move |i| (level, i))
    };
    let deeper = (1..bottom).flat_map(free).filter_map(|(level, i)| moves.down(level, i, Reason::Space));
    let judged = level_0.into_iter().chain(deeper).map(|c| (Gain::of(version, &c), c));
    let best =
        judged.filter(|(gain, _)| need.is_met(gain)).max_by(|(a, _), (b, _)| a.ratio().total_cmp(&b.ratio()));
    best.map(|(_, compaction)| compaction)
}

/// A file of the deepest level written anew in place, if `wanted` says that it may hold what nobody reads any more: entries
/// that were kept for a snapshot.
pub fn pick_rewrite(
    facts: &Facts<'_>,
    moves: &dyn Moves,
    wanted: &dyn Fn(u64) -> bool,
) -> Option<Compaction> {
    let version = facts.version;
    let bottom = version.deepest_level().filter(|&level| level > 0)?;
    let files = version.files(bottom);
    let free = |i: &usize| facts.is_free(&files[*i]) && wanted(files[*i].number);
    (0..files.len())
        .filter(free)
        .find_map(|i| moves.in_place(bottom, vec![files[i].clone()], Reason::Space, Vec::new()))
}
