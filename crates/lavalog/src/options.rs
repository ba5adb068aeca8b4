//! User options.

use base::{Error, Result};
use io::{Access, FileSystem};
use std::path::PathBuf;
use store::commit::{Aging, Durability, LogTerms, Loggers, reserved_bytes, shortest_bytes, tail_buffer_len};
use store::descriptors::open_max;
use store::space::{EDITS_BYTES, OUTPUT_BYTES, manifest_bytes, with_overhead};

/// Options of a store of logs, for a program that limits space or changes durability; all have
/// defaults.
///
/// The store does not remember them: pass the same ones at every open. An option out of range is
/// refused with `InvalidArgument`; the message names the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Creates a store if there is none. Switch it off where a missing store means a wrong path:
    /// the open then fails with `NotFound`. Default: true.
    pub create_if_missing: bool,
    /// Durability of writes that do not specify one: `Durable`, or `Buffered` for records that can
    /// be made again. Trims are always buffered by default. `Volatile` is refused. Default:
    /// `Durable`.
    pub durability: Durability,
    /// Maximum size of a file of the log, bytes, 256 KiB to 4 GiB: the unit in which the store
    /// allocates and frees log space. Smaller files free space sooner. Default: `None`, derived
    /// from the space limit ([`Options::longest_group`]), or 256 MiB without a limit.
    pub group_bytes: Option<u64>,
    /// Whether file I/O goes through the page cache of the system. Default: [`Access::Direct`], it
    /// does not.
    pub access: Access,
    /// Background threads for collection and index files, 1 to 64, in addition to the log thread. A
    /// store with keys uses the option of the store. Default: 1.
    pub background_threads: usize,
    /// Bandwidth of background I/O, reads and writes together, bytes per second, 1 MiB to 2^50.
    /// Garbage collection waits for the budget, index files do not. A store with keys uses the
    /// budget of the store and refuses this option. Default: 0, unlimited.
    pub io_budget: u64,
    /// Percentage of garbage in all files that starts garbage collection, 1 to 100, and the minimum
    /// for a file to be collected. Lower values save space and cost device time. Both bounds are
    /// lower when space is short. Default: 50.
    pub garbage_percent: u32,
    /// Maximum number of open data files, 8 to 1,048,576. The store opens fewer if this exceeds
    /// half of the process's file descriptors. Default: 768.
    pub open_files_max: usize,
    /// Maximum bytes of all files, never exceeded: choose it if the disk has other users. It must
    /// hold some files of the log ([`Options::check`] names the minimum). At the limit, appends
    /// wait for garbage collection, up to ten seconds, or fail with `NoSpace`; trims and deletes
    /// proceed. A store with keys refuses this option. Default: `None`, the capacity of the volume.
    pub space_limit: Option<u64>,
    /// Number of durable record writes in flight at the device, to raise the throughput of many
    /// writers on a device that gains from more. Default: one.
    pub loggers: Loggers,
    /// Directory of the fast tier, a second disk for the log. A store without a fast tier gets this
    /// one at open; every later open must name the same directory. A store with keys uses its own
    /// and refuses this option. Default: none, the log is in the store's directory.
    pub fast_tier: Option<PathBuf>,
    /// Memory for the newest records, bytes, at most 64 GiB. Raise it if readers follow the end of
    /// a log and lag behind: records in it cost no device read. 0 keeps none. Default: 16 MiB.
    pub recent_bytes: usize,
    /// Whether the store serves checkpoint requests from other processes, which arrive through its
    /// directory (`lava log checkpoint`). Any process with write access to the directory can send
    /// one. A store with keys uses its own option. Default: true.
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
            fast_tier: None,
            recent_bytes: 16 << 20,
            checkpoint_requests: true,
        }
    }
}

/// Minimum size of a log group, bytes.
pub const GROUP_BYTES_MIN: u64 = 256 << 10;
/// Minimum number of groups that a space limit must hold in addition to the reserve: the active
/// group, one to collect, and two more.
const GROUPS_MIN: u64 = 4;
/// Maximum size of a log group, bytes.
pub const GROUP_BYTES_MAX: u64 = 4 << 30;
/// Default maximum size of a log group, bytes.
const GROUP_BYTES_DEFAULT: u64 = 256 << 20;
/// A default group is at most this fraction of the space limit. Appends at the limit wait until a
/// whole group is garbage, so long groups cause long pauses; and the reserve holds two groups.
const LIMIT_PART: u64 = 24;

/// Default maximum group size under a space limit: see [`Options::longest_group`].
fn default_group(limit: Option<u64>) -> u64 {
    let Some(limit) = limit else { return GROUP_BYTES_DEFAULT };
    let part = (limit / LIMIT_PART).checked_ilog2().map_or(0, |log| 1 << log);
    part.clamp(GROUP_BYTES_MIN, GROUP_BYTES_DEFAULT)
}

/// Returns the error for a write with durability `Volatile`.
#[cold]
pub(crate) fn never_volatile() -> Error {
    Error::invalid("a record cannot be Volatile: write it Durable or Buffered")
}

/// Range of the background I/O budget, bytes per second.
const IO_BUDGET_MIN: u64 = 1 << 20;
const IO_BUDGET_MAX: u64 = 1 << 50;

/// Maximum memory for the newest records, bytes.
pub const RECENT_BYTES_MAX: u64 = 64 << 30;

/// Returns the unit of an option, with a space before it.
fn unit(name: &str) -> &'static str {
    match name {
        "io_budget" => " bytes per second",
        "garbage_percent" => " percent",
        "open_files_max" => " files",
        "background_threads" => " threads",
        _ => " bytes",
    }
}

impl Options {
    /// Checks the options before they are used, as an open does, to report a wrong configuration
    /// early. The call touches no store.
    ///
    /// # Errors
    /// `InvalidArgument` for the first value out of its range; the message names the option, the
    /// value and the range.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "option {name} = {value} is out of range: {min} to {max}{}",
                unit(name)
            ))),
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

    /// Returns the maximum size of a log file in bytes, the unit in which a trim frees space. With
    /// a smaller one trims free space sooner. It computes from the options alone, and checks
    /// nothing. This is [`Options::group_bytes`], or else the largest power of two that is at most
    /// a twenty-fourth of [`Options::space_limit`], from 256 KiB to 256 MiB.
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

    /// Returns the options with the group size fixed: the given size, or else the default for the
    /// host engine's space limit.
    pub(crate) fn below(&self, limit: Option<u64>) -> Options {
        let group_bytes = self.group_bytes.unwrap_or_else(|| default_group(limit));
        Options { group_bytes: Some(group_bytes), ..self.clone() }
    }

    /// Returns the options with `open_files_max` reduced to this engine's share of the file
    /// descriptors of the process.
    pub(crate) fn within(&self, fs: &dyn FileSystem, engines: u64) -> Options {
        Options { open_files_max: open_max(fs, self.open_files_max, engines), ..self.clone() }
    }

    /// Returns the bytes that a space limit always reserves or uses, even for an empty store: see
    /// the module `space`.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        let first = self.first_lane_terms().group_bytes;
        let group = self.longest_group();
        let open_pages = (tail_buffer_len(group) + tail_buffer_len(first)) as u64;
        let first_lane = 4 * first + reserved_bytes(first);
        let files = 2 * manifest_bytes(0) + EDITS_BYTES + 4 * OUTPUT_BYTES;
        open_pages + first_lane + files + with_overhead(group) + group
    }

    /// Returns the settings of the record lane.
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

    /// Returns the settings of the first lane. This engine writes nothing to it; jobs and trims use
    /// its reserved space on a full volume.
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
