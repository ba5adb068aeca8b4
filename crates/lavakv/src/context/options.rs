//! Options of a store, and of single writes.
//!
//! Every option has a default that works; `Db::open(path)` needs none. Sizes are in bytes. An option that is out of
//! range, or a combination the engine does not support, is refused at open with [`ErrorKind::InvalidArgument`] and a
//! sentence that names the option and its range: nothing is silently clamped. (Sizes are made to fit a small volume, see
//! [`Options`].)
//!
//! Options stand on two pages. The first one, [`Options`] and [`FamilyOptions`], has the decisions of a program about its
//! data and its machine: space, memory, threads, durability. The second one ([`ExpertOptions`] and
//! [`ExpertFamilyOptions`](crate::ExpertFamilyOptions)) has all others. A test lists both, so that a new option has to choose.
//!
//! Options of the store are given at every open. Options of a family are stored in the manifest when the family is
//! created; `Db::open_with` replaces the stored options of the default family by those in [`Options::family`].
//!
//! [`ErrorKind::InvalidArgument`]: base::ErrorKind::InvalidArgument

use super::event::EventListener;
use super::expert::ExpertOptions;
use super::family_options::FamilyOptions;
use super::range::{beside, check};
use base::{Error, Result};
use io::Access;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use version::names;

pub use store::space::SpaceLimit;
pub use wal::{Durability, Loggers};

/// How a store is opened; [`Options::expert`](method@Options::expert) has the second page.
///
/// On a volume that has little for the store (1.2 GB with the defaults), memtables, memory, log groups, value files and tables
/// are smaller than asked for, by halves down to 512 KiB, so that the store can keep room for its own upkeep there. Each
/// opening looks at the volume anew; the options of families are stored as they were given.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make a new store if there is none. Default: true.
    pub create_if_missing: bool,
    /// Refuse to open a store that exists. Default: false.
    pub error_if_exists: bool,
    /// Bound on the bytes of the store's files, log and reserve included; kept at every moment. A limit in bytes
    /// may be as small as 1.3 MB: memtables, log groups, tables and value files become smaller with it, until the overhead of an
    /// empty store is at most a quarter of it. [`Options::explain`] shows the sizes. Default: none but the end of the volume, where
    /// the reserve is kept free as well.
    pub space_limit: Option<SpaceLimit>,
    /// Behavior of writes at that bound. Default: [`SpacePolicy::NoSpace`].
    pub space_policy: SpacePolicy,
    /// Size at which a memtable is flushed, bytes, 16 KiB to 4 GiB. Default: 16 MiB.
    pub memtable_bytes: usize,
    /// Budget of all memtables of all families, those being flushed included, and of the log pages that wait for a flush
    /// ([`ExpertOptions::buffered_age_ms_max`]), bytes; at least two memtables. Writers wait above it. Default: 0, derived: four
    /// memtables and a full ring of open log pages. That is 112 MiB with the default sizes, of which 48 are for the log.
    pub memory_bytes: usize,
    /// Budget of the block cache, bytes, at most 4 TiB: index blocks, filters and data share it. Default: 64 MiB, whatever the memory of
    /// the machine is, since that belongs to the program.
    pub cache_bytes: usize,
    /// Durability of a write that does not name its own. Default: buffered.
    pub durability: Durability,
    /// The longest that a write should wait for the engine: for memory, levels, log, garbage or space, but not for the device.
    /// 100 µs to an hour. A longer wait is counted ([`crate::Statistics::stalls_over_budget`]) and reported
    /// ([`crate::Event::StallOverBudget`], with its cause). A write that must not wait says so itself
    /// ([`WriteOptions::wait_at_most`]). It also bounds the time that the device takes for the buffered writes before a durable one
    /// ([`ExpertOptions::buffered_age_ms_max`]). Default: 10 ms.
    pub stall_budget: Duration,
    /// Bound on the reads and writes of all background work together, bytes per second, at least 1 MiB. Flushes count and are never held
    /// back, since writers wait for them; the other work waits for what they took. 0 is no bound. Default: 0.
    pub io_budget: u64,
    /// Work of a store without writes, after which no deleted data is left on disk: some seconds after the last write it
    /// flushes and compacts tombstones, at half of [`Options::io_budget`] or of the device's time. It rewrites at most a byte for
    /// each that was written since the last rest. `false`: deleted data leaves with later writes, or with
    /// [`crate::Db::compact_range`]. Default: true.
    pub rest: bool,
    /// Threads for flush, compaction, garbage collection and clean-up, 1 to 64; one more thread serves the log. Default: 2, whatever the
    /// number of processors of the machine, since those belong to the program.
    pub background_threads: usize,
    /// The most data files that stay open, 16 to 2^24. Fewer do where the store would use more than half of the descriptors that the
    /// process may have when it is opened (`ulimit -n`), which [`crate::Event::OpenFilesBounded`] reports. Default: 4096, or less where the process has few descriptors.
    pub open_files_max: usize,
    /// Page cache or direct I/O for tables and log. Default: direct.
    pub access: Access,
    /// The directory of a second disk, for the log, for tables of the first [`ExpertOptions::speed_levels`] levels, and for
    /// [`ExpertOptions::speed_values_bytes_max`] of hot values. A store without one gets it with this opening, and from then on is
    /// opened with it and with no other ([`store::speed`]). For a disk with another kind of file system than the store's see
    /// [`store::speed::joined`]. Default: none, the log is in the directory of the store.
    pub speed: Option<PathBuf>,
    /// A file for the metrics of the open store, in the form of [`crate::Db::metrics`]: rewritten as a whole every five seconds,
    /// removed at close. A relative path begins at the directory of the store; `lava stats --prometheus` looks at `METRICS` there.
    /// Default: none.
    pub metrics_file: Option<PathBuf>,
    /// Receives flushes, compactions, stalls and background errors. A panic in it is caught and counted. Default: none.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Behavior of an open that finds tables or value files missing or of another length. Default: serve the undamaged data.
    pub damaged_files: DamagedFiles,
    /// Options of the column family `default`.
    pub family: FamilyOptions,
    /// The second page: the log, the second disk, requests, background reads.
    pub expert: ExpertOptions,
}

