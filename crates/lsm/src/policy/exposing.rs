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
//! One pass over each level above the last, without a look at what tables reference, and one compaction made of the best of each that can be had. All of them
//! bring entries to a deeper level, so there is an end to them.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use std::sync::Arc;
use version::{FileMeta, Version};

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
    fn ratio(&self, (upper, upper_bytes): (u64, u64), (lower, lower_bytes): (u64, u64)) -> f64 {
        let (stones, targets) = (upper as f64 * self.part, lower as f64);
        if targets == 0.0 {
            return 0.0;
        }
        let hit = targets * -(-stones / targets).exp_m1();
        hit * self.value_bytes / (upper_bytes.saturating_add(lower_bytes) as f64).max(1.0)
    }
}

/// Entries and bytes of tables.
fn sums<'a>(files: impl Iterator<Item = &'a Arc<FileMeta>>) -> (u64, u64) {
    files.fold((0, 0), |(entries, bytes): (u64, u64), f| {
        (entries.saturating_add(f.entries), bytes.saturating_add(f.len))
    })
}

/// See the module. `None` where none would expose `worth` times what it writes, and more than that.
pub fn pick(facts: &Facts<'_>, moves: &dyn Moves, worth: f64) -> Option<Compaction> {
    let version = facts.version;
    let last = version.deepest_level().filter(|&last| last > 0)?;
    let deeper = (1..last).filter_map(|level| best_of(facts, moves, level));
    let pays =
        |(ratio, _): &(f64, Compaction)| *ratio > worth.max(1.0) || base::canary::is("exposes-at-any-price");
    level_0(facts, moves)
        .into_iter()
        .chain(deeper)
        .filter(pays)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, c)| c)
}

/// Level 0 with what it meets.
fn level_0(facts: &Facts<'_>, moves: &dyn Moves) -> Option<(f64, Compaction)> {
    let oldest = facts.version.files(0).iter().rev().find(|f| facts.is_free(f) && !moves.stays(f))?;
    let compaction = moves.level_0(oldest, Reason::Exposes, u64::MAX)?;
    let of =
        |level: usize| sums(compaction.input_files().filter(move |(at, _)| *at == level).map(|(_, f)| f));
    let below = Below::of(facts.version, compaction.output_level);
    let ratio = below.ratio(of(0), of(compaction.output_level));
    Some((ratio, compaction))
}

/// Of a level above the last one the best table that can go down.
fn best_of(facts: &Facts<'_>, moves: &dyn Moves, level: usize) -> Option<(f64, Compaction)> {
    let (version, below) = (facts.version, Below::of(facts.version, level + 1));
    let (files, lower) = (version.files(level), version.files(level + 1));
    let mut from = 0;
    let mut ratios = Vec::with_capacity(files.len());
    for (nth, file) in files.iter().enumerate() {
        from += lower[from..].iter().take_while(|f| f.ends_before(file.smallest_user_key())).count();
        if facts.is_free(file) {
            let met = lower[from..].iter().take_while(|f| !f.starts_after(file.largest_user_key()));
            ratios.push((below.ratio((file.entries, file.len), sums(met)), nth));
        }
    }
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    ratios.into_iter().find_map(|(ratio, nth)| Some((ratio, moves.down(level, nth, Reason::Exposes)?)))
}

#[cfg(test)]
mod tests;
