//! The ledger: the amount of garbage in each vSST.
//!
//! Garbage is computed, never counted. The tables of a version record how many bytes of records
//! they reference under each blob id (summed up in `Version::references`), and blob ids resolve to
//! files. The remaining bytes of the records of a file are garbage:
//!
//! ```text
//! garbage(file) = its record bytes - bytes of records that tables reference under any name that leads to it
//! ```
//!
//! So it cannot drift: after a crash, a lost job or a wrong estimate the next ledger is right
//! again. An entry that only a snapshot sees is still in a table, and its record counts as live, by
//! construction.
//!
//! A blob id may resolve to several files: outputs of a garbage collection that were cut by key
//! range. Then its references are divided in proportion to the record bytes of the files. The
//! figures of these files are estimates, and marked as such; the sum over all files is exact.
//!
//! **Exposed** garbage has no reference any more, so garbage collection can take it. **Hidden**
//! garbage is referenced by an entry that a newer one shadows and that no compaction has dropped
//! yet: only compaction can expose it. A ledger does not know how much there is: the engine
//! estimates it.
//!
//! A ledger is computed from a version in one pass ([`Ledger::of`]), or from the ledger of another
//! version of the family and the differences between the two ([`Ledger::after`]): an edit changes a
//! few files of a hundred thousand. Both have the same result; tests compare them, and debug builds
//! sometimes do.
//!
//! Results that are needed often are kept in order: the files by their garbage, the files by their
//! length, unreferenced blob ids and files, and files that may leave the fast tier. So a pick, a
//! prune or a migration does not visit all files.

use std::cmp::Reverse;
use std::ops::{Add, Sub};
use std::sync::Arc;
use version::{BlobId, Heat, IdMap, ReferenceTotals, Version, VsstMeta};

mod changes;

/// The garbage of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileGarbage {
    /// Bytes of all its records.
    pub record_bytes: u64,
    /// Bytes of the records that tables reference.
    pub referenced_bytes: u64,
    /// Bytes of the other records.
    pub garbage_bytes: u64,
    /// Number of references to the file.
    pub references: u64,
    /// False if a blob id of this file also resolves elsewhere: the figures are then estimates.
    pub exact: bool,
}

impl FileGarbage {
    /// Returns true if garbage is at least `percent` of the records.
    pub fn is_at_least(&self, percent: u32) -> bool {
        u128::from(self.garbage_bytes) * 100 >= u128::from(self.record_bytes) * u128::from(percent)
    }

    /// Adds the references under a blob id of which this file has `part` of `all`.
    fn refer(&mut self, totals: &ReferenceTotals, (part, all): (u128, u128), exact: bool) {
        let share = |n: u64| if part == all { n } else { (u128::from(n) * part / all.max(1)) as u64 };
        self.referenced_bytes = self.referenced_bytes.saturating_add(share(totals.stored_bytes));
        self.references = self.references.saturating_add(share(totals.count));
        self.exact &= exact;
    }

    /// Computes the garbage once all references are added.
    fn settled(&self) -> FileGarbage {
        let referenced_bytes = self.referenced_bytes.min(self.record_bytes);
        FileGarbage { referenced_bytes, garbage_bytes: self.record_bytes - referenced_bytes, ..*self }
    }

    /// Returns the file's rank among the files with garbage.
    fn rank(&self, number: u64) -> Option<(Reverse<u64>, u64)> {
        (self.garbage_bytes > 0).then(|| (Reverse(self.ratio_ppm()), number))
    }

    /// Returns the share of garbage in parts per million of the records.
    pub fn ratio_ppm(&self) -> u64 {
        let records = u128::from(self.record_bytes.max(1));
        (u128::from(self.garbage_bytes) * 1_000_000 / records) as u64
    }
}

/// Garbage of every vSST of a version: see the module. A clone costs a few reference counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    files: IdMap<u64, FileGarbage>,
    /// Files with garbage, the highest ratio first, the oldest first among equals.
    by_garbage: IdMap<(Reverse<u64>, u64), ()>,
    /// Files that collections copy, the longest first by their records.
    by_length: IdMap<(Reverse<u64>, u64), ()>,
    /// Long-lived files on the fast tier.
    lasting: IdMap<u64, ()>,
    unused: Unused,
    sums: Sums,
}

/// Sums over all files, too wide to overflow for any file sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    record_bytes: u128,
    referenced_bytes: u128,
    references: u128,
    /// Record bytes of files that collections copy.
    copied_bytes: u128,
    copied_entries: u128,
    /// Bytes that files on the fast tier occupy; `lasting_bytes` is the part of long-lived files.
    speed_bytes: u128,
    lasting_bytes: u128,
}

