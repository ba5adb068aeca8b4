//! The collectable files, sorted by the criteria of the choice.
//!
//! A file is sorted in when it is added, and again when some of its records have died. Only a new
//! threshold requires a pass over all groups. There are few thresholds, and the most recently used
//! ones are kept.

use super::FileFacts;
use crate::entry::Source;
use crate::lsn_set::Size;
use base::HashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Live share in millionths, then the tie-breakers.
type ByLive = (u64, u64, Source);
/// The same for cold files: among equals, a later generation, which holds the longest-lived
/// records, comes last.
type ColdByLive = (u64, u32, Reverse<u64>, Source);

/// Maximum number of kept thresholds: as many as one choice tries while space is short.
const THRESHOLDS_MAX: usize = 8;

/// The collectable files.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    facts: HashMap<Source, FileFacts>,
    dead: BTreeSet<Source>,
    /// Groups by age.
    groups: BTreeSet<(u64, Source)>,
    groups_by_live: BTreeSet<ByLive>,
    /// For some thresholds in percent, the groups with at least this share of garbage, by age. The
    /// most recently used threshold is last.
    worth_it: Vec<(u32, BTreeSet<(u64, Source)>)>,
    /// Total size of all files, and of copies of their live records.
    bytes: u128,
    copy_bytes: u128,
    cold_by_live: BTreeSet<ColdByLive>,
    /// Cold files of each generation, by size.
    cold: BTreeMap<u32, BTreeSet<(u64, Source)>>,
}

impl Candidates {
    /// Creates the candidates from distinct files.
    pub fn of(files: &[FileFacts]) -> Candidates {
        let mut out = Candidates::default();
        files.iter().for_each(|file| out.set(*file));
        out
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Adds a file, or replaces its facts.
    pub fn set(&mut self, file: FileFacts) {
        self.remove(file.source);
        let FileFacts { source, bytes, age, generation, .. } = file;
        if file.is_dead() {
            self.dead.insert(source);
        }
        if file.is_group() {
            self.groups.insert((age, source));
            self.groups_by_live.insert((file.live_ppm(), age, source));
            for (percent, worth_it) in &mut self.worth_it {
                if file.is_worth_it(*percent) {
                    worth_it.insert((age, source));
                }
            }
        } else {
            self.cold_by_live.insert((file.live_ppm(), generation, Reverse(bytes), source));
            self.cold.entry(generation).or_default().insert((bytes, source));
        }
        self.bytes += u128::from(bytes);
        self.copy_bytes += u128::from(file.copy_bytes());
        self.facts.insert(source, file);
    }

    /// Updates the live records of a file. Ignores unknown files.
    pub fn set_live(&mut self, source: Source, live: Size) {
        if let Some(facts) = self.facts.get(&source).copied().filter(|facts| facts.live != live) {
            self.set(FileFacts { live, ..facts });
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, source: Source) {
        let Some(file) = self.facts.remove(&source) else { return };
        let FileFacts { bytes, age, generation, .. } = file;
        self.bytes -= u128::from(bytes);
        self.copy_bytes -= u128::from(file.copy_bytes());
        self.dead.remove(&source);
        if file.is_group() {
            self.groups.remove(&(age, source));
            self.groups_by_live.remove(&(file.live_ppm(), age, source));
            for (_, worth_it) in &mut self.worth_it {
                worth_it.remove(&(age, source));
            }
            return;
        }
        self.cold_by_live.remove(&(file.live_ppm(), generation, Reverse(bytes), source));
        if let Some(files) = self.cold.get_mut(&generation) {
            files.remove(&(bytes, source));
            if files.is_empty() {
                self.cold.remove(&generation);
            }
        }
    }

    /// Sets the minimum share of garbage in percent, for [`Candidates::groups`] and
    /// [`Candidates::cold`].
    pub(super) fn set_threshold(&mut self, garbage_percent: u32) {
        match self.worth_it.iter().position(|(percent, _)| *percent == garbage_percent) {
            Some(at) => self.worth_it[at..].rotate_left(1),
            None => {
                let groups = self.groups_by_live.iter().filter_map(|(_, _, source)| self.facts.get(source));
                let worth_it = worth(groups, garbage_percent).map(|file| (file.age, file.source)).collect();
                self.worth_it.push((garbage_percent, worth_it));
                let surplus = self.worth_it.len().saturating_sub(THRESHOLDS_MAX);
                self.worth_it.drain(..surplus);
            }
        }
    }

    /// Returns the current threshold.
    fn garbage_percent(&self) -> u32 {
        self.worth_it.last().map_or(0, |(percent, _)| *percent)
    }

    /// Returns true if at least this percentage of all files together is garbage.
    pub(super) fn have_garbage(&self, percent: u32) -> bool {
        (self.bytes - self.copy_bytes) * 100 >= self.bytes * u128::from(percent)
    }

    /// Returns the age of the youngest group with this many younger groups.
    pub(super) fn age_of_younger(&self, groups: usize) -> Option<u64> {
        self.groups.iter().nth_back(groups).map(|(age, _)| *age)
    }

    /// Returns at most `limit` files without live records.
    pub(super) fn dead(&self, limit: usize) -> Vec<Source> {
        self.dead.iter().take(limit).copied().collect()
    }

    /// Returns the oldest group.
    pub(super) fn oldest(&self) -> Option<&FileFacts> {
        self.facts.get(&self.groups.first()?.1)
    }

    /// Iterates over the groups at or above the threshold, by age or by live share.
    pub(super) fn groups(&self, by_age: bool) -> Box<dyn Iterator<Item = &FileFacts> + '_> {
        let by_live = self.groups_by_live.iter().map(|(_, _, source)| source);
        match (by_age, self.worth_it.last()) {
            (true, Some((_, worth_it))) => {
                Box::new(worth_it.iter().filter_map(|(_, source)| self.facts.get(source)))
            }
            _ => Box::new(worth(by_live.filter_map(|source| self.facts.get(source)), self.garbage_percent())),
        }
    }

    /// Iterates over the cold files at or above the threshold, by live share.
    pub(super) fn cold(&self) -> impl Iterator<Item = &FileFacts> + '_ {
        let files = self.cold_by_live.iter().filter_map(|(.., source)| self.facts.get(source));
        worth(files, self.garbage_percent())
    }

    /// Iterates over the cold files of a generation, shortest first.
    pub(super) fn smallest(&self, generation: u32) -> impl Iterator<Item = &FileFacts> + '_ {
        let files = self.cold.get(&generation).into_iter().flatten();
        files.filter_map(|(_, source)| self.facts.get(source))
    }
}

/// Filters files sorted by live share to those with at least this percentage of garbage.
fn worth<'a>(
    files: impl Iterator<Item = &'a FileFacts>,
    garbage_percent: u32,
) -> impl Iterator<Item = &'a FileFacts> {
    let most_ppm = u64::from(100 - garbage_percent.min(100)) * 10_000;
    files
        .take_while(move |file| file.live_ppm() <= most_ppm)
        .filter(move |file| file.is_worth_it(garbage_percent))
}
