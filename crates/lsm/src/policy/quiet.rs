//! Picks compactions for an idle store: those that free more than they write.
//!
//! The levels above the deepest one have entries that hide older ones below. In a busy store the
//! shape of the tree bounds how many; in an idle store hidden data would stay on disk until the
//! next writes. With separated values, merging an upper level moves only references, and exposes
//! values for collection. There it nearly always pays off, until one level is left. With inline
//! values it pays off for tombstones, and for little else.
//!
//! `super::gain` estimates the benefit. Every such compaction moves entries to a deeper level, so
//! the process ends, and the store comes to rest.

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use super::gain::Gain;

/// Returns the next compaction that pays off, the highest level first.
pub fn pick(facts: &PickInputs<'_>, moves: &dyn SingleFileCompactions) -> Option<Compaction> {
    let version = facts.version;
    let deepest = version.deepest_level()?;
    let pays = |c: &Compaction| Gain::of(version, c).ratio() > 1.0;
    if deepest > 0
        && let Some(oldest) = version.files(0).last()
        && let Some(compaction) = moves.level_0(oldest, Reason::Quiet, u64::MAX).filter(pays)
    {
        return Some(compaction);
    }
    (1..deepest).find_map(|level| {
        (0..version.files(level).len())
            .filter(|&i| facts.is_free(&version.files(level)[i]))
            .find_map(|i| moves.down(level, i, Reason::Quiet).filter(pays))
    })
}

#[cfg(test)]
mod tests;
