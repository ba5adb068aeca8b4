//! Options of a store, and of single writes.
//!
//! Every option has a working default, so `Db::open(path)` needs none. Sizes are in bytes. Open
//! refuses an option out of range, or an unsupported combination, with
//! [`ErrorKind::InvalidArgument`]. The message names the option and its range; no value is silently
//! clamped. (Sizes are reduced on a small volume, see [`Options`].)
//!
//! Options stand on two pages. The first, [`Options`] and [`FamilyOptions`], has a program's
//! decisions about its data and its machine: space, memory, threads, durability. The second,
//! [`ExpertOptions`] and [`ExpertFamilyOptions`](crate::ExpertFamilyOptions), has all others. A
//! test lists both, so that a new option has to choose.
//!
//! Options of the store are given at every open. Options of a family are stored in the manifest
//! when the family is created; `Db::open_with` replaces the stored options of the default family by
//! those in [`Options::family`].
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

/// Options of an open, for a program that limits space or memory, or changes durability; all have
/// defaults.
///
/// The store does not remember them, except [`Options::family`]: pass the same ones at every open.
/// An open refuses an option out of range with `InvalidArgument`, and the message names the range;
/// no value is clamped. [`Options::expert`](method@Options::expert) has the second page, and
/// [`Options::explain`] shows derived values.
///
/// On a volume with little space for the store (below 1.2 GB with the defaults), buffers and files
/// are smaller than configured. They are halved down to 512 KiB, so that the store can reserve
/// space for its own work. Each open examines the volume again.
#[derive(Clone, Debug)]
pub struct Options {
    /// Creates a store if there is none. Switch it off where a missing store means a wrong path:
    /// the open then fails with `NotFound`. A read-only open never creates one. Default: true.
    pub create_if_missing: bool,
    /// Refuses to open an existing store, with `AlreadyExists`, where the program must begin with
    /// an empty one. Default: false.
    pub error_if_exists: bool,
    /// Bound on the bytes of the store's files, including the log and the reserve; kept at every
    /// moment. A limit in bytes may be as small as 1.3 MB: memtables, log groups, tables and value
    /// files shrink with it, until the overhead of an empty store is at most a quarter of it.
    /// [`Options::explain`] shows the sizes. `Db::set_space_limit` changes it in the open store.
    /// Default: none, but the reserve is kept free at the end of the volume as well.
    pub space_limit: Option<SpaceLimit>,
    /// Whether writes at the space limit fail at once or wait for deletes of other threads.
    /// Default: [`SpacePolicy::NoSpace`], they fail.
    pub space_policy: SpacePolicy,
    /// Size at which a memtable is flushed to a table, bytes, 16 KiB to 4 GiB. Larger ones save
    /// rewrites of overwritten keys, and cost memory and recovery time. Default: 16 MiB.
    pub memtable_bytes: usize,
    /// Budget for all memtables of all families, including those being flushed, and for buffered
    /// log pages ([`ExpertOptions::buffered_age_ms_max`]), bytes. At least two memtables, at most 4
    /// TiB. Writers wait when it is exceeded. Default: 0, derived: four memtables and a full tail
    /// buffer. That is 112 MiB with the default sizes, of which 48 are for the log.
    pub memory_bytes: usize,
    /// Budget of the cache for blocks of files, bytes, 0 to 4 TiB. Indexes, filters and data share
    /// it. Raise it if reads miss the cache often. Default: 64 MiB, independent of the machine's
    /// memory, which belongs to the program.
    pub cache_bytes: usize,
    /// Durability of writes that do not choose their own with [`WriteOptions`]: choose `Durable` if
    /// most writes must survive a loss of power. Default: [`Durability::Buffered`].
    pub durability: Durability,
    /// Budget for a write's wait for the engine: for memory, levels, log, garbage or space, but not
    /// for the device. 100 µs to an hour. A longer wait is counted
    /// ([`crate::Statistics::stalls_over_budget`]) and reported ([`crate::Event::StallOverBudget`],
    /// with its cause). The budget does not end the wait; [`WriteOptions::wait_at_most`] does. It
    /// also bounds the device time for buffered writes ahead of a durable one
    /// ([`ExpertOptions::buffered_age_ms_max`]). Default: 10 ms.
    pub stall_budget: Duration,
    /// Limit on the reads and writes of all background work together, bytes per second, 1 MiB to
    /// 2^50. Flushes count but are never delayed, since writers wait for them; other work is
    /// delayed by their bytes instead. 0: no limit. Default: 0.
    pub io_budget: u64,
    /// Work of a store without writes, after which no deleted data is left on disk. Some seconds
    /// after the last write the store flushes and compacts tombstones, at half of
    /// [`Options::io_budget`] or of the device time. It rewrites at most one byte for each byte
    /// written since the last rest. `false`: deleted data is freed by later writes, or by
    /// [`crate::Db::compact_range`]. Default: true.
    pub rest: bool,
    /// Threads for flush, compaction, garbage collection and cleanup, 1 to 64; one more thread
    /// serves the log. More of them serve a heavier load of writes. Default: 2, independent of the
    /// number of processors, which belong to the program.
    pub background_threads: usize,
    /// Maximum number of open data files, 16 to 2^24. The store uses at most half of the
    /// descriptors available to the process at open (`ulimit -n`);
    /// [`crate::Event::OpenFilesBounded`] reports a lower number. Default: 4096, or less if the
    /// process has few descriptors.
    pub open_files_max: usize,
    /// Whether data files and log bypass the page cache of the system. Choose [`Access::Buffered`]
    /// where the machine has much free memory that no cache of the store uses. Default:
    /// [`Access::Direct`].
    pub access: Access,
    /// Directory of the fast tier: a second disk for the log, for tables of the first
    /// [`ExpertOptions::fast_tier_levels`] levels, and for
    /// [`ExpertOptions::fast_tier_values_bytes_max`] of hot values. A store without a fast tier
    /// gets it at this open, and from then on opens only with it. For a disk with another kind of
    /// file system use `Volumes`. Default: none, the log is in the directory of the store.
    pub fast_tier: Option<PathBuf>,
    /// File for the metrics of the open store, in the format of [`crate::Db::metrics`]: replaced
    /// every five seconds, removed at close. A name that the store uses for its own files is
    /// refused. A relative path starts at the directory of the store; `lava stats --prometheus`
    /// reads `METRICS` there. Default: none.
    pub metrics_file: Option<PathBuf>,
    /// Receives flushes, compactions, stalls, damage and background errors, for logs and alarms. A
    /// panic of the listener is caught and counted. Default: none.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Whether an open that finds tables or value files missing or of another length serves the
    /// undamaged data or fails. Default: [`DamagedFiles::Serve`].
    pub damaged_files: DamagedFiles,
    /// Options of the column family `default`; they replace the stored ones at every open for
    /// writing. Default: those of [`FamilyOptions`].
    pub family: FamilyOptions,
    /// The second page: the log, the fast tier, requests, background reads. Few programs need it.
    pub expert: ExpertOptions,
}

