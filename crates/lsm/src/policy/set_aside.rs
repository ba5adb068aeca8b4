//! Tables that cannot be read stand in the way: what that means for the choice of compactions.
//!
//! Nobody knows what a damaged table holds, so nothing newer than it may come to lie under it, nothing older above it, and
//! it cannot be merged. In its range of keys it is a *barrier*, whose place in the tree is all that is left of it
//! (docs/decisions/0026-a-damaged-table-is-a-barrier.md):
//!
//! * It is no input. A compaction takes every file of its output level that lies in its range, so this alone keeps
//!   everything that meets the table on its own side, in the levels below 0.
//! * In level 0 a file stays while it meets a table set aside that is older, or that lies at or above the output level, or
//!   an older file that stays (`SetAside::held`). What stays counts neither as work for compaction nor as a reason to
//!   hold up writers; it is merged within level 0.
//! * So that little has to stay there, level 0 is compacted into a level above the highest table set aside, as far as
//!   there is one (`SetAside::base_below`), and a table of level 0 or 1 sinks as deep as nothing meets it: as it is, by
//!   name only (`sink`).

use base::HashSet;
use std::sync::Arc;
use version::{FileMeta, Version};

/// The tables of a family that are set aside: few.
#[derive(Clone, Debug, Default)]
pub struct SetAside(Vec<Arc<FileMeta>>);

impl SetAside {
    /// Of these tables, wherever they lie.
    pub fn new<'a>(tables: impl IntoIterator<Item = &'a FileMeta>) -> Self {
        // Copies that do not count: whoever asks whether a file is in use asks for those of versions and readers.
        let apart = |f: &FileMeta| Arc::new(FileMeta { copies: Arc::default(), ..f.clone() });
        SetAside(tables.into_iter().map(apart).collect())
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tables, as they were described when they were set aside.
    pub fn tables(&self) -> &[Arc<FileMeta>] {
        &self.0
    }

    /// True if it is set aside.
    pub fn has(&self, number: u64) -> bool {
        self.0.iter().any(|f| f.number == number)
    }

    /// Where a table lies; `None` if the version does not have it any more.
    fn level_of(version: &Version, table: &FileMeta) -> Option<usize> {
        if version.files(0).iter().any(|f| f.number == table.number) {
            return Some(0);
        }
        let here = |level: usize| version.file_at(level, table.smallest_user_key());
        (1..version.levels.len()).find(|&level| here(level).is_some_and(|f| f.number == table.number))
    }

    /// Those that the version has, with where they lie.
    pub fn with_levels<'a>(
        &'a self,
        version: &'a Version,
    ) -> impl Iterator<Item = (usize, &'a Arc<FileMeta>)> {
        self.0.iter().filter_map(|table| Some((Self::level_of(version, table)?, table)))
    }

    /// The base level that leaves room above the highest table set aside below level 0, if that is above `base`.
    pub fn base_below(&self, version: &Version, base: usize) -> usize {
        let highest = self.with_levels(version).map(|(level, _)| level).filter(|&level| level > 0).min();
        highest.map_or(base, |highest| base.min((highest - 1).max(1)))
    }

    /// The files of level 0 that cannot go down into `base`, those set aside among them.
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
            // As inputs are chosen ([`Version::overlap_range`]): with the end of a range tombstone, which the file itself does not cover.
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
