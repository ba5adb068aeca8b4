//! What a compaction is expected to free, and what it writes for that.
//!
//! **Freed** is estimated as the ledger estimates hidden garbage: so many entries thrown at random at those below hit
//! some twice, and each hit frees the mean of what an entry below has on disk; tombstones free at least what they are
//! known to hide. **Written** are the tables, without what is freed of them.

use super::compaction::Compaction;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Both, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gain {
    pub freed: f64,
    pub written: f64,
}

impl Gain {
    /// What is expected of `c`, picked from `version`.
    pub fn of(version: &Version, c: &Compaction) -> Gain {
        let (low, high) = c.key_range();
        let upper = Totals::of(c.input_files().filter(|(level, _)| *level == c.level).map(|(_, f)| f));
        // What only moves is judged by the first level where it meets something.
        let first = (c.output_level..version.levels.len())
            .map(|level| &version.files(level)[version.overlap_range(level, Some(low), Some(high))])
            .find(|met| !met.is_empty());
        let lower = Totals::of(first.unwrap_or_default().iter());
        let below = lower.table_bytes + lower.value_bytes;
        if lower.entries == 0.0 || below == 0.0 {
            return Gain { freed: 0.0, written: upper.table_bytes };
        }
        let hit = -(-upper.entries / lower.entries).exp_m1();
        let freed = (hit * below).max(upper.hidden_bytes.min(below));
        Gain { freed, written: upper.table_bytes + lower.table_bytes * (1.0 - freed / below) }
    }

    /// Bytes freed for each one written.
    pub fn ratio(&self) -> f64 {
        self.freed / self.written.max(1.0)
    }
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
            value_bytes: sum.value_bytes + f.uses.sums().stored_bytes as f64,
            hidden_bytes: sum.hidden_bytes + f.hidden_bytes as f64,
        })
    }
}
