//! What to collect next: a pure function of facts about files.
//!
//! Logs are trimmed from their beginnings, so the oldest group is most often the one with the most garbage, and the paper takes
//! the oldest always (LavaStore, PVLDB 17(12)). That fails where something old is kept, which it leaves open: one log that is not trimmed
//! makes every old group worth keeping. So:
//!
//! 1. Files of which nothing is alive go first, all at once: they cost no copying.
//! 2. Of the groups that are worth it (their garbage is at least the threshold), the oldest is taken, and those after it in age until as much
//!    becomes free as is wanted, as long as what is alive in all of them fits one output.
//! 3. If more than 80 % of the oldest group of all is alive, age says nothing: the groups with the least alive are taken instead.
//! 4. A cold file is taken if less of it is alive than of the group that would be taken. Cold files have no order in age: what is alive decides.
//!
//! Groups and cold files are not mixed, nor are cold files of several *generations* (how often their records were copied). Otherwise
//! records that were just copied for the first time would lie among those that will stay for ever, die, and drag these along.
//! So of a log that is never trimmed, among others that are, each record is copied once with what of the others is not trimmed yet, and
//! once more when that is; then it lies among its own, of which nothing dies. That takes room: in the simulation of the tests it
//! holds until 60 % of the budget is alive. Above, files are collected before the others' records in them have died, and the second
//! copies are mixed again.
//!
//! What counts is the room that a copy takes, not the bytes of records: padding of small batches and key-value bytes of
//! joint ones are garbage, too, because a copy does not have them. A cold file of which all is alive has none, whatever its
//! records cost beside their bytes.

use crate::entry::Source;
use crate::lsn_set::Size;
use std::cmp::Reverse;

/// Bytes that a record takes in a cold file beside its own, its row in the index included: what it is counted as.
pub const RECORD_COST: u64 = 24;

/// What records take in a cold file.
fn cost(size: Size) -> u64 {
    size.bytes.saturating_add(size.records.saturating_mul(RECORD_COST))
}

/// What is known of a group that is not needed for replay, or of a cold file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Which it is.
    pub source: Source,
    /// Bytes that are free when it is gone; of a group with those of its index file.
    pub bytes: u64,
    /// Its records when it was written.
    pub written: Size,
    /// Those that are alive.
    pub live: Size,
    /// Its place in the order of age: the smaller, the older. Of groups the log tag number will do.
    pub age: u64,
    /// How often its records were copied: 0 for a group.
    pub generation: u32,
}

impl FileFacts {
    /// Bytes that a copy of what is alive takes.
    pub fn copy_bytes(&self) -> u64 {
        let live = cost(self.live);
        match self.source {
            Source::Group(_) => live.min(self.bytes),
            // A cold file is nothing but records: what they take there is known.
            Source::Cold(_) => {
                let written = u128::from(cost(self.written).max(1));
                let share = u128::from(self.bytes) * u128::from(live);
                u64::try_from(share.div_ceil(written)).unwrap_or(u64::MAX).min(self.bytes)
            }
        }
    }

    /// Bytes that collecting it frees in the end.
    pub fn garbage_bytes(&self) -> u64 {
        self.bytes - self.copy_bytes()
    }

    /// What a copy takes, of a million of its bytes.
    fn live_ppm(&self) -> u64 {
        let share = u128::from(self.copy_bytes()) * 1_000_000 / u128::from(self.bytes.max(1));
        share as u64
    }

    fn is_dead(&self) -> bool {
        self.live.records == 0
    }
}

/// When and how much is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickOptions {
    /// A file is worth it from this share of garbage on. Lower it as room gets short.
    pub garbage_percent: u32,
    /// If more than this share of the oldest group is alive, groups are taken by what is alive instead of by age.
    pub live_head_percent: u32,
    /// The bytes that are to become free. Files are taken until they are: those that come later have had less time to become garbage.
    pub wanted_bytes: u64,
    /// The most bytes that are copied into one output. A file of which more is alive is taken alone.
    pub output_bytes: u64,
    /// The room there is for an output. Nothing is taken that does not fit.
    pub room_bytes: u64,
    /// The most files that are taken together.
    pub inputs_max: usize,
}

