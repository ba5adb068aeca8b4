//! The compaction that brings most hidden garbage to light for what it writes.
//!
//! A value that is kept elsewhere and was overwritten is garbage that collection can free once a compaction has dropped the reference to it. As long as levels
//! are within their targets no policy wants one; but garbage that is hidden keeps as much room as garbage that is exposed, and no collection gets it. So where writers
//! pay for garbage and most of it is hidden, the engine asks for this (`plan::hidden`).
//!
//! **What is exposed** is estimated from what the levels hold. An entry hides the next older one of its key. That is in the next level with a chance that is the
//! part of the keys which are there: nearly all in the last level, a tenth in one above it. So many entries thrown at random at those of the next level hit some
//! twice, and each hit exposes a value. **What is written** are the tables of both levels. How many times that must be exposed the engine says; where
//! less is exposed than written there is nothing to be gained, and a compaction that keys in order would only move exposes nothing.
//!
//! One pass over the tables of the levels between, whose sums versions carry along ([`Met`]), without a look at the tables themselves, and one compaction made of the best of
//! each level that can be had. All of them bring entries to a deeper level, so there is an end to them.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use super::met::{Met, MetTable, Weight};
use base::key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use version::Version;

/// What is known of a level as one of those below.
#[derive(Clone, Copy, Debug)]
struct Below {
    /// Bytes that the value of an entry takes elsewhere, in the mean.
    value_bytes: f64,
    /// The part of the keys that lie under it and above which are in it.
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

    /// Bytes of values that are exposed for each byte of tables that is written, if so many entries in so many bytes meet these.
    fn ratio(&self, upper: Weight, lower: Weight) -> f64 {
        let (stones, targets) = (upper.entries as f64 * self.part, lower.entries as f64);
        if targets == 0.0 {
            return 0.0;
        }
        let hit = targets * -(-stones / targets).exp_m1();
        hit * self.value_bytes / (upper.bytes.saturating_add(lower.bytes) as f64).max(1.0)
    }
}

/// See the module. `None` where none would expose `worth` times what it writes, and more than that.
pub fn pick(facts: &Facts<'_>, met: &Met, moves: &dyn Moves, worth: f64) -> Option<Compaction> {
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

/// Level 0 with what it meets.
fn level_0(facts: &Facts<'_>, moves: &dyn Moves) -> Option<(f64, Compaction)> {
    let oldest = facts.version.files(0).iter().rev().find(|f| facts.is_free(f) && !moves.stays(f))?;
    let compaction = moves.level_0(oldest, Reason::Exposes, u64::MAX)?;
    let of = |level: usize| {
        Weight::of(compaction.input_files().filter(move |(at, _)| *at == level).map(|(_, f)| f))
    };
    let below = Below::of(facts.version, compaction.output_level);
    let ratio = below.ratio(of(0), of(compaction.output_level));
    Some((ratio, compaction))
}

/// Of a level above the last one the best table that pays and can go down.
fn best_of(
    facts: &Facts<'_>,
    met: &Met,
    moves: &dyn Moves,
    level: usize,
    pays: &dyn Fn(f64) -> bool,
) -> Option<(f64, Compaction)> {
    let (below, files) = (Below::of(facts.version, level + 1), facts.version.files(level));
    let candidate = |table: &MetTable| {
        let ratio = below.ratio(table.own, table.met);
        // Numbers that are not negative are in the order of their bits.
        (pays(ratio) && facts.is_free(&table.file)).then(|| (ratio.to_bits(), Reverse(table.file.number)))
    };
    // Seldom more than the first is asked for, so they are not put in order.
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
