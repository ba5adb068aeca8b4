//! What is worth compacting when nobody writes: compactions that free more than they write.
//!
//! The levels above the deepest one hold entries that hide older ones below. In a store that is written the shape of the
//! tree bounds how much; in a quiet store what is hidden stays on disk until somebody writes again. Where values are
//! separated, merging an upper level moves only references, and the values that it exposes can be collected: there it
//! nearly always pays, until one level is left. Where values are inline it pays for tombstones, and for little else.
//!
//! How much that is, is estimated in `super::gain`. Every such compaction brings entries to a deeper level, so there is
//! an end to them: then the store rests.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use super::gain::Gain;

/// The next compaction that pays, if there is one: the highest level first.
pub fn pick(facts: &Facts<'_>, moves: &dyn Moves) -> Option<Compaction> {
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