/// Unreferenced blob ids and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unused {
    aliases: IdMap<BlobId, ()>,
    /// Files without a referenced blob id.
    files: IdMap<u64, ()>,
}

/// Returns true if the records of a file may move to another file. Records of an ingested file have
/// other sequences in the file than in the tables.
pub(crate) fn is_copyable(file: &VsstMeta) -> bool {
    file.global_seq.is_none() && !file.segment
}

/// Returns true if a file may leave the fast tier: it is not hot, and its records can move to
/// another file.
fn has_lasted(meta: &VsstMeta) -> bool {
    meta.is_on_speed_disk() && meta.heat() != Heat::Hot && is_copyable(meta)
}

/// Returns true if a file of this rank has at least this ratio of garbage.
fn is_down_to((ratio, _): &(Reverse<u64>, u64), ratio_percent: u32) -> bool {
    ratio.0 >= u64::from(ratio_percent) * 10_000
}

fn narrow(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

impl Ledger {
    /// Computes the ledger of `version`, in one pass over its files and the blob ids that its
    /// tables use.
    pub fn of(version: &Version) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, meta) in version.vssts.iter() {
            let garbage =
                FileGarbage { record_bytes: meta.record_bytes, exact: true, ..FileGarbage::default() };
            ledger.files.insert(number, garbage);
            ledger.sums.add_file(meta);
            if !meta.segment {
                ledger.by_length.insert((Reverse(meta.record_bytes), number), ());
            }
            if has_lasted(meta) {
                ledger.lasting.insert(number, ());
            }
        }
        for (name, totals) in version.references.iter() {
            ledger.sums.referenced_bytes += u128::from(totals.stored_bytes);
            ledger.sums.references += u128::from(totals.count);
            let mut targets = version.resolve_all(name);
            match (targets.next(), targets.next()) {
                (Some(only), None) => ledger.refer(only.number, totals, (1, 1), true),
                (Some(first), Some(second)) => {
                    ledger.share_out(totals, [first, second].into_iter().chain(targets));
                }
                // A version with a reference to an unresolvable blob id is rejected.
                (None, _) => {}
            }
        }
        let mut by_garbage = Vec::new();
        let settled = ledger.files.iter().map(|(number, file)| {
            let settled = file.settled();
            by_garbage.extend(settled.rank(number));
            (number, settled)
        });
        ledger.files = settled.collect();
        by_garbage.sort_unstable();
        ledger.by_garbage = by_garbage.into_iter().map(|rank| (rank, ())).collect();
        let (aliases, files) = version.unreferenced();
        ledger.unused.aliases = aliases.into_iter().map(|name| (name, ())).collect();
        ledger.unused.files = files.into_iter().map(|number| (number, ())).collect();
        ledger
    }

    fn share_out<'v>(&mut self, totals: &ReferenceTotals, targets: impl Iterator<Item = &'v Arc<VsstMeta>>) {
        // An alias may return to a file, which then has one larger part.
        let mut parts: Vec<(u64, u128)> = Vec::new();
        for meta in targets {
            match parts.iter_mut().find(|(number, _)| *number == meta.number) {
                Some((_, part)) => *part += u128::from(meta.record_bytes),
                None => parts.push((meta.number, u128::from(meta.record_bytes))),
            }
        }
        let all = parts.iter().map(|(_, part)| part).sum();
        for &(number, part) in &parts {
            self.refer(number, totals, (part, all), parts.len() == 1);
        }
    }

    fn refer(&mut self, number: u64, totals: &ReferenceTotals, part: (u128, u128), exact: bool) {
        if let Some(mut file) = self.files.get(&number).copied() {
            file.refer(totals, part, exact);
            self.files.insert(number, file);
        }
    }

    /// Returns the garbage of one file; all zeros for a file that is not in the version.
    pub fn garbage_of(&self, file: u64) -> FileGarbage {
        self.files.get(&file).copied().unwrap_or_default()
    }

    /// Returns every file with its garbage, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &FileGarbage)> + '_ {
        self.files.iter()
    }

    /// Returns the files with at least this ratio of garbage in percent, the highest ratio first.
    pub fn from_most_garbage(&self, ratio_percent: u32) -> impl Iterator<Item = (u64, FileGarbage)> + '_ {
        let down_to = self.by_garbage.keys().take_while(move |rank| is_down_to(rank, ratio_percent));
        down_to.map(|(_, number)| (number, self.garbage_of(number)))
    }

    /// Returns true if this file is one of [`Ledger::from_most_garbage`].
    pub fn has_as_much(&self, file: u64, ratio_percent: u32) -> bool {
        self.garbage_of(file).rank(file).is_some_and(|rank| is_down_to(&rank, ratio_percent))
    }

    /// Returns the highest share of garbage of a file, in parts per million.
    pub fn ratio_ppm_max(&self) -> u64 {
        self.by_garbage.keys().next().map_or(0, |(ratio, _)| ratio.0)
    }

    /// Returns a copy that omits these files from [`Ledger::from_most_garbage`]: for a plan of
    /// several collections.
    #[must_use]
    pub fn without_garbage_of(&self, files: impl IntoIterator<Item = u64>) -> Ledger {
        let mut ledger = self.clone();
        for number in files {
            if let Some(rank) = self.garbage_of(number).rank(number) {
                ledger.by_garbage.remove(&rank);
            }
        }
        ledger
    }

    /// Returns the aliases that no table depends on, ascending.
    pub fn unused_aliases(&self) -> impl Iterator<Item = BlobId> + '_ {
        self.unused.aliases.keys()
    }

    /// Returns the files that no table depends on under any blob id, ascending.
    pub fn unused_files(&self) -> impl Iterator<Item = u64> + '_ {
        self.unused.files.keys()
    }

    /// Returns true if there is an unreferenced alias or file.
    pub fn has_unused(&self) -> bool {
        !self.unused.aliases.is_empty() || !self.unused.files.is_empty()
    }

    /// Returns the files that may leave the fast tier, all but hot ones, the oldest first.
    pub fn lasting(&self) -> impl Iterator<Item = u64> + '_ {
        self.lasting.keys()
    }

    /// Returns the bytes that these files occupy.
    pub fn lasting_bytes(&self) -> u64 {
        narrow(self.sums.lasting_bytes)
    }

    /// Returns the bytes that all files on the fast tier occupy.
    pub fn speed_bytes(&self) -> u64 {
        narrow(self.sums.speed_bytes)
    }

    /// Returns the bytes of all records of all files.
    pub fn record_bytes(&self) -> u64 {
        narrow(self.sums.record_bytes)
    }

    /// Returns the bytes of the records that tables reference.
    pub fn referenced_bytes(&self) -> u64 {
        narrow(self.sums.referenced_bytes)
    }

    /// Returns the number of references of all tables.
    pub fn references(&self) -> u64 {
        narrow(self.sums.references)
    }

    /// Returns the mean bytes of the records that a collection may have to copy; at least 1.
    pub fn mean_copied_bytes(&self) -> u64 {
        (narrow(self.sums.copied_bytes) / narrow(self.sums.copied_entries).max(1)).max(1)
    }

    /// Returns the record bytes of the longest file that a collection may have to copy.
    pub fn longest_copied_bytes(&self) -> u64 {
        self.by_length.keys().next().map_or(0, |(bytes, _)| bytes.0)
    }

    /// Returns the exposed garbage of all files: exact even if blob ids resolve to several files.
    pub fn exposed_bytes(&self) -> u64 {
        self.record_bytes().saturating_sub(self.referenced_bytes())
    }
}