/// What an open does with a store some of whose tables or value files are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedFiles {
    /// It opens, for reading and writing. [`crate::Db::damaged_files`] names them; reads that need them fail.
    #[default]
    Serve,
    /// It fails and names the first one. (What is damaged inside files is found later in either case.)
    Refuse,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            space_limit: None,
            space_policy: SpacePolicy::default(),
            memtable_bytes: 16 << 20,
            memory_bytes: 0,
            cache_bytes: 64 << 20,
            durability: Durability::Buffered,
            stall_budget: Duration::from_millis(10),
            io_budget: 0,
            rest: true,
            background_threads: 2,
            open_files_max: 4096,
            access: Access::Direct,
            speed: None,
            metrics_file: None,
            listener: None,
            damaged_files: DamagedFiles::default(),
            family: FamilyOptions::default(),
            expert: ExpertOptions::default(),
        }
    }
}

impl Options {
    /// The same options, with a value for each of those that are derived where they are 0.
    pub(crate) fn derived(mut self) -> Options {
        self.family = self.family.derived();
        self.expert.wal_bytes_max = self.expert.wal_bytes_max();
        self.memory_bytes = self.memory_bytes();
        self
    }

    /// Changes options of the second page.
    ///
    /// ```
    /// # use lavastore_lavakv::Options;
    /// let short_log = Options { memtable_bytes: 4 << 20, ..Options::default() }.expert(|expert| {
    ///     expert.log_group_bytes = 4 << 20;
    ///     expert.wal_bytes_max = 64 << 20;
    /// });
    /// assert_eq!(short_log.expert.wal_bytes_max, 64 << 20);
    /// ```
    #[must_use]
    pub fn expert(mut self, change: impl FnOnce(&mut ExpertOptions)) -> Options {
        change(&mut self.expert);
        self
    }

