//! Compactions that free space: files above the deepest level go down, whatever the targets say.
//!
//! A level within its target may still hide garbage: every entry above the deepest level may be the
//! newer version of one below, or its tombstone. When space is short, nothing can wait until the
//! level is full. The compaction that frees the most for each byte written goes first. A file of a
//! nearly empty level overlaps so many files below that its compaction would write many times the
//! bytes that it frees. Such a file is taken only when nothing else can free space
//! ([`RequiredBenefit::Any`]). Each of these compactions moves files down, so the process ends when
//! all data is in the deepest level.

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use super::gain::Gain;

/// Required benefit of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredBenefit {
    /// The compaction may write up to this many bytes for each byte that it frees.
    Worth(u32),
    /// The compaction may write any number of bytes.
    Any,
}

impl RequiredBenefit {
    fn is_met(self, gain: &Gain) -> bool {
        match self {
            RequiredBenefit::Worth(written) => gain.ratio() * f64::from(written) >= 1.0,
            RequiredBenefit::Any => true,
        }
    }
}

/// Returns the compaction that is likely to free the most for each byte written, of those that may
/// run beside the running ones.
pub fn pick(
    facts: &PickInputs<'_>,
    moves: &dyn SingleFileCompactions,
    need: RequiredBenefit,
) -> Option<Compaction> {
    let version = facts.version;
    let bottom = version.deepest_level()?;
    // Level 0 alone hides only entries within its own files, or those that its tombstones were kept
    // for.
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

/// Returns a rewrite, in place, of a file of the deepest level for which `wanted` is true: it may
/// hold entries that were kept for a dropped snapshot.
pub fn pick_rewrite(
    facts: &PickInputs<'_>,
    moves: &dyn SingleFileCompactions,
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
