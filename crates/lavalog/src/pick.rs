//! Choice of files to collect. The choice depends only on facts about the files, which
//! [`Candidates`] keeps sorted, so that only the chosen files are examined.
//!
//! Logs are trimmed from the front, so the oldest group usually has the most garbage, and the paper
//! always collects the oldest (LavaStore, PVLDB 17(12)). This fails when old records must stay, a
//! case that the paper leaves open: a single untrimmed log makes every old group mostly live. So:
//!
//! 1. Files without live records go first, all at once: they need no copying.
//! 2. A group is worth collecting if its garbage reaches the threshold. Of these the oldest is
//!    taken, then the next ones in age until enough space becomes free. Their live records must fit
//!    one output.
//! 3. If more than 80 % of the oldest group is live, age is a bad criterion: the groups with the
//!    least live data are taken instead.
//! 4. A cold file is taken if a smaller share of it is live than of the group that would be taken.
//!    Cold files have no order of age; only their live share counts.
//! 5. If no file is worth collecting, small cold files of the first generation are merged. This
//!    waits until the result is not small, or there are [`MERGED_MAX`] of them. Even a small file
//!    costs an open, a read of its directory and a few hundred bytes of memory at each start. It
//!    also costs a part in each of its logs.
//!
//! Groups and cold files are not mixed, nor are cold files of different *generations* (the number
//! of times that their records were copied). Otherwise records copied for the first time would join
//! long-lived ones, die, and force another copy of these. From the second copy on, logs are
//! separated ([`ColdClass`]): a record is then copied again only because records of its own log
//! died. So a record of a log that is never trimmed is copied at most twice, however full the store
//! is. The first copy includes untrimmed records of other logs; the second happens after those are
//! trimmed.
//!
//! The second copy is thus the last chance to write long-lived records into a large file. It waits
//! until there is enough for one ([`PickOptions::second_bytes_min`]), unless space is short.
//!
//! Nothing is copied while the garbage in all files together is below the threshold. Where logs are
//! trimmed from the front, a file that is half dead now is soon dead, and is then freed without a
//! copy. So the threshold bounds the garbage of the store, not of each file.
//!
//! Garbage is measured by the space that a copy would save, not by record bytes. Padding of small
//! batches and embedded key-value batches are garbage, too, because a copy omits them. A cold file
//! with only live records has no garbage, whatever its overhead per record. A group whose only
//! garbage is padding is special: its records are as likely as any to be trimmed soon, and an early
//! copy gains nothing. It is collectable only after [`PickOptions::padded_groups`] younger groups
//! exist. (A single writer of 1,000 B records fills a quarter of its 4 KiB pages. With immediate
//! collection each record was written twice.)

mod candidates;
mod cold_class;

pub use candidates::Candidates;
pub use cold_class::ColdClass;

use crate::entry::Source;
use crate::lsn_set::Size;

/// Overhead of a record in a cold file with its index row, bytes.
pub const RECORD_COST: u64 = 24;

/// Returns the space that records take in a cold file.
fn cost(size: Size) -> u64 {
    size.bytes.saturating_add(size.records.saturating_mul(RECORD_COST))
}

/// Facts about a group that replay does not need, or about a cold file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The file.
    pub source: Source,
    /// Bytes that its removal frees; for a group, with its index file.
    pub bytes: u64,
    /// Its records when it was written.
    pub written: Size,
    /// Its live records.
    pub live: Size,
    /// Order of age: lower is older. For a group, its segment number (LTN).
    pub age: u64,
    /// Number of times that its records were copied: 0 for a group.
    pub generation: u32,
}

impl FileFacts {
    /// Returns the size of a copy of the live records.
    pub fn copy_bytes(&self) -> u64 {
        let live = cost(self.live);
        match self.source {
            Source::Group(_) => live.min(self.bytes),
            // A cold file consists of records only, so their size in it is known.
            Source::Cold(_) => {
                let written = u128::from(cost(self.written).max(1));
                let share = u128::from(self.bytes) * u128::from(live);
                u64::try_from(share.div_ceil(written)).unwrap_or(u64::MAX).min(self.bytes)
            }
        }
    }

