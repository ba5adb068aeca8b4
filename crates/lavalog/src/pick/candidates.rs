//! The files that may be collected, in the orders in which they are asked for.
//!
//! A file is put in its places when it comes, and anew when something of it has died; nothing goes through all of them, but when a
//! threshold comes that was not there before. There are few, and those that were asked for last are kept.

use super::FileFacts;
use crate::entry::Source;
use crate::lsn_set::Size;
use base::HashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Of how much is alive in a million, and what decides between files that are alike.
type ByLive = (u64, u64, Source);
/// The same of cold files: later generations hold what lives longest, and wait if all else is equal.
type ColdByLive = (u64, u32, Reverse<u64>, Source);

/// So many thresholds are kept: as many as are gone through while room is short.
const THRESHOLDS_MAX: usize = 8;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    facts: HashMap<Source, FileFacts>,
    dead: BTreeSet<Source>,
    /// Groups by age.
    groups: BTreeSet<(u64, Source)>,
    groups_by_live: BTreeSet<ByLive>,
    /// For some thresholds, the one that was asked for last at the end: the groups of which at least so many percent are garbage, by age.
    worth_it: Vec<(u32, BTreeSet<(u64, Source)>)>,
    /// What all of them occupy, and what copies of them would.
    bytes: u128,
    copy_bytes: u128,
    cold_by_live: BTreeSet<ColdByLive>,
    /// Cold files of each generation by their bytes.
    cold: BTreeMap<u32, BTreeSet<(u64, Source)>>,
}

impl Candidates {
    /// Those files; each stands there once.
    pub fn of(files: &[FileFacts]) -> Candidates {
        let mut out = Candidates::default();
        files.iter().for_each(|file| out.set(*file));
        out
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// A file has come, or something of it has changed.
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

    /// So much of a file is alive; nothing, if it is none of them.
    pub fn set_live(&mut self, source: Source, live: Size) {
        if let Some(facts) = self.facts.get(&source).copied().filter(|facts| facts.live != live) {
            self.set(FileFacts { live, ..facts });
        }
    }

    /// A file is none of them any more.
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

    /// From which share of garbage on a file is worth it, percent: for [`Candidates::groups`] and [`Candidates::cold`].
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

    /// The threshold.
    fn garbage_percent(&self) -> u32 {
        self.worth_it.last().map_or(0, |(percent, _)| *percent)
    }

    /// True if so much of all of them together is garbage, percent.
    pub(super) fn have_garbage(&self, percent: u32) -> bool {
        (self.bytes - self.copy_bytes) * 100 >= self.bytes * u128::from(percent)
    }

    /// The age of the youngest group that has so many younger ones.
    pub(super) fn age_of_younger(&self, groups: usize) -> Option<u64> {
        self.groups.iter().nth_back(groups).map(|(age, _)| *age)
    }

    /// Files of which nothing is alive, so many at most.
    pub(super) fn dead(&self, limit: usize) -> Vec<Source> {
        self.dead.iter().take(limit).copied().collect()
    }

    /// The oldest group of all.
    pub(super) fn oldest(&self) -> Option<&FileFacts> {
        self.facts.get(&self.groups.first()?.1)
    }

    /// The groups that are worth it: by age, or by what is alive.
    pub(super) fn groups(&self, by_age: bool) -> Box<dyn Iterator<Item = &FileFacts> + '_> {
        let by_live = self.groups_by_live.iter().map(|(_, _, source)| source);
        match (by_age, self.worth_it.last()) {
            (true, Some((_, worth_it))) => {
                Box::new(worth_it.iter().filter_map(|(_, source)| self.facts.get(source)))
            }
            _ => Box::new(worth(by_live.filter_map(|source| self.facts.get(source)), self.garbage_percent())),
        }
    }

    /// The cold files that are worth it, by what is alive.
    pub(super) fn cold(&self) -> impl Iterator<Item = &FileFacts> + '_ {
        let files = self.cold_by_live.iter().filter_map(|(.., source)| self.facts.get(source));
        worth(files, self.garbage_percent())
    }

    /// The cold files of a generation, the shortest first.
    pub(super) fn smallest(&self, generation: u32) -> impl Iterator<Item = &FileFacts> + '_ {
        let files = self.cold.get(&generation).into_iter().flatten();
        files.filter_map(|(_, source)| self.facts.get(source))
    }
}

/// Of files by what is alive, those of which at least so many percent are garbage.
fn worth<'a>(
    files: impl Iterator<Item = &'a FileFacts>,
    garbage_percent: u32,
) -> impl Iterator<Item = &'a FileFacts> {
    let most_ppm = u64::from(100 - garbage_percent.min(100)) * 10_000;
    files
        .take_while(move |file| file.live_ppm() <= most_ppm)
        .filter(move |file| file.is_worth_it(garbage_percent))
}
