//! The ledger: how much of each vSST is garbage.
//!
//! Garbage is derived, never counted. The tables of a version say how many bytes of records they reference under each
//! name (their dependencies, summed up in `Version::references`); names lead to files; what the records of a file take
//! beyond that is garbage:
//!
//! ```text
//! garbage(file) = its record bytes - bytes of records that tables reference under any name that leads to it
//! ```
//!
//! So it cannot drift: after a crash, a lost job or a wrong estimate the next ledger is right again. An entry that only
//! a snapshot sees is still in a table, and its record counts as live, by construction.
//!
//! Where a name leads to several files (an output of garbage collection that was cut by key range), its references are
//! shared out in proportion to the record bytes of the files: the figures of these files are estimates, and marked so.
//! The sum over all files is exact either way.
//!
//! **Exposed** garbage has no reference any more: garbage collection can take it. **Hidden** garbage is referenced by an
//! entry that a newer one shadows and that no compaction has met yet: only compaction can turn it into exposed garbage.
//! Nobody knows how much there is without merging the levels, so it is estimated, with bounds: see [`Ledger::hidden`].

use base::{HashMap, SeqNo};
use std::sync::Arc;
use version::{ReferenceTotals, Version, VsstMeta};

/// The garbage of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileGarbage {
    /// Bytes of all its records.
    pub record_bytes: u64,
    /// Bytes of those that tables reference.
    pub referenced_bytes: u64,
    /// The rest.
    pub garbage_bytes: u64,
    /// References to it.
    pub references: u64,
    /// False if a name that leads here also leads elsewhere: the figures are then estimates.
    pub exact: bool,
}

impl FileGarbage {
    /// True if garbage is at least `percent` of the records.
    pub fn is_at_least(&self, percent: u32) -> bool {
        u128::from(self.garbage_bytes) * 100 >= u128::from(self.record_bytes) * u128::from(percent)
    }

    /// Garbage in parts of a million of the records.
    pub fn ratio_ppm(&self) -> u64 {
        let records = u128::from(self.record_bytes.max(1));
        (u128::from(self.garbage_bytes) * 1_000_000 / records) as u64
    }
}

/// Hidden garbage: bytes of records whose entries are shadowed but not merged away yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenEstimate {
    /// At least about so much, if tombstones hide what they claim.
    pub low: u64,
    /// What a store has whose upper levels mostly overwrite what lies below.
    pub likely: u64,
    /// There cannot be more, but for the spread of the records' sizes.
    pub high: u64,
}

/// The garbage of every vSST of a version. See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    files: HashMap<u64, FileGarbage>,
    record_bytes: u64,
    referenced_bytes: u64,
    references: u64,
}

impl Ledger {
    /// The ledger of `version`: one pass over the names that its tables use.
    pub fn of(version: &Version) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, meta) in version.vssts.iter() {
            let garbage =
                FileGarbage { record_bytes: meta.record_bytes, exact: true, ..FileGarbage::default() };
            ledger.files.insert(number, garbage);
            ledger.record_bytes = ledger.record_bytes.saturating_add(meta.record_bytes);
        }
        for (name, totals) in version.references.iter() {
            ledger.referenced_bytes = ledger.referenced_bytes.saturating_add(totals.stored_bytes);
            ledger.references = ledger.references.saturating_add(totals.count);
            let mut targets = version.resolve_all(name);
            match (targets.next(), targets.next()) {
                (Some(only), None) => ledger.refer(only.number, totals, (1, 1), true),
                (Some(first), Some(second)) => {
                    ledger.share_out(totals, [first, second].into_iter().chain(targets));
                }
                // A version is refused that references a name which leads nowhere.
                (None, _) => {}
            }
        }
        for file in ledger.files.values_mut() {
            file.referenced_bytes = file.referenced_bytes.min(file.record_bytes);
            file.garbage_bytes = file.record_bytes - file.referenced_bytes;
        }
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

    fn refer(&mut self, number: u64, totals: &ReferenceTotals, (part, all): (u128, u128), exact: bool) {
        let share = |n: u64| if part == all { n } else { (u128::from(n) * part / all.max(1)) as u64 };
        let Some(file) = self.files.get_mut(&number) else { return };
        file.referenced_bytes = file.referenced_bytes.saturating_add(share(totals.stored_bytes));
        file.references = file.references.saturating_add(share(totals.count));
        file.exact &= exact;
    }

    /// The garbage of one file; all zeros for a file that is not in the version.
    pub fn garbage_of(&self, file: u64) -> FileGarbage {
        self.files.get(&file).copied().unwrap_or_default()
    }

    /// Every file with its garbage, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &FileGarbage)> + '_ {
        self.files.iter().map(|(&number, garbage)| (number, garbage))
    }

    /// Bytes of all records of all files.
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Bytes of the records that tables reference.
    pub fn referenced_bytes(&self) -> u64 {
        self.referenced_bytes
    }

    /// References of all tables.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Exposed garbage of all files: exact, whatever names lead to several files.
    pub fn exposed_bytes(&self) -> u64 {
        self.record_bytes.saturating_sub(self.referenced_bytes)
    }

    /// How much of what tables reference is garbage that compaction has not met yet. `version` must be the one that
    /// the ledger was made of.
    ///
    /// An entry can hide at most one record that is live otherwise: the next older one of its key in a deeper level.
    /// So the references of a level that are hidden are bounded by the number of entries above it (`high`: they hide the
    /// longest, as if those in the same vSST were of one length; a range tombstone may hide all). `likely` takes every
    /// entry above the last level to be the overwriting of a random key under it, as in a store in its steady state
    /// (Scavenger+, equation 2: hidden garbage to live data is as the upper levels to the last), and counts a key that is
    /// hit twice once. `low` is what the tombstones are estimated to hide: that keys are overwritten is a guess, that they
    /// are deleted is not.
    pub fn hidden(&self, version: &Version) -> HiddenEstimate {
        self.hidden_at(version, None)
    }

    /// As [`Ledger::hidden`]: the part that a reader at `snapshot` still sees, because what hides it is newer, and that
    /// compaction must therefore keep for it. Where a table has entries from before and after, they count by where the
    /// snapshot lies between the sequences of the table.
    pub fn hidden_from(&self, version: &Version, snapshot: SeqNo) -> HiddenEstimate {
        self.hidden_at(version, Some(snapshot))
    }

    fn hidden_at(&self, version: &Version, snapshot: Option<SeqNo>) -> HiddenEstimate {
        // The files of level 0 overlap, newest first: each hides what is in those after it.
        let newest = version.files(0).chunks(1);
        let deeper = version.levels.iter().skip(1).map(|level| &level[..]);
        let mut estimate = HiddenEstimate::default();
        let mut above = LevelTotals::default();
        // The most that may hide, and may be hidden: all of a table with entries on that side of the snapshot.
        let may_hide = |f: &version::FileMeta| snapshot.is_none_or(|at| f.max_seq > at);
        let may_be_hidden = |f: &version::FileMeta| snapshot.is_none_or(|at| f.min_seq <= at);
        let (mut stones, mut ranges) = (0u64, 0u64);
        for files in newest.chain(deeper) {
            // A range tombstone may cover everything under it.
            let hits = if ranges > 0 { u64::MAX } else { stones };
            let most = longest(files.iter().filter(|f| may_be_hidden(f)), hits);
            estimate.high = estimate.high.saturating_add(most);
            for file in files.iter().filter(|f| may_hide(f)) {
                stones = stones.saturating_add(file.entries);
                ranges = ranges.saturating_add(file.range_tombstones);
            }
            let level = &LevelTotals::of(files, |file| snapshot.map_or(ALL, |at| older_ppm(file, at)));
            if level.references > 0 {
                // Throwing n stones at m targets hits m (1 - e^(-n/m)) of them.
                let (stones, targets) = (above.entries as f64, level.references.max(level.entries) as f64);
                let hit = level.stored_bytes as f64 * -(-stones / targets).exp_m1();
                estimate.likely = estimate.likely.saturating_add(hit as u64);
                estimate.low = estimate.low.saturating_add(above.hidden_bytes.min(level.stored_bytes));
            }
            above.add(&LevelTotals::of(files, |file| snapshot.map_or(ALL, |at| ALL - older_ppm(file, at))));
        }
        estimate.high = estimate.high.min(self.referenced_bytes);
        estimate.low = estimate.low.min(estimate.high);
        estimate.likely = estimate.likely.clamp(estimate.low, estimate.high);
        estimate
    }
}

