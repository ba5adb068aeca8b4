//! What a user may set.

use base::{Error, Result};
use io::{Access, FileSystem};
use std::path::PathBuf;
use store::commit::{Aging, Durability, LogTerms, Loggers, ballast_bytes, shortest_bytes, staging_len};
use store::descriptors::open_max;
use store::space::{EDITS_BYTES, OUTPUT_BYTES, manifest_bytes, with_overhead};

/// How a store of logs is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a store of logs is made where there is none. Default: yes.
    pub create_if_missing: bool,
    /// What the acknowledgement of a write promises that does not say so itself: `Durable` or `Buffered`. Default `Durable`.
    pub durability: Durability,
    /// Bytes of a group of the log, at most: the unit in which room is taken and given back. `None`, the default: as long as suits the
    /// space limit ([`Options::longest_group`]), 256 MiB where there is none.
    pub group_bytes: Option<u64>,
    /// Whether the page cache lies between the engine and the device. Default: no.
    pub access: Access,
    /// Threads beside the one for the log. Default 1.
    pub background_threads: usize,
    /// What background work may read and write in a second, all together, in bytes: index files, which nothing holds back, and collection,
    /// which waits for what has passed. 0, the default: there is no bound. Beside keys it is the store's, and refused here.
    pub io_budget: u64,
    /// What is alive is copied together when this part of all files is garbage, percent; of a file at least so much, then. Where room is
    /// short, with less. Padding alone makes a group garbage only when eight younger ones are there. Default 50.
    pub garbage_percent: u32,
    /// Files of storage that are kept open, at most: groups of the log may be half of them, files of rows the other half. Fewer are where that
    /// would be more than half of the descriptors of the process. Default 768.
    pub open_files_max: usize,
    /// What all files may occupy, bytes; `None`, the default: what the volume has. At the limit appends wait for collection, or are
    /// refused; trims and deletes go on. Never exceeded.
    pub space_limit: Option<u64>,
    /// Durable writes of records that are at the device at once. Default: one.
    pub loggers: Loggers,
    /// The directory of a second disk, on which the log lies, groups that are kept as storage among it: all records but those in cold files.
    /// A store that has none yet gets it with this opening, and from then on is opened with it and with no other. Beside keys it is the
    /// store's, and refused here. Default: none, the log is in the directory of the store.
    pub speed: Option<PathBuf>,
    /// Bytes of memory for the newest records, so that who follows a log reads no device. Default 16 MiB; 0: none are kept.
    pub recent_bytes: usize,
    /// Whether the store makes checkpoints that other processes request through its directory (`lava log checkpoint`). Any process that
    /// may write the directory may request one. Beside keys the option of the store counts. Default: true.
    pub checkpoint_requests: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            durability: Durability::Durable,
            group_bytes: None,
            access: Access::Direct,
            background_threads: 1,
            io_budget: 0,
            garbage_percent: 50,
            open_files_max: 768,
            space_limit: None,
            loggers: Loggers::default(),
            speed: None,
            recent_bytes: 16 << 20,
            checkpoint_requests: true,
        }
    }
}

/// The shortest group, bytes.
pub const GROUP_BYTES_MIN: u64 = 256 << 10;
/// Groups that a limit has room for at least, beside the reserve: the one that is written, one to collect, and two more.
const GROUPS_MIN: u64 = 4;
/// The longest one.
pub const GROUP_BYTES_MAX: u64 = 4 << 30;
/// The longest one of who does not say how long groups are to be.
const GROUP_BYTES_DEFAULT: u64 = 256 << 20;
/// It is at most this part of a limit: appends that wait at the limit wait for a whole group to become garbage, so that long groups make
/// long pauses, and the reserve has two of them.
const LIMIT_PART: u64 = 24;

/// How long groups are at most where nobody says it: see [`Options::longest_group`].
fn default_group(limit: Option<u64>) -> u64 {
    let Some(limit) = limit else { return GROUP_BYTES_DEFAULT };
    let part = (limit / LIMIT_PART).checked_ilog2().map_or(0, |log| 1 << log);
    part.clamp(GROUP_BYTES_MIN, GROUP_BYTES_DEFAULT)
}

