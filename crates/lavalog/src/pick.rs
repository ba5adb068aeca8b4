//! What to collect next: a function of facts about files, which are kept in the orders that it asks for ([`Candidates`]), so that it
//! looks at those that it takes and not at all.
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
//! 5. If nothing is worth it, small cold files of the first generation are put together, once they make a file that is not small, or there
//!    are [`MERGED_MAX`] of them: a file costs an open, a read of its directory and a few hundred bytes of memory at each start, and a part
//!    in each of its logs, however little it has.
//!
//! Groups and cold files are not mixed, nor are cold files of several *generations* (how often their records were copied). Otherwise
//! records that were just copied for the first time would lie among those that will stay for ever, die, and drag these along.
//! With the second copy logs are parted ([`Company`]): from then on a record is copied again only because records of its own log died.
//! So of a log that is never trimmed, among others that are, each record is copied at most twice, however full the store is: once
//! with what of the others is not trimmed yet, and once more when that is.
//!
//! A second copy is so the last chance to make a long file of what stays, and waits until there is enough for one
//! ([`PickOptions::second_bytes_min`]), unless room is short.
//!
//! Nothing is copied as long as less than the threshold of all files together is garbage: what is half dead now is dead soon where logs are
//! trimmed from their beginnings, and goes without a copy then. So the threshold is what the store keeps to, not each of its files.
//!
//! What counts is the room that a copy takes, not the bytes of records: padding of small batches and key-value bytes of
//! joint ones are garbage, too, because a copy does not have them. A cold file of which all is alive has none, whatever its
//! records cost beside their bytes. But of a group that has nothing else the records are as likely as any to be trimmed soon, and nothing is
//! gained by having waited less: it is worth it only when [`PickOptions::padded_groups`] younger ones are there. (One writer of 1,000 B
//! fills a quarter of its pages of 4 KiB. Copied at once, each record was written twice.)

mod candidates;
mod company;

pub use candidates::Candidates;
pub use company::Company;

use crate::entry::Source;
use crate::lsn_set::Size;

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

    /// Bytes of its records that have died, as a copy counts them.
    fn died_bytes(&self) -> u64 {
        cost(self.written).saturating_sub(cost(self.live))
    }

    /// True if so much of it has died, percent: what was never alive does not count.
    fn has_died(&self, garbage_percent: u32) -> bool {
        let died = u128::from(self.died_bytes()) * 100;
        died > 0 && died >= u128::from(cost(self.written)) * u128::from(garbage_percent)
    }

    /// True if so much of it is garbage, percent, and any at all.
    fn is_worth_it(&self, garbage_percent: u32) -> bool {
        let garbage = u128::from(self.garbage_bytes()) * 100;
        garbage > 0 && garbage >= u128::from(self.bytes) * u128::from(garbage_percent)
    }

    fn is_group(&self) -> bool {
        matches!(self.source, Source::Group(_))
    }
}

/// When and how much is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickOptions {
    /// A file is worth it from this share of garbage on. Lower it as room gets short.
    pub garbage_percent: u32,
    /// Nothing is copied as long as less than this share of all files is garbage, percent.
    pub all_garbage_percent: u32,
    /// A group of which less than the threshold has died, and the rest is padding, is worth it when there are so many younger ones.
    pub padded_groups: usize,
    /// If more than this share of the oldest group is alive, groups are taken by what is alive instead of by age.
    pub live_head_percent: u32,
    /// The bytes that are to become free. Files are taken until they are: those that come later have had less time to become garbage.
    pub wanted_bytes: u64,
    /// Files of the first generation are copied when so much is alive of those that are worth it, or as many files or as much garbage as are
    /// taken at once.
    pub second_bytes_min: u64,
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
            all_garbage_percent: 0,
            padded_groups: 0,
            live_head_percent: 80,
            wanted_bytes: 256 << 20,
            second_bytes_min: 0,
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

impl Pick {
    /// How many files it takes.
    pub fn files(&self) -> usize {
        let (Pick::Free(inputs) | Pick::Copy { inputs, .. }) = self;
        inputs.len()
    }

