//! What the tables between level 0 and the last level meet in the level below them: kept from version to version.
//!
//! A pick that asks it of each table of these levels would go through most of the tree, under the lock of what running jobs hold. What a table
//! meets changes only if a table comes or goes in the level below that its keys meet; of ten thousand these are a few, and what is different
//! between two versions is found without a look at the rest ([`version::Level::changes`]). So each version carries it along, worked out of that of
//! another version before anybody waits. Where the last level is another one than before all is worked out anew.
//!
//! Invariant: [`Met::after`] has the outcome of [`Met::of`], the walk.

use std::sync::Arc;
use version::{FileMeta, IdMap, Version};

/// Entries and bytes of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Entries.
    pub entries: u64,
    /// Physical bytes.
    pub bytes: u64,
}

impl Weight {
    /// Of these tables together.
    pub fn of<'f>(files: impl IntoIterator<Item = &'f Arc<FileMeta>>) -> Weight {
        files.into_iter().fold(Weight::default(), |sum, file| Weight {
            entries: sum.entries.saturating_add(file.entries),
            bytes: sum.bytes.saturating_add(file.len),
        })
    }
}

/// A table, and what it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetTable {
    /// The table.
    pub file: Arc<FileMeta>,
    /// What it has itself.
    pub own: Weight,
    /// What it meets in the next level.
    pub met: Weight,
}

/// See the module. A clone costs a few reference counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// The tables of each level by number; none for level 0, and for the last level.
    levels: Vec<IdMap<u64, MetTable>>,
}

impl Met {
    /// Of a version, by a walk.
    pub fn of(version: &Version) -> Met {
        let deepest = version.deepest_level().unwrap_or(0);
        let mut met = Met { levels: vec![IdMap::new(); deepest] };
        for (level, tables) in met.levels.iter_mut().enumerate().skip(1) {
            let all = version.files(level).iter().map(|file| (file.number, look_at(version, level, file)));
            *tables = all.collect();
        }
        met
    }

    /// Of `now`, where this is that of `before`.
    #[must_use]
    pub fn after(&self, before: &Version, now: &Version) -> Met {
        let deepest = now.deepest_level().unwrap_or(0);
        if self.levels.len() != deepest || before.deepest_level().unwrap_or(0) != deepest {
            return Met::of(now);
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
            assert_eq!(met, Met::of(now), "what is kept is what a walk finds");
        }
        met
    }

    /// A table of a level.
    pub fn table(&self, level: usize, number: u64) -> Option<&MetTable> {
        self.levels.get(level)?.get(&number)
    }

    /// The tables of a level.
    pub fn tables(&self, level: usize) -> impl Iterator<Item = &MetTable> + '_ {
        self.levels.get(level).into_iter().flat_map(IdMap::values)
    }
}

/// The tables of a level whose keys meet those of a table below: at least those that look at it when they ask what they meet, one
/// whose last key is not in it among them.
pub fn meeting<'l>(files: &'l [Arc<FileMeta>], below: &FileMeta) -> &'l [Arc<FileMeta>] {
    let from = files.partition_point(|file| file.largest_user_key() < below.smallest_user_key());
    let to = files.partition_point(|file| !file.starts_after(below.largest_user_key()));
    files.get(from..to.max(from)).unwrap_or_default()
}

fn look_at(version: &Version, level: usize, file: &Arc<FileMeta>) -> MetTable {
    let (low, high) = (file.smallest_user_key(), file.largest_user_key());
    let below = version.overlap_range(level + 1, Some(low), Some(high));
    let met = Weight::of(version.files(level + 1).get(below).unwrap_or_default());
    MetTable { file: file.clone(), own: Weight::of([file]), met }
}

#[cfg(test)]
mod tests;
