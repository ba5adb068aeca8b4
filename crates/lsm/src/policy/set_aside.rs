//! Unreadable tables that are set aside, and the constraints that they impose on compactions.
//!
//! The content of a damaged table is unknown. So no newer data may move under it, no older data
//! above it, and it cannot be merged. In its key range it is a *barrier*, of which only the
//! position in the tree is known (docs/decisions/0026-a-damaged-table-is-a-barrier.md):
//!
//! * A barrier is never an input. A compaction takes every file of its output level within its
//!   range. So below level 0 this alone keeps every overlapping file on its own side of the
//!   barrier.
//! * A level 0 file is held while it overlaps an older barrier, a barrier at or above the output
//!   level, or an older held file (`SetAside::held`). Held files count neither as compaction work
//!   nor toward the write stall; they are merged within level 0.
//! * To hold few files, level 0 is compacted into a level above the highest barrier, if there is
//!   one (`SetAside::base_below`). A barrier in level 0 or 1 sinks as deep as nothing overlaps it:
//!   it is moved by name only, unread (`sink`).

use base::HashSet;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Tables of a family that are set aside; there are few.
#[derive(Clone, Debug, Default)]
pub struct SetAside(Vec<Arc<FileMeta>>);

impl SetAside {
    /// Sets these tables aside, in any level.
    pub fn new<'a>(tables: impl IntoIterator<Item = &'a FileMeta>) -> Self {
        // These copies must not share the in-use count: it counts the copies of versions and
        // readers.
        let apart = |f: &FileMeta| Arc::new(FileMeta { copies: Arc::default(), ..f.clone() });
        SetAside(tables.into_iter().map(apart).collect())
    }

    /// Returns true if no table is set aside.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tables, with their metadata from when they were set aside.
    pub fn tables(&self) -> &[Arc<FileMeta>] {
        &self.0
    }

    /// Returns true if the table is set aside.
    pub fn has(&self, number: u64) -> bool {
        self.0.iter().any(|f| f.number == number)
    }

    /// Returns the level of a table; `None` if the version no longer has it.
    fn level_of(version: &Version, table: &FileMeta) -> Option<usize> {
        if version.files(0).iter().any(|f| f.number == table.number) {
            return Some(0);
        }
        let here = |level: usize| version.file_at(level, table.smallest_user_key());
        (1..version.levels.len()).find(|&level| here(level).is_some_and(|f| f.number == table.number))
    }

    /// Returns the tables that the version has, with their levels.
    pub fn with_levels<'a>(
        &'a self,
        version: &'a Version,
    ) -> impl Iterator<Item = (usize, &'a Arc<FileMeta>)> {
        self.0.iter().filter_map(|table| Some((Self::level_of(version, table)?, table)))
    }

    /// Returns a base level that leaves a level above the highest barrier below level 0, if that is
    /// above `base`.
    pub fn base_below(&self, version: &Version, base: usize) -> usize {
        let highest = self.with_levels(version).map(|(level, _)| level).filter(|&level| level > 0).min();
        highest.map_or(base, |highest| base.min((highest - 1).max(1)))
    }

    /// Returns the files of level 0 that cannot be compacted into `base`, barriers included.
    pub fn held(&self, version: &Version, base: usize) -> HashSet<u64> {
        let mut held = HashSet::default();
        if self.is_empty() {
            return held;
        }
        let mut in_the_way: Vec<Arc<FileMeta>> = self
            .with_levels(version)
            .filter(|(level, _)| (1..=base).contains(level))
            .map(|(_, table)| table.clone())
            .collect();
        for file in version.files(0).iter().rev() {
            // Uses the same test as the choice of inputs ([`Version::overlap_range`]): it includes
            // the exclusive end of a range tombstone.
            let (low, high) = (file.smallest_user_key(), file.largest_user_key());
            let takes = |other: &Arc<FileMeta>| !other.ends_before(low) && !other.starts_after(high);
            if self.has(file.number) || in_the_way.iter().any(takes) {
                held.insert(file.number);
                in_the_way.push(file.clone());
            }
        }
        held
    }
}