/// Decides between availability and an early alarm: what an open does that finds data files missing
/// or of the wrong length. See [`Options::damaged_files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedFiles {
    /// The store opens for reading and writing. [`crate::Db::damaged_files`] lists the damaged
    /// files; reads that need them fail.
    #[default]
    Serve,
    /// The open fails with the error of the first damaged file, and the store stays closed: restore
    /// a checkpoint or repair it. (Damage inside files is found later in either case.)
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
            fast_tier: None,
            metrics_file: None,
            listener: None,
            damaged_files: DamagedFiles::default(),
            family: FamilyOptions::default(),
            expert: ExpertOptions::default(),
        }
    }
}

impl Options {
    /// Returns the same options with all derived values filled in.
    pub(crate) fn derived(mut self) -> Options {
        self.family = self.family.derived();
        self.expert.wal_bytes_max = self.expert.wal_bytes_max();
        self.memory_bytes = self.memory_bytes();
        self
    }

    /// Changes expert options in an expression, for the few programs that need them; all other
    /// options stay. The change is checked at the open, not here.
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

    /// Checks every option except the minimum of the space limit.
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
        check("stall_budget", budget_us, 100, 3_600_000_000)?;
        self.check_metrics_file()?;
        self.expert.check_ranges()?;
        self.family.validate()
    }

    /// The metrics file must not replace a file of the store.
    fn check_metrics_file(&self) -> Result<()> {
        let Some(file) = &self.metrics_file else { return Ok(()) };
        match file.file_name().map(|name| name.to_str().and_then(names::parse)) {
            None => Err(Error::invalid("option metrics_file: its path does not end in a file name: add one")),
            Some(Some(_)) => Err(Error::invalid(format!(
                "option metrics_file = {}: the name is reserved for files of a store: choose another",
                file.display()
            ))),
            Some(None) => Ok(()),
        }
    }

    /// Returns the memory of a family's drop cache, if enabled: a 64th of the block cache, in
    /// addition to it, 16 KiB to 4 MiB. A key costs four bytes. With a block cache of a hundredth
    /// of the data and values of 1 KB, each of the two generations holds 4 % of the keys. With
    /// larger values it holds all keys that it needs.
    pub(crate) fn drop_cache_bytes(&self) -> Option<usize> {
        self.expert.ablation.hot_cold.then_some((self.cache_bytes / 64).clamp(16 << 10, 4 << 20))
    }

    /// Returns the maximum number of concurrent compactions below level 0.
    pub(crate) fn compaction_slots(&self) -> usize {
        match self.expert.compactions_max {
            0 => self.background_threads.saturating_sub(1).max(1),
            n => n,
        }
    }
}