    /// True if it is worth a second copy.
    fn is_enough(&self, options: &PickOptions) -> bool {
        match self {
            Pick::Free(_) => true,
            Pick::Copy { inputs, copy_bytes, free_bytes, .. } => {
                *copy_bytes >= options.second_bytes_min
                    || *free_bytes >= options.wanted_bytes
                    || inputs.len() >= options.inputs_max
            }
        }
    }
}

/// So many small cold files are put together, and not fewer.
const MERGED_MIN: usize = 16;
/// So many are put together however short they are, and not more.
pub const MERGED_MAX: usize = 256;
/// The most files that are dropped at once.
const FREED_MAX: usize = 256;
/// A cold file is small if it has no more than this part of an output.
const SMALL_PART: u64 = 16;
/// So many candidates are looked at for one output.
const LOOKED_AT_MAX: usize = 1024;

/// What is most worth collecting of the candidates, if anything is. Files that are busy, or cannot be read, are left out by the caller.
pub fn pick(files: &mut Candidates, options: &PickOptions) -> Option<Pick> {
    let dead = files.dead(FREED_MAX);
    if !dead.is_empty() {
        return Some(Pick::Free(dead));
    }
    if !files.have_garbage(options.all_garbage_percent) {
        return merge(files, options);
    }
    files.set_threshold(options.garbage_percent);
    let head_ppm = u64::from(options.live_head_percent) * 10_000;
    let by_age = files.oldest().is_none_or(|head| head.live_ppm() <= head_ppm);
    let fits = |file: &&FileFacts| file.copy_bytes() <= options.room_bytes;
    let padded_age = files.age_of_younger(options.padded_groups);
    let is_due = |file: &&FileFacts| {
        file.has_died(options.garbage_percent) || padded_age.is_some_and(|age| file.age <= age)
    };
    // Those that are passed over as not due yet are among the youngest: a few.
    let groups = |by_age: bool| files.groups(by_age).filter(is_due).filter(fits);
    let second = copy(files.cold().filter(fits).filter(|file| file.generation == 1), options);
    let waits = second.is_some_and(|second| !second.is_enough(options));
    let cold = || files.cold().filter(fits).filter(|file| !waits || file.generation != 1);
    let (group, best) = (groups(by_age).next(), cold().next());
    let cold_is_better = match (group, best) {
        (Some(group), Some(cold)) => cold.live_ppm() < group.live_ppm(),
        (None, cold) => cold.is_some(),
        (Some(_), None) => false,
    };
    let picked = match cold_is_better {
        true => copy(cold(), options),
        false => copy(groups(by_age), options),
    };
    picked.or_else(|| merge(files, options))
}

/// The first of the candidates, and those after it that fit with it.
fn copy<'a>(candidates: impl Iterator<Item = &'a FileFacts>, options: &PickOptions) -> Option<Pick> {
    let mut candidates = candidates.peekable();
    let generation = candidates.peek()?.generation;
    let (mut inputs, mut copy_bytes, mut free_bytes) = (Vec::new(), 0u64, 0u64);
    for file in candidates.take(LOOKED_AT_MAX).filter(|file| file.generation == generation) {
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
    Some(Pick::Copy { inputs, generation: generation.saturating_add(1), copy_bytes, free_bytes })
}

/// Small cold files of the first generation, if they make one that is not small, or there are very many. (What was copied twice is not
/// copied again for that.)
fn merge(files: &Candidates, options: &PickOptions) -> Option<Pick> {
    let small_bytes = options.output_bytes / SMALL_PART;
    let small = files.smallest(1).take(MERGED_MAX);
    let (mut inputs, mut copy_bytes, mut free_bytes) = (Vec::new(), 0u64, 0u64);
    for file in small.take_while(|file| file.bytes <= small_bytes) {
        let sum = copy_bytes.saturating_add(file.copy_bytes());
        if sum > options.output_bytes.min(options.room_bytes) {
            break;
        }
        inputs.push(file.source);
        copy_bytes = sum;
        free_bytes = free_bytes.saturating_add(file.garbage_bytes());
    }
    let is_one = inputs.len() >= MERGED_MIN && copy_bytes > small_bytes;
    let picked = Pick::Copy { generation: 2, copy_bytes, free_bytes, inputs };
    (is_one || picked.files() >= MERGED_MAX).then_some(picked)
}

#[cfg(test)]
mod tests;