impl Default for PickOptions {
    fn default() -> Self {
        PickOptions {
            garbage_percent: 50,
            live_head_percent: 80,
            wanted_bytes: 256 << 20,
            output_bytes: 256 << 20,
            room_bytes: u64::MAX,
            inputs_max: 16,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Nothing of these is alive: they can go as they are.
    Free(Vec<Source>),
    /// What is alive of these is copied into a cold file, then they go.
    Copy {
        /// Which files, all groups or all cold files of one generation.
        inputs: Vec<Source>,
        /// The generation of the output.
        generation: u32,
        /// About how many bytes are copied.
        copy_bytes: u64,
        /// About how many bytes are free in the end.
        free_bytes: u64,
    },
}

/// What is most worth collecting of `files`, if anything is. Files that are busy, or cannot be read, are left out by the caller; each
/// file stands there once.
pub fn pick(files: &[FileFacts], options: &PickOptions) -> Option<Pick> {
    let dead: Vec<Source> = files.iter().filter(|file| file.is_dead()).map(|file| file.source).collect();
    if !dead.is_empty() {
        return Some(Pick::Free(dead));
    }
    let by_age = !head_is_live(files, options);
    let is_worth_it = |file: &&FileFacts| {
        let garbage = u128::from(file.garbage_bytes()) * 100;
        let threshold = u128::from(file.bytes) * u128::from(options.garbage_percent);
        garbage > 0 && garbage >= threshold && file.copy_bytes() <= options.room_bytes
    };
    let (mut groups, mut cold): (Vec<&FileFacts>, Vec<&FileFacts>) =
        files.iter().filter(is_worth_it).partition(|file| matches!(file.source, Source::Group(_)));
    groups.sort_by_key(|file| (if by_age { 0 } else { file.live_ppm() }, file.age, file.source));
    // Later generations hold what lives longest: let them wait, if all else is equal.
    cold.sort_by_key(|file| (file.live_ppm(), file.generation, Reverse(file.bytes), file.source));
    let cold_is_better = match (groups.first(), cold.first()) {
        (Some(group), Some(cold)) => cold.live_ppm() < group.live_ppm(),
        (None, cold) => cold.is_some(),
        (Some(_), None) => false,
    };
    copy(if cold_is_better { &cold } else { &groups }, options)
}

/// True if the oldest group is hardly worth copying.
fn head_is_live(files: &[FileFacts], options: &PickOptions) -> bool {
    let groups = files.iter().filter(|file| matches!(file.source, Source::Group(_)));
    let head = groups.min_by_key(|file| (file.age, file.source));
    head.is_some_and(|head| head.live_ppm() > u64::from(options.live_head_percent) * 10_000)
}

/// The first of the candidates, and those after it that fit with it.
fn copy(candidates: &[&FileFacts], options: &PickOptions) -> Option<Pick> {
    let first = candidates.first()?;
    let (mut inputs, mut copy_bytes, mut free_bytes) = (Vec::new(), 0u64, 0u64);
    for file in candidates.iter().filter(|file| file.generation == first.generation) {
        let sum = copy_bytes.saturating_add(file.copy_bytes());
        if !inputs.is_empty() {
            if inputs.len() >= options.inputs_max || free_bytes >= options.wanted_bytes {
                break;
            }
            if sum > options.output_bytes.min(options.room_bytes) {
                continue;
            }
        }
        inputs.push(file.source);
        copy_bytes = sum;
        free_bytes = free_bytes.saturating_add(file.garbage_bytes());
    }
    Some(Pick::Copy { inputs, generation: first.generation.saturating_add(1), copy_bytes, free_bytes })
}

#[cfg(test)]
mod tests;
