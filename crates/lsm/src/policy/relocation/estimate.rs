//! Estimates which tables reference a vSST, from the statistics of a version.
//!
//! For each table, a version knows the number of blob ids that it uses, and the first and last of
//! them. For each blob id it knows the number of tables that use it, and the bytes used. Only the
//! tables themselves have the exact lists, and a pick does not read them.

use std::collections::BTreeSet;
use version::{BlobId, FileMeta, Version};

/// First and last blob ids of some tables.
#[derive(Default)]
pub(super) struct Ranges {
    first: Vec<BlobId>,
    last: Vec<BlobId>,
}

impl Ranges {
    pub(super) fn of<'f>(tables: impl Iterator<Item = &'f FileMeta>) -> Ranges {
        let mut ranges = Ranges::default();
        for sums in tables.map(|f| f.uses.sums()).filter(|sums| sums.names > 0) {
            ranges.first.push(sums.first);
            ranges.last.push(sums.last);
        }
        ranges.first.sort_unstable();
        ranges.last.sort_unstable();
        ranges
    }

    /// Returns the number of tables that may use a blob id.
    pub(super) fn around(&self, name: BlobId) -> u64 {
        let begun = self.first.partition_point(|&first| first <= name);
        begun.saturating_sub(self.last.partition_point(|&last| last < name)) as u64
    }
}

/// Estimates the number of vSSTs with values of a table. A table is assumed to use each blob id
/// between its first and last with equal probability. That is exact if it uses all of them, as
/// under random overwrites.
pub(super) struct Spread {
    /// Referenced blob ids, ascending, each with the cumulative number of vSSTs.
    sums: Vec<(BlobId, f64)>,
}

impl Spread {
    pub(super) fn of(version: &Version) -> Spread {
        let is_used = |name: &BlobId| version.references.contains_key(name);
        let mut shares: Vec<(BlobId, f64)> = Vec::new();
        for vsst in version.vssts.values().filter(|v| !v.segment && v.global_seq.is_none()) {
            let names: Vec<BlobId> = version.names_of(vsst.number).into_iter().filter(is_used).collect();
            let share = 1.0 / names.len().max(1) as f64;
            shares.extend(names.into_iter().map(|name| (name, share)));
        }
        shares.sort_by_key(|(name, _)| *name);
        let mut sum = 0.0;
        let summed = shares.chunk_by(|a, b| a.0 == b.0).filter_map(|same| {
            sum += same.iter().map(|(_, share)| share).sum::<f64>();
            same.first().map(|(name, _)| (*name, sum))
        });
        Spread { sums: summed.collect() }
    }

    pub(super) fn of_table(&self, table: &FileMeta) -> u64 {
        let sums = table.uses.sums();
        let (from, to) = between(&self.sums, sums.first, sums.last);
        let up_to = |names: usize| names.checked_sub(1).and_then(|at| self.sums.get(at)).map_or(0.0, |s| s.1);
        let (names, vssts) = (to.saturating_sub(from), up_to(to) - up_to(from));
        let used = sums.names.min(names as u64);
        (used as f64 * vssts / names.max(1) as f64).round() as u64
    }
}

/// Estimates the bytes that each table references in some vSSTs. A table that may use a blob id is
/// assumed to use the average of its tables.
pub(super) struct Shares {
    /// Blob ids of the vSSTs, ascending, each with the cumulative bytes per table.
    sums: Vec<(BlobId, u64)>,
}

impl Shares {
    pub(super) fn of(version: &Version, vssts: &BTreeSet<u64>) -> Shares {
        let mut names: Vec<BlobId> = vssts.iter().flat_map(|&number| version.names_of(number)).collect();
        names.sort_unstable();
        names.dedup();
        let mut sum = 0u64;
        let shared = names.into_iter().filter_map(|name| {
            let totals = version.references.get(&name)?;
            sum = sum.saturating_add((totals.stored_bytes / totals.tables.max(1)).max(1));
            Some((name, sum))
        });
        Shares { sums: shared.collect() }
    }

    pub(super) fn of_table(&self, table: &FileMeta) -> u64 {
        let of = table.uses.sums();
        if of.names == 0 {
            return 0;
        }
        let (from, to) = between(&self.sums, of.first, of.last);
        let up_to = |names: usize| names.checked_sub(1).and_then(|at| self.sums.get(at)).map_or(0, |s| s.1);
        up_to(to).saturating_sub(up_to(from)).min(of.stored_bytes)
    }
}

/// Returns the index range of the blob ids from `first` to `last`.
fn between<T>(sums: &[(BlobId, T)], first: BlobId, last: BlobId) -> (usize, usize) {
    (sums.partition_point(|(name, _)| *name < first), sums.partition_point(|(name, _)| *name <= last))
}