impl Sums {
    fn add_file(&mut self, meta: &VsstMeta) {
        *self = self.changed(&Sums::of(meta), u128::add);
    }

    fn remove_file(&mut self, meta: &VsstMeta) {
        *self = self.changed(&Sums::of(meta), u128::sub);
    }

    /// Returns the sums of one file, without references to it.
    fn of(meta: &VsstMeta) -> Sums {
        let part = |counts: bool, n: u64| if counts { u128::from(n) } else { 0 };
        Sums {
            record_bytes: meta.record_bytes.into(),
            copied_bytes: part(!meta.segment, meta.record_bytes),
            copied_entries: part(!meta.segment, meta.entries),
            speed_bytes: part(meta.is_on_speed_disk(), meta.occupied_bytes()),
            lasting_bytes: part(has_lasted(meta), meta.occupied_bytes()),
            ..Sums::default()
        }
    }

    fn changed(&self, other: &Sums, by: fn(u128, u128) -> u128) -> Sums {
        Sums {
            record_bytes: by(self.record_bytes, other.record_bytes),
            referenced_bytes: by(self.referenced_bytes, other.referenced_bytes),
            references: by(self.references, other.references),
            copied_bytes: by(self.copied_bytes, other.copied_bytes),
            copied_entries: by(self.copied_entries, other.copied_entries),
            speed_bytes: by(self.speed_bytes, other.speed_bytes),
            lasting_bytes: by(self.lasting_bytes, other.lasting_bytes),
        }
    }
}

#[cfg(test)]
mod tests;