    /// Checks every option but for what a limit of the space has to leave.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        check("cache_bytes", self.cache_bytes, 0, 1 << 42)?;
        check("memtable_bytes", self.memtable_bytes, 16 << 10, 4 << 30)?;
        let of_memory = if self.expert.buffered_age_ms_max > Some(0) {
            "memory_bytes, with buffered_age_ms_max,"
        } else {
            "memory_bytes"
        };
        check(of_memory, self.memory_bytes, self.memory_bytes_min(), 1 << 42)
            .map_err(beside("memtable_bytes", self.memtable_bytes))?;
        check("background_threads", self.background_threads, 1, 64)?;
        check("open_files_max", self.open_files_max, 16, 1 << 24)?;
        if self.io_budget != 0 {
            check("io_budget", self.io_budget, 1 << 20, 1 << 50)?;
        }
        let budget_us = u64::try_from(self.stall_budget.as_micros()).unwrap_or(u64::MAX);
        check("stall_budget, microseconds,", budget_us, 100, 3_600_000_000)?;
        self.check_metrics_file()?;
        self.expert.check_ranges()?;
        self.family.validate()
    }

    /// A page takes the place of what has its name: of no file of a store.
    fn check_metrics_file(&self) -> Result<()> {
        let Some(file) = &self.metrics_file else { return Ok(()) };
        match file.file_name().map(|name| name.to_str().and_then(names::parse)) {
            None => Err(Error::invalid("option metrics_file: its path does not end in the name of a file")),
            Some(Some(_)) => Err(Error::invalid("option metrics_file: files of a store have such names")),
            Some(None) => Ok(()),
        }
    }

    /// Memory of a family's drop cache, if it has one: a 64th of what the block cache may take, beside it, 16 KiB to 4 MiB.
    /// A key costs four bytes. Where the block cache is a hundredth of the data and values have 1 KB, each of the two
    /// generations then takes 4 % of the keys; where values are larger, all that it is to take.
    pub(crate) fn drop_cache_bytes(&self) -> Option<usize> {
        self.expert.ablation.hot_cold.then_some((self.cache_bytes / 64).clamp(16 << 10, 4 << 20))
    }

    /// The most compactions below level 0 that run at once.
    pub(crate) fn compaction_slots(&self) -> usize {
        match self.expert.compactions_max {
            0 => self.background_threads.saturating_sub(1).max(1),
            n => n,
        }
    }
}

/// What becomes of a write for which there is no room, and nothing left to do that could make some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpacePolicy {
    /// It fails with `NoSpace`. While background work may free something it waits.
    #[default]
    NoSpace,
    /// It waits, also for others to delete something, and fails with `NoSpace` after so long.
    Wait {
        /// The longest wait.
        at_most: Duration,
    },
}

/// Options of one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// What the acknowledgement promises; `None` takes [`Options::durability`].
    pub durability: Option<Durability>,
    /// The longest wait for the engine. The wait for the device, which makes the write durable, does not count. A write that
    /// would wait longer fails with [`ErrorKind::Busy`](base::ErrorKind::Busy), and nothing of it is written. For a stream,
    /// each piece counts alone. `None`: no bound.
    pub wait_at_most: Option<Duration>,
}

impl WriteOptions {
    /// Acknowledged writes survive power loss.
    pub fn durable() -> Self {
        WriteOptions { durability: Some(Durability::Durable), ..Self::default() }
    }
    /// Acknowledged writes survive the death of the process.
    pub fn buffered() -> Self {
        WriteOptions { durability: Some(Durability::Buffered), ..Self::default() }
    }
    /// Acknowledged writes survive once they are flushed: nothing goes to the log.
    pub fn volatile() -> Self {
        WriteOptions { durability: Some(Durability::Volatile), ..Self::default() }
    }
    /// The same, but it waits for the engine at most so long.
    #[must_use]
    pub fn wait_at_most(self, at_most: Duration) -> Self {
        WriteOptions { wait_at_most: Some(at_most), ..self }
    }
    /// The same, but it does not wait for the engine at all. Where writers are slowed down, what it does not pay those behind it have to: so it
    /// is refused if that is longer than [`Options::stall_budget`]. A long batch is better given time, or written in parts.
    #[must_use]
    pub fn no_wait(self) -> Self {
        self.wait_at_most(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests;
