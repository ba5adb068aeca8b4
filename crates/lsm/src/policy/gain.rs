//! Estimates the bytes that a compaction frees, and the bytes that it writes.
//!
//! **Freed bytes** are estimated like the unexposed garbage of the ledger. That many entries,
//! thrown at random at the entries below, hit some twice, and each hit frees the mean stored size
//! of an entry below. Tombstones free at least the bytes that they are known to hide. **Written
//! bytes** are the tables, without the freed part of them.

use super::compaction::Compaction;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Estimated benefit and cost of a compaction, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gain {
    pub freed: f64,
    pub written: f64,
}

impl Gain {
    /// Estimates the gain of `c`, picked from `version`.
    pub fn of(version: &Version, c: &Compaction) -> Gain {
        let (low, high) = c.key_range();
        let upper = Totals::of(c.input_files().filter(|(level, _)| *level == c.level).map(|(_, f)| f));
        // A move without overlap is judged by the first deeper level that it overlaps.
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

    /// Returns the bytes freed for each byte written.
    pub fn ratio(&self) -> f64 {
        self.freed / self.written.max(1.0)
    }
}

/// Bytes on disk of tables and of the values that they reference.
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
