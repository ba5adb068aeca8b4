//! Picks the compaction that exposes the most garbage for each byte written.
//!
//! A separated value that was overwritten is garbage, which collection can free once a compaction
//! has dropped the reference to it. While the levels are within their targets, no policy picks such
//! a compaction. But unexposed garbage occupies as much space as exposed garbage, and no collection
//! can free it. So when writers are throttled for garbage and most of it is hidden, the engine
//! calls this module (`plan::hidden`).
//!
//! **Exposed bytes** are estimated from the level statistics. An entry hides the next older one of
//! its key. The next level has that key with a probability equal to its share of the keys: nearly 1
//! for the last level, a tenth for a level above it. That many entries, thrown at random at those
//! of the next level, hit some twice, and each hit exposes a value. **Written bytes** are the
//! tables of both levels. The engine sets the required ratio of the two. Below 1 there is nothing
//! to gain, and a compaction that would only move keys in order exposes nothing.
//!
//! A pick makes one pass over the tables between level 0 and the last level. Versions carry their
//! sums ([`OverlapStats`]), so the tables themselves are not read. The result is one compaction,
//! made of the best available candidate of each level. Each such compaction moves entries to a
//! deeper level, so the process ends.

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use super::overlap_stats::{OverlapStats, TableOverlap, Weight};
use base::key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use version::Version;

/// Statistics of a level as a target of compactions.
#[derive(Clone, Copy, Debug)]
struct Below {
    /// Mean stored bytes of the separated value of an entry.
    value_bytes: f64,
    /// Share of the keys, of those in this and deeper levels, that this level has.
    part: f64,
}

impl Below {
    fn of(version: &Version, level: usize) -> Below {
        let entries = |level: &version::Level| level.sums().entries as f64;
        let own = version.levels.get(level).map(version::Level::sums);
        let (own_entries, stored_bytes) =
            own.map_or((0.0, 0.0), |sums| (sums.entries as f64, sums.stored_bytes as f64));
        let most = version.levels.iter().skip(level).map(entries).fold(1.0, f64::max);
        Below { value_bytes: stored_bytes / own_entries.max(1.0), part: own_entries / most }
    }

    /// Returns the value bytes exposed for each table byte written, if the entries of `upper` are
    /// merged with those of `lower`.
    fn ratio(&self, upper: Weight, lower: Weight) -> f64 {
        let (stones, targets) = (upper.entries as f64 * self.part, lower.entries as f64);
        if targets == 0.0 {
            return 0.0;
        }
        let hit = targets * -(-stones / targets).exp_m1();
        hit * self.value_bytes / (upper.bytes.saturating_add(lower.bytes) as f64).max(1.0)
    }
}

/// Returns the best compaction: see the module. Returns `None` if no compaction exposes more than
/// `worth` times, and more than once, the bytes that it writes.
pub fn pick(
    facts: &PickInputs<'_>,
    met: &OverlapStats,
    moves: &dyn SingleFileCompactions,
    worth: f64,
) -> Option<Compaction> {
    let version = facts.version;
    let last = version.deepest_level().filter(|&last| last > 0)?;
    let pays = |ratio: f64| ratio > worth.max(1.0);
    let deeper = (1..last).filter_map(|level| best_of(facts, met, moves, level, &pays));
    level_0(facts, moves)
        .filter(|(ratio, _)| pays(*ratio))
        .into_iter()
        .chain(deeper)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, c)| c)
}

/// Returns level 0 merged with its overlap.
fn level_0(facts: &PickInputs<'_>, moves: &dyn SingleFileCompactions) -> Option<(f64, Compaction)> {
    let oldest = facts.version.files(0).iter().rev().find(|f| facts.is_free(f) && !moves.stays(f))?;
    let compaction = moves.level_0(oldest, Reason::Exposes, u64::MAX)?;
    let of = |level: usize| {
        Weight::of(compaction.input_files().filter(move |(at, _)| *at == level).map(|(_, f)| f))
    };
    let below = Below::of(facts.version, compaction.output_level);
    let ratio = below.ratio(of(0), of(compaction.output_level));
    Some((ratio, compaction))
}

/// Returns the best table of a level above the last one that pays off and can be compacted down.
fn best_of(
    facts: &PickInputs<'_>,
    met: &OverlapStats,
    moves: &dyn SingleFileCompactions,
    level: usize,
    pays: &dyn Fn(f64) -> bool,
) -> Option<(f64, Compaction)> {
    let (below, files) = (Below::of(facts.version, level + 1), facts.version.files(level));
    let candidate = |table: &TableOverlap| {
        let ratio = below.ratio(table.own, table.met);
        // The bit patterns of non-negative floats have the order of their values.
        (pays(ratio) && facts.is_free(&table.file)).then(|| (ratio.to_bits(), Reverse(table.file.number)))
    };
    // Usually only the first is needed, so the candidates are not sorted.
    let mut candidates: BinaryHeap<_> = met.tables(level).filter_map(candidate).collect();
    while let Some((ratio, Reverse(number))) = candidates.pop() {
        let Some(table) = met.table(level, number) else { continue };
        let nth = files.partition_point(|f| key::compare(&f.smallest, &table.file.smallest).is_lt());
        if let Some(compaction) = moves.down(level, nth, Reason::Exposes) {
            return Some((f64::from_bits(ratio), compaction));
        }
    }
    None
}

#[cfg(test)]
mod tests;