/// What is told to who asks for a write that is in no log.
#[cold]
pub(crate) fn never_volatile() -> Error {
    Error::invalid("a record of a log is always in the log: ask for Durable or Buffered, not Volatile")
}

/// The lowest and the highest bound on background work, bytes per second.
const IO_BUDGET_MIN: u64 = 1 << 20;
const IO_BUDGET_MAX: u64 = 1 << 50;

/// The most memory for the newest records.
pub const RECENT_BYTES_MAX: u64 = 64 << 30;

impl Options {
    /// # Errors
    /// `InvalidArgument` for what is out of its range.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!("{name} is {min} to {max}, not {value}"))),
        };
        if !self.durability.is_logged() {
            return Err(never_volatile());
        }
        range("group_bytes", self.longest_group(), GROUP_BYTES_MIN, GROUP_BYTES_MAX)?;
        range("background_threads", self.background_threads as u64, 1, 64)?;
        if self.io_budget != 0 {
            range("io_budget", self.io_budget, IO_BUDGET_MIN, IO_BUDGET_MAX)?;
        }
        range("garbage_percent", self.garbage_percent.into(), 1, 100)?;
        range("open_files_max", self.open_files_max as u64, 8, 1 << 20)?;
        range("recent_bytes", self.recent_bytes as u64, 0, RECENT_BYTES_MAX)?;
        self.loggers.validate()?;
        match self.space_limit {
            Some(limit) => {
                let least = self.overhead_bytes() + GROUPS_MIN * self.longest_group();
                range("space_limit", limit, least, u64::MAX)
            }
            None => Ok(()),
        }
    }

    /// The longest that a group gets, bytes: [`Options::group_bytes`], or else the largest power of two that is at most a twenty-fourth of
    /// [`Options::space_limit`], from 256 KiB to 256 MiB.
    ///
    /// ```
    /// use lavastore_lavalog::Options;
    /// assert_eq!(Options::default().longest_group(), 256 << 20);
    /// let limited = Options { space_limit: Some(2_000_000_000), ..Options::default() };
    /// assert_eq!(limited.longest_group(), 64 << 20);
    /// assert_eq!(Options { group_bytes: Some(1 << 20), ..limited }.longest_group(), 1 << 20);
    /// ```
    #[must_use]
    pub fn longest_group(&self) -> u64 {
        self.group_bytes.unwrap_or_else(|| default_group(self.space_limit))
    }

    /// With groups that suit a limit which is not the logs' own, where they were not said to be of some length.
    pub(crate) fn below(&self, limit: Option<u64>) -> Options {
        let group_bytes = self.group_bytes.unwrap_or_else(|| default_group(limit));
        Options { group_bytes: Some(group_bytes), ..self.clone() }
    }

    /// With as few open files as the process may have descriptors for, in a store of so many engines.
    pub(crate) fn within(&self, fs: &dyn FileSystem, engines: u64) -> Options {
        Options { open_files_max: open_max(fs, self.open_files_max, engines), ..self.clone() }
    }

    /// Bytes that are kept free or occupied under a limit, however little there is: see the module `space`.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        let first = self.first_lane_terms().group_bytes;
        let group = self.longest_group();
        let open_pages = (staging_len(group) + staging_len(first)) as u64;
        let first_lane = 4 * first + ballast_bytes(first);
        let files = 2 * manifest_bytes(0) + EDITS_BYTES + 4 * OUTPUT_BYTES;
        open_pages + first_lane + files + with_overhead(group) + group
    }

    /// Of the lane of records.
    pub(crate) fn lane_terms(&self) -> LogTerms {
        LogTerms {
            access: self.access,
            group_bytes: self.longest_group(),
            free_groups_max: if self.space_limit.is_some() { 1 } else { 2 },
            loggers: self.loggers,
            retained_open_max: self.open_files_max / 2,
            aging: Aging::default(),
        }
    }

    /// Of the first lane, to which this engine writes nothing. Its ballast is what jobs and trims have on a full volume.
    pub(crate) fn first_lane_terms(&self) -> LogTerms {
        LogTerms {
            access: self.access,
            group_bytes: shortest_bytes(GROUP_BYTES_MIN),
            free_groups_max: 1,
            loggers: self.loggers,
            retained_open_max: 0,
            aging: Aging::default(),
        }
    }
}

#[cfg(test)]
mod tests;