/// Decides whether a write to a full store fails at once, or waits for deletes of other threads. It
/// applies once no background work can free any space.
///
/// Deletes and reads proceed in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpacePolicy {
    /// The write fails with `NoSpace` and has no effect. It waits only while background work may
    /// free space. For programs that can shed load or delete data themselves.
    #[default]
    NoSpace,
    /// The write also waits for deletes by other threads, and fails with `NoSpace` after this time.
    /// For programs that delete old data on another thread.
    Wait {
        /// The longest wait of a write; any duration. Then the write fails with `NoSpace`.
        at_most: Duration,
    },
}

/// Gives one write another durability than the store's, or a bound on its wait; `Db::writing` takes
/// it. The default takes the store's durability, without a bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Durability at the acknowledgment. Default: `None`, which takes [`Options::durability`], or
    /// for logs the durability of their own options.
    pub durability: Option<Durability>,
    /// Maximum wait for memory, background work or space, not counting the device's time to make
    /// the write durable. A write that would wait longer fails with
    /// [`ErrorKind::Busy`](base::ErrorKind::Busy) and has no effect. For a stream, the maximum
    /// applies to each piece. Writes of logs refuse it. Default: `None`, no maximum.
    pub wait_at_most: Option<Duration>,
}

impl WriteOptions {
    /// Returns options for data that must not be lost once acknowledged, such as payments: the
    /// write survives a loss of power, and waits for the device. Concurrent durable writers share
    /// one device write. For many writes at once, buffered ones and `Db::sync` cost less. It sets
    /// no bound on the wait.
    pub fn durable() -> Self {
        WriteOptions { durability: Some(Durability::Durable), ..Self::default() }
    }
    /// Returns options for data that can be made again: the write survives the death of the process
    /// once acknowledged, but not of the machine, and waits for no device. `Db::sync` or a later
    /// durable write makes it durable. It sets no bound on the wait for memory or space.
    pub fn buffered() -> Self {
        WriteOptions { durability: Some(Durability::Buffered), ..Self::default() }
    }
    /// Returns options for state that another log can rebuild: the write survives only after a
    /// flush or a clean close, and is in no log. A crash takes all volatile writes since the last
    /// flush. Readers see it on return. Writes of logs refuse it.
    pub fn volatile() -> Self {
        WriteOptions { durability: Some(Durability::Volatile), ..Self::default() }
    }
    /// Returns the same options with a bound on the wait, for callers with a deadline;
    /// [`WriteOptions::no_wait`] allows no wait at all.
    ///
    /// The wait counts memory, background work and space, and not the device. A write that would
    /// wait longer fails with `Busy` and has no effect: repeat it later. Writes of logs refuse the
    /// bound with `InvalidArgument`.
    #[must_use]
    pub fn wait_at_most(self, at_most: Duration) -> Self {
        WriteOptions { wait_at_most: Some(at_most), ..self }
    }
    /// Returns the same options without any wait, for event loops, as
    /// [`WriteOptions::wait_at_most`] of zero. A write that would wait fails with `Busy` and has no
    /// effect.
    ///
    /// Later writes make up for a delay below [`Options::stall_budget`]. A write whose delay would
    /// exceed it fails with `Busy`: give a long batch some time, or split it. A durable write still
    /// waits for the device.
    #[must_use]
    pub fn no_wait(self) -> Self {
        self.wait_at_most(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests;