    /// Returns the bytes that collecting the file frees in the end.
    pub fn garbage_bytes(&self) -> u64 {
        self.bytes - self.copy_bytes()
    }

    /// Returns the size of a copy in millionths of the file's size.
    fn live_ppm(&self) -> u64 {
        let share = u128::from(self.copy_bytes()) * 1_000_000 / u128::from(self.bytes.max(1));
        share as u64
    }

    fn is_dead(&self) -> bool {
        self.live.records == 0
    }

    /// Returns the bytes of dead records, including their overhead in a copy.
    fn died_bytes(&self) -> u64 {
        cost(self.written).saturating_sub(cost(self.live))
    }

    /// Returns true if at least this percentage of the records has died. Padding does not count.
    fn has_died(&self, garbage_percent: u32) -> bool {
        let died = u128::from(self.died_bytes()) * 100;
        died > 0 && died >= u128::from(cost(self.written)) * u128::from(garbage_percent)
    }

    /// Returns true if at least this percentage of the file is garbage, and some of it is.
    fn is_worth_it(&self, garbage_percent: u32) -> bool {
        let garbage = u128::from(self.garbage_bytes()) * 100;
        garbage > 0 && garbage >= u128::from(self.bytes) * u128::from(garbage_percent)
    }

    fn is_group(&self) -> bool {
        matches!(self.source, Source::Group(_))
    }
}

/// Parameters of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickOptions {
    /// Minimum share of garbage for a file to be collected. Lowered when space is short.
    pub garbage_percent: u32,
    /// Minimum share of garbage in all files together for any copy, percent.
    pub all_garbage_percent: u32,
    /// Number of younger groups after which a group may be collected for its padding alone.
    pub padded_groups: usize,
    /// If more than this share of the oldest group is live, groups are chosen by live share instead
    /// of by age.
    pub live_head_percent: u32,
    /// Bytes to free. Files are added until this is reached; later ones have had less time to
    /// become garbage.
    pub wanted_bytes: u64,
    /// Minimum live bytes of collectable first-generation files for a second copy. The maximum
    /// number of inputs, or enough bytes to free, also suffices.
    pub second_bytes_min: u64,
    /// Maximum bytes copied into one output. A file with more live bytes is collected alone.
    pub output_bytes: u64,
    /// Space available for an output. Files that do not fit are not chosen.
    pub room_bytes: u64,
    /// Maximum number of inputs.
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

/// The chosen work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Free these files, which have no live records.
    Free(Vec<Source>),
    /// Copy the live records of these files into cold files, then free them.
    Copy {
        /// The inputs: all groups, or all cold files of one generation.
        inputs: Vec<Source>,
        /// Generation of the output.
        generation: u32,
        /// Approximate number of bytes to copy.
        copy_bytes: u64,
        /// Approximate number of bytes freed in the end.
        free_bytes: u64,
    },
}

impl Pick {
    /// Returns the number of inputs.
    pub fn files(&self) -> usize {
        let (Pick::Free(inputs) | Pick::Copy { inputs, .. }) = self;
        inputs.len()
    }

    /// Returns true if the work justifies a second copy.
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

/// Minimum number of small cold files to merge.
const MERGED_MIN: usize = 16;
/// Number of small cold files that are merged whatever their size, and the maximum for one merge.
pub const MERGED_MAX: usize = 256;
/// Maximum number of files freed at once.
const FREED_MAX: usize = 256;
/// A cold file is small if its size is at most this fraction of an output.
const SMALL_PART: u64 = 16;
/// Maximum number of candidates examined for one output.
const LOOKED_AT_MAX: usize = 1024;

/// Returns the most worthwhile collection of the candidates, if any. The caller excludes files that
/// are busy or unreadable.
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
    // Groups skipped as not yet due are among the youngest: only a few.
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

/// Takes the first candidate, and the following ones that fit the same output.
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

/// Merges small first-generation cold files if the result is not small, or there are very many.
/// Second-generation files are not copied for this.
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