/// All of a file, in parts of a million.
const ALL: u64 = 1_000_000;

/// What part of the entries of a file a reader at the snapshot sees, in parts of a million.
fn older_ppm(file: &version::FileMeta, snapshot: SeqNo) -> u64 {
    if snapshot >= file.max_seq {
        return ALL;
    }
    let (seen, all) = (snapshot.saturating_sub(file.min_seq), file.max_seq - file.min_seq);
    if snapshot < file.min_seq { 0 } else { (u128::from(seen) * u128::from(ALL) / u128::from(all)) as u64 }
}

/// Bytes of the `count` longest records that the tables reference, if those under one name are of one length.
fn longest<'f>(files: impl Iterator<Item = &'f Arc<version::FileMeta>>, count: u64) -> u64 {
    let mut names: Vec<_> = files.flat_map(|f| &f.dependencies).map(|d| (d.stored_bytes, d.count)).collect();
    let mean = |&(bytes, count): &(u64, u64)| bytes / count.max(1);
    names.sort_by_key(|name| std::cmp::Reverse(mean(name)));
    let (mut left, mut sum) = (count, 0u64);
    for (bytes, count) in names {
        let taken = if left >= count { bytes } else { mean(&(bytes, count)).saturating_mul(left) };
        sum = sum.saturating_add(taken);
        left = left.saturating_sub(count);
    }
    sum
}

/// What the hidden garbage of a level is estimated from.
#[derive(Clone, Copy, Debug, Default)]
struct LevelTotals {
    entries: u64,
    references: u64,
    stored_bytes: u64,
    hidden_bytes: u64,
}

impl LevelTotals {
    /// `part`: how much of each file counts, in parts of a million.
    fn of(files: &[Arc<version::FileMeta>], part: impl Fn(&version::FileMeta) -> u64) -> LevelTotals {
        let mut totals = LevelTotals::default();
        for file in files {
            let part = part(file);
            let add = |sum: &mut u64, all: u64| {
                *sum = sum.saturating_add((u128::from(all) * u128::from(part) / u128::from(ALL)) as u64);
            };
            add(&mut totals.entries, file.entries);
            add(&mut totals.hidden_bytes, file.hidden_bytes);
            for d in &file.dependencies {
                add(&mut totals.references, d.count);
                add(&mut totals.stored_bytes, d.stored_bytes);
            }
        }
        totals
    }

    fn add(&mut self, other: &LevelTotals) {
        self.entries = self.entries.saturating_add(other.entries);
        self.references = self.references.saturating_add(other.references);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.hidden_bytes = self.hidden_bytes.saturating_add(other.hidden_bytes);
    }
}

#[cfg(test)]
mod tests;
