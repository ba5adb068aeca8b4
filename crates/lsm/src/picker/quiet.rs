//! What is worth compacting when nobody writes: compactions that free more than they write.
//!
//! The levels above the deepest one hold entries that hide older ones below. In a store that is written the shape of the
//! tree bounds how much; in a quiet store what is hidden stays on disk until somebody writes again. Where values are
//! separated, merging an upper level moves only references, and the values that it exposes can be collected: there it
//! nearly always pays, until one level is left. Where values are inline it pays for tombstones, and for little else.
//!
//! **Freed** is estimated as the ledger estimates hidden garbage: so many entries thrown at random at those below hit
//! some twice, and each hit frees the mean of what an entry below has on disk; tombstones free at least what they are
//! known to hide. **Written** are the tables, without what is freed of them. Every such compaction brings entries to a
//! deeper level, so there is an end to them: then the store rests.

use super::leveled::Picker;
use super::{Compaction, InProgress, LeveledOptions, Reason};
use std::sync::Arc;
use version::{FileMeta, Version};

/// The next compaction that pays, if there is one: the highest level first.
pub fn pick_quiet(version: &Version, options: &LeveledOptions, busy: &InProgress) -> Option<Compaction> {
    let picker = Picker::new(version, options, busy);
    let deepest = version.deepest_level()?;
    let pays = |c: &Compaction| pays(version, c);
    if deepest > 0
        && let Some(oldest) = version.files(0).last()
        && let Some(compaction) = picker.l0_to_base(oldest, Reason::Quiet, u64::MAX).filter(pays)
    {
        return Some(compaction);
    }
    (1..deepest).find_map(|level| {
        (0..version.files(level).len())
            .filter(|&i| picker.is_free(&version.files(level)[i]))
            .find_map(|i| picker.down(level, i, Reason::Quiet).filter(pays))
    })
}

/// What tables and the values they reference take on disk.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    entries: f64,
    table_bytes: f64,
    value_bytes: f64,
    hidden_bytes: f64,
}

impl Totals {
    fn of<'a>(files: impl Iterator<Item = &'a Arc<FileMeta>>) -> Totals {
        files.fold(Totals::default(), |sum, f| Totals {
            entries: sum.entries + f.entries as f64,
            table_bytes: sum.table_bytes + f.len as f64,
            value_bytes: sum.value_bytes + f.dependencies.iter().map(|d| d.stored_bytes as f64).sum::<f64>(),
            hidden_bytes: sum.hidden_bytes + f.hidden_bytes as f64,
        })
    }
}

/// True if the compaction is expected to free more than it writes.
fn pays(version: &Version, c: &Compaction) -> bool {
    let (low, high) = c.key_range();
    let upper = Totals::of(c.input_files().filter(|(level, _)| *level == c.level).map(|(_, f)| f));
    // What only moves is judged by the first level where it meets something.
    let first = (c.output_level..version.levels.len())
        .map(|level| &version.files(level)[version.overlap_range(level, Some(low), Some(high))])
        .find(|met| !met.is_empty());
    let lower = Totals::of(first.unwrap_or_default().iter());
    let below = lower.table_bytes + lower.value_bytes;
    if lower.entries == 0.0 || below == 0.0 {
        return false;
    }
    let hit = -(-upper.entries / lower.entries).exp_m1();
    let freed = (hit * below).max(upper.hidden_bytes.min(below));
    let written = upper.table_bytes + lower.table_bytes * (1.0 - freed / below);
    freed > written
}

#[cfg(test)]
mod tests;
