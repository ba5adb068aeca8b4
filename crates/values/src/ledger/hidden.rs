//! How much of what tables reference is hidden garbage: an estimate, with bounds.

use super::{HiddenEstimate, Ledger, narrow};
use base::SeqNo;
use std::sync::Arc;
use version::{LevelSums, Version};

impl Ledger {
    /// How much of what tables reference is garbage that compaction has not met yet. `version` must be the one that
    /// the ledger was made of.
    ///
    /// An entry can hide at most one record that is live otherwise: the next older one of its key in a deeper level.
    /// So the references of a level that are hidden are bounded by the number of entries above it (`high`: they hide the
    /// longest, as if those of one table, or those under one name, were of one length, whichever is more; a range tombstone may
    /// hide all). `likely` takes every
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

    /// About [`HiddenEstimate::likely`], worked out of the sums of the levels and the tables of level 0: for each version, where
    /// the other needs a walk over what all tables reference. It is not held against [`HiddenEstimate::high`], which it can
    /// pass only by what tombstones are said to hide.
    pub fn hidden_likely(&self, version: &Version) -> u64 {
        let newest = version.files(0).iter().map(|file| LevelTotals::of(std::slice::from_ref(file), |_| ALL));
        let deeper = version.levels.iter().skip(1).map(|level| LevelTotals::from(level.sums()));
        let (mut above, mut low, mut likely) = (LevelTotals::default(), 0u64, 0u64);
        for level in newest.chain(deeper) {
            let (least, about) = above.hides(&level);
            (low, likely) = (low.saturating_add(least), likely.saturating_add(about));
            above.add(&level);
        }
        likely.max(low).min(self.referenced_bytes())
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
        let names = ByLength::of(version.references.values().map(|of| (of.stored_bytes, of.count)));
        for files in newest.chain(deeper) {
            // A range tombstone may cover everything under it.
            let hits = if ranges > 0 { u64::MAX } else { stones };
            let sums = files.iter().filter(|f| may_be_hidden(f)).map(|f| f.uses.sums());
            let tables = ByLength::of(sums.map(|of| (of.stored_bytes, of.references)));
            let most = tables.longest(hits).max(names.longest(hits).min(tables.bytes()));
            estimate.high = estimate.high.saturating_add(most);
            for file in files.iter().filter(|f| may_hide(f)) {
                stones = stones.saturating_add(file.entries);
                ranges = ranges.saturating_add(file.range_tombstones);
            }
            let level = &LevelTotals::of(files, |file| snapshot.map_or(ALL, |at| older_ppm(file, at)));
            let (low, likely) = above.hides(level);
            estimate.low = estimate.low.saturating_add(low);
            estimate.likely = estimate.likely.saturating_add(likely);
            above.add(&LevelTotals::of(files, |file| snapshot.map_or(ALL, |at| ALL - older_ppm(file, at))));
        }
        estimate.high = estimate.high.min(self.referenced_bytes());
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

/// Bytes and number of records that are taken to be of one length, the longest first.
struct ByLength(Vec<(u64, u64)>);

impl ByLength {
    fn of(records: impl Iterator<Item = (u64, u64)>) -> ByLength {
        let mut records: Vec<(u64, u64)> = records.collect();
        records.sort_by_key(|of| std::cmp::Reverse(mean(of)));
        ByLength(records)
    }

    /// Bytes of the `count` longest.
    fn longest(&self, count: u64) -> u64 {
        let (mut left, mut sum) = (count, 0u64);
        for of in &self.0 {
            if left == 0 {
                break;
            }
            let taken = if left >= of.1 { of.0 } else { mean(of).saturating_mul(left) };
            sum = sum.saturating_add(taken);
            left = left.saturating_sub(of.1);
        }
        sum
    }

    fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, of| sum.saturating_add(of.0))
    }
}

fn mean((bytes, count): &(u64, u64)) -> u64 {
    bytes / (*count).max(1)
}

/// What the hidden garbage of a level is estimated from.
#[derive(Clone, Copy, Debug, Default)]
struct LevelTotals {
    entries: u64,
    references: u64,
    stored_bytes: u64,
    hidden_bytes: u64,
}

impl From<&LevelSums> for LevelTotals {
    fn from(sums: &LevelSums) -> Self {
        LevelTotals {
            entries: narrow(sums.entries),
            references: narrow(sums.references),
            stored_bytes: narrow(sums.stored_bytes),
            hidden_bytes: narrow(sums.hidden_bytes),
        }
    }
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
            add(&mut totals.references, file.uses.sums().references);
            add(&mut totals.stored_bytes, file.uses.sums().stored_bytes);
        }
        totals
    }

    /// What levels above with these totals hide of one below: at least about so much, and likely.
    fn hides(&self, below: &LevelTotals) -> (u64, u64) {
        if below.references == 0 {
            return (0, 0);
        }
        // Throwing n stones at m targets hits m (1 - e^(-n/m)) of them.
        let (stones, targets) = (self.entries as f64, below.references.max(below.entries) as f64);
        let hit = below.stored_bytes as f64 * -(-stones / targets).exp_m1();
        (self.hidden_bytes.min(below.stored_bytes), hit as u64)
    }

    fn add(&mut self, other: &LevelTotals) {
        self.entries = self.entries.saturating_add(other.entries);
        self.references = self.references.saturating_add(other.references);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.hidden_bytes = self.hidden_bytes.saturating_add(other.hidden_bytes);
    }
}
