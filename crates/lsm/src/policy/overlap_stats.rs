//! Overlap statistics: the overlap of each table between level 0 and the last level with the level
//! below it, maintained from version to version.
//!
//! Computing them in a pick would visit most of the tree under the lock of the in-progress set. The
//! overlap of a table changes only if an overlapping table of the level below is added or removed.
//! Of ten thousand tables these are a few, and [`version::Level::changes`] finds the differences
//! between two versions without visiting the rest. So each version derives the statistics from
//! those of another version, before any pick waits for them. If the last level changes, all
//! statistics are recomputed.
//!
//! Invariant: [`OverlapStats::after`] returns the same result as [`OverlapStats::of`], the full
//! walk.

use std::sync::Arc;
use version::{FileMeta, IdMap, Version};

/// Entries and bytes of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of entries.
    pub entries: u64,
    /// Physical bytes.
    pub bytes: u64,
}

impl Weight {
    /// Returns the sums of these tables.
    pub fn of<'f>(files: impl IntoIterator<Item = &'f Arc<FileMeta>>) -> Weight {
        files.into_iter().fold(Weight::default(), |sum, file| Weight {
            entries: sum.entries.saturating_add(file.entries),
            bytes: sum.bytes.saturating_add(file.len),
        })
    }
}

/// A table with its overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOverlap {
    /// The table.
    pub file: Arc<FileMeta>,
    /// Weight of the table itself.
    pub own: Weight,
    /// Weight of the tables of the next level that it overlaps.
    pub met: Weight,
}

/// Overlap statistics of a version: see the module. A clone costs a few reference counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlapStats {
    /// Tables of each level by number; empty for level 0 and the last level.
    levels: Vec<IdMap<u64, TableOverlap>>,
}

impl OverlapStats {
    /// Computes the statistics of a version by a walk.
    pub fn of(version: &Version) -> OverlapStats {
        let deepest = version.deepest_level().unwrap_or(0);
        let mut met = OverlapStats { levels: vec![IdMap::new(); deepest] };
        for (level, tables) in met.levels.iter_mut().enumerate().skip(1) {
            let all = version.files(level).iter().map(|file| (file.number, look_at(version, level, file)));
            *tables = all.collect();
        }
        met
    }

    /// Derives the statistics of `now` from these statistics of `before`.
    #[must_use]
    pub fn after(&self, before: &Version, now: &Version) -> OverlapStats {
        let deepest = now.deepest_level().unwrap_or(0);
        if self.levels.len() != deepest || before.deepest_level().unwrap_or(0) != deepest {
            return OverlapStats::of(now);
        }
        let mut met = self.clone();
        for level in 1..=deepest {
            let (Some(old), Some(new)) = (before.levels.get(level), now.levels.get(level)) else { continue };
            let changes = new.changes(old);
            if let Some(tables) = met.levels.get_mut(level) {
                changes.gone.iter().for_each(|file| drop(tables.remove(&file.number)));
                changes.came.iter().for_each(|file| {
                    tables.insert(file.number, look_at(now, level, file));
                });
            }
            let Some(tables) = met.levels.get_mut(level - 1).filter(|_| level > 1) else { continue };
            for file in changes.gone.iter().chain(&changes.came) {
                for above in meeting(now.files(level - 1), file) {
                    tables.insert(above.number, look_at(now, level - 1, above));
                }
            }
        }
        if cfg!(debug_assertions) && now.table_count() < 256 {
            assert_eq!(met, OverlapStats::of(now), "what is kept is what a walk finds");
        }
        met
    }

    /// Returns a table of a level.
    pub fn table(&self, level: usize, number: u64) -> Option<&TableOverlap> {
        self.levels.get(level)?.get(&number)
    }

    /// Returns the tables of a level.
    pub fn tables(&self, level: usize) -> impl Iterator<Item = &TableOverlap> + '_ {
        self.levels.get(level).into_iter().flat_map(IdMap::values)
    }
}

/// Returns the tables of a level whose keys overlap a table below. The result includes at least
/// every table that counts the table below in its own overlap, even if its largest key is
/// exclusive.
pub fn meeting<'l>(files: &'l [Arc<FileMeta>], below: &FileMeta) -> &'l [Arc<FileMeta>] {
    let from = files.partition_point(|file| file.largest_user_key() < below.smallest_user_key());
    let to = files.partition_point(|file| !file.starts_after(below.largest_user_key()));
    files.get(from..to.max(from)).unwrap_or_default()
}

fn look_at(version: &Version, level: usize, file: &Arc<FileMeta>) -> TableOverlap {
    let (low, high) = (file.smallest_user_key(), file.largest_user_key());
    let below = version.overlap_range(level + 1, Some(low), Some(high));
    let met = Weight::of(version.files(level + 1).get(below).unwrap_or_default());
    TableOverlap { file: file.clone(), own: Weight::of([file]), met }
}

#[cfg(test)]
mod tests;
