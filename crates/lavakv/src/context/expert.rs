//! The second page of options: [`ExpertOptions`] of a store, [`ExpertFamilyOptions`] of a column
//! family.
//!
//! An option is on this page if its default, or the derived value, suits nearly every program. A
//! program should change such an option only with a measurement. The rules of the module `options`
//! hold here as well.

use super::ablation::Ablation;
use super::range::{beside, check};
use base::{Error, Result, limits};
use lsm::policy::Policies;
use lsm::{CompactionFilters, MergeOperators};
use std::time::Duration;
use wal::Loggers;

/// Options of a store that few programs change: log, fast tier, compaction, scrub.
///
/// [`Options::expert`](method@crate::Options::expert) sets them. An open refuses a value out of
/// range; `0` or `None` mostly means a derived value, which
/// [`Options::explain`](crate::Options::explain) shows.
#[derive(Clone, Debug)]
pub struct ExpertOptions {
    /// Maximum length of a log group, the unit of allocation of the write-ahead log, bytes: 64 KiB
    /// to 4 GiB, a multiple of 4096. Groups begin at an eighth of it (16 to 64 KiB) and grow with
    /// the write rate; on a small volume they are shorter. Default: 16 MiB.
    pub log_group_bytes: u64,
    /// Bound on the live write-ahead log, bytes. Above it the engine flushes the family that holds
    /// the oldest group. A longer log takes more space and recovery time, and forces fewer early
    /// flushes. At least two log groups, at most 2^50. Default: 0, derived: 256 MiB, or four log
    /// groups if these are longer.
    pub wal_bytes_max: u64,
    /// Threads for asynchronous requests ([`crate::Requests`]) that their caller could not
    /// complete: writes that wait, scans, and other blocking calls. 1 to 64. Raise it if many
    /// requests wait at once. One more thread handles their point reads. The threads start with the
    /// first such request. Default: 2, since these threads mostly wait.
    pub async_threads: usize,
    /// Maximum number of concurrent compactions, at most 64. More of them compete with writes and
    /// reads for the device. Default: 0, derived: one less than the background threads, at least
    /// one, so that one thread is left for flushes.
    pub compactions_max: usize,
    /// Maximum gap between two requested ranges of a file that one read covers, bytes, at most 1
    /// MiB. A larger one saves requests and reads more unneeded bytes. It applies to batches of
    /// scans, multi-key reads, requests and collections. Default: `None`, derived: the bytes that
    /// take as long as one more request. The engine measures that for each disk while the store is
    /// open ([`crate::Statistics::io_read_gap_bytes`]). Until it knows enough it uses 16 KiB (12
    /// KiB for collections).
    pub read_gap_bytes: Option<u64>,
    /// Number of concurrent durable log writes, to raise the throughput of many durable writers on
    /// a device that gains from more. Default: one. [`Loggers::AUTO`] finds the number while the
    /// store is open.
    pub loggers: Loggers,
    /// Maximum age of a buffered log page, milliseconds, at most 3,600,000 (an hour). A page whose
    /// memtable is flushed sooner is never written to the log device; an older one is made durable
    /// (up to a second late). A power failure before that loses these writes and all later ones.
    ///
    /// Up to 64 MiB of the log are buffered (a memtable and two log groups), in memory (part of
    /// [`Options::memory_bytes`](field@crate::Options::memory_bytes)) and in a file that survives
    /// the process. A durable write makes all buffered pages durable. If durable writes are
    /// expected ([`crate::Options::durability`]), or one came since the open, the buffer is bounded
    /// by the bytes that the device writes within [`crate::Options::stall_budget`]. Up to four
    /// written families are flushed together; with more, each flush also writes the buffered pages.
    /// A release without this option refuses a store that was open with it, until the store was
    /// opened twice without it and flushed.
    ///
    /// `Some(0)`: a page is written as soon as it is worth a write. Default: `None`, derived: 10
    /// seconds if `memory_bytes` has room for the buffer beside two memtables, and a
    /// [`crate::Options::space_limit`] in bytes is at least 32 times the buffer; otherwise as
    /// `Some(0)`.
    pub buffered_age_ms_max: Option<u64>,
    /// Rate of the scrub, bytes per second, 64 KiB to 2^50. The scrub reads all files of the store
    /// in the background, to find damage before a reader needs the data. It reports damage as
    /// [`crate::Event`] and in [`crate::Db::damaged_files`]. Default: 0, no scrub.
    pub scrub_bytes_per_s: u64,
    /// Whether the store makes checkpoints that other processes request through its directory
    /// (`lava checkpoint`). Any process with write access to the directory may request one, at any
    /// absolute path where this process may create a directory. The store checks for requests at
    /// most once a second. Default: true.
    pub checkpoint_requests: bool,
    /// Number of levels, from level 0 on, whose new tables are created on the fast tier
    /// ([`crate::Options::fast_tier`]), at most 7. The log has priority there: `wal_bytes_max` and
    /// a quarter more. Tables that do not fit are created on the capacity tier, and counted
    /// ([`crate::Statistics::fast_tier_tables_elsewhere`]). A table stays on its tier until it is
    /// compacted. Default: 0, none.
    pub fast_tier_levels: usize,
    /// Bound on separated values on the fast tier, bytes, at most 2^50. It holds files of hot
    /// values, which a flush separates from all others if keys are skewed. A file begins there if a
    /// complete one fits within the bound, and beside log and tables. Otherwise it begins on the
    /// capacity tier, and is counted ([`crate::Statistics::fast_tier_values_elsewhere`]). Values
    /// that survive a collection go to the capacity tier. A file stays on its tier until it is
    /// collected. A store without a fast tier refuses a bound above 0. Default: 0, none.
    pub fast_tier_values_bytes_max: u64,
    /// Writes all flushed values to the fast tier first, within
    /// [`fast_tier_values_bytes_max`](ExpertOptions::fast_tier_values_bytes_max). Once half of the
    /// bound is used, survivors of a collection go to the capacity tier: values that are
    /// overwritten sooner never do. The option suits a fast tier with room for a good part of the
    /// bytes written between two overwrites of a key. Values not known to be hot leave a quarter of
    /// the bound to hot ones. Long-lived values go to the capacity tier once they use more than
    /// five eighths of the bound ([`crate::Statistics::fast_tier_values_moved_down`]), or after the
    /// option is disabled. Default: false, hot values only.
    pub fast_tier_values_flushed: bool,
    /// Derives the number of levels on the fast tier from measured waits, up to
    /// [`fast_tier_levels`](ExpertOptions::fast_tier_levels). The store begins with only the log
    /// there, and moves tables between the tiers while it is open. With `fast_tier_levels` 0 all
    /// tables go to the capacity tier. Default: false, new tables of all these levels are created
    /// on the fast tier.
    pub fast_tier_adaptive: bool,
    /// Interval between two decisions on the levels of the fast tier. Default: 1 s; less is for
    /// tests.
    #[doc(hidden)]
    pub fast_tier_interval: Duration,
    /// First sequence number, file number, log group and log page of a **new** store, 1 to 2^48.
    /// For tests that cross 2^32; no program needs it. Default: 1.
    pub first_number: u64,
    /// The merge operators of the program, by name, beside the ready-made ones; see
    /// [`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator). A store opens without
    /// them: then merges fail with `Unsupported`, and so do reads of keys with unfolded operands.
    /// Default: none.
    pub merge_operators: MergeOperators,
    /// Compaction filters of the program, by the name of the column family: user code that removes or
    /// changes entries while a compaction rewrites them. They are not stored: a store opened without
    /// them does not filter. Default: none.
    pub compaction_filters: CompactionFilters,
    /// The compaction policies that families may have. Default: the built-in ones; a test may add
    /// some.
    #[doc(hidden)]
    pub policies: Policies,
    /// Disabled mechanisms, for measurements: not an option of a store.
    #[doc(hidden)]
    pub ablation: Ablation,
}

impl Default for ExpertOptions {
    fn default() -> Self {
        ExpertOptions {
            log_group_bytes: 16 << 20,
            wal_bytes_max: 0,
            async_threads: 2,
            compactions_max: 0,
            read_gap_bytes: None,
            loggers: Loggers::default(),
            buffered_age_ms_max: None,
            scrub_bytes_per_s: 0,
            checkpoint_requests: true,
            fast_tier_levels: 0,
            fast_tier_values_bytes_max: 0,
            fast_tier_values_flushed: false,
            fast_tier_adaptive: false,
            fast_tier_interval: Duration::from_secs(1),
            first_number: 1,
            merge_operators: MergeOperators::default(),
            compaction_filters: CompactionFilters::default(),
            policies: Policies::default(),
            ablation: Ablation::default(),
        }
    }
}

impl ExpertOptions {
    /// Checks each option; [`wal_bytes_max`](ExpertOptions::wal_bytes_max) with its derived value.
    pub(super) fn check_ranges(&self) -> Result<()> {
        check("buffered_age_ms_max", self.buffered_age_ms_max.unwrap_or(0), 0, 3_600_000)?;
        check("log_group_bytes", self.log_group_bytes, 64 << 10, 4 << 30)?;
        if !self.log_group_bytes.is_multiple_of(io::PAGE as u64) {
            return Err(Error::invalid(format!(
                "option log_group_bytes = {} must be a multiple of 4096 bytes",
                self.log_group_bytes
            )));
        }
        check("wal_bytes_max", self.wal_bytes_max(), 2 * self.log_group_bytes, 1 << 50)
            .map_err(beside("log_group_bytes", self.log_group_bytes))?;
        check("async_threads", self.async_threads, 1, 64)?;
        check("compactions_max", self.compactions_max, 0, 64)?;
        check("fast_tier_levels", self.fast_tier_levels, 0, limits::LEVELS_MAX)?;
        check("fast_tier_values_bytes_max", self.fast_tier_values_bytes_max, 0, 1 << 50)?;
        check("first_number", self.first_number, 1, 1 << 48)?;
        check("read_gap_bytes", self.read_gap_bytes.unwrap_or(0), 0, 1 << 20)?;
        self.loggers.validate()?;
        if self.scrub_bytes_per_s != 0 {
            check("scrub_bytes_per_s", self.scrub_bytes_per_s, 64 << 10, 1 << 50)?;
        }
        Ok(())
    }

    /// [`wal_bytes_max`](ExpertOptions::wal_bytes_max), derived if it is 0.
    pub(crate) fn wal_bytes_max(&self) -> u64 {
        match self.wal_bytes_max {
            0 => (256 << 20).max(self.log_group_bytes.saturating_mul(4)),
            set => set,
        }
    }

    /// Fails if an option needs a fast tier and the store has none.
    pub(crate) fn check_disks(&self, has_speed_disk: bool) -> Result<()> {
        if self.fast_tier_values_flushed && self.fast_tier_values_bytes_max == 0 {
            return Err(Error::invalid(
                "option fast_tier_values_flushed applies to values on the fast tier: set \
                 fast_tier_values_bytes_max too",
            ));
        }
        match self.fast_tier_values_bytes_max > 0 && !has_speed_disk {
            true => Err(Error::invalid(
                "option fast_tier_values_bytes_max needs a fast tier: set Options::fast_tier",
            )),
            false => Ok(()),
        }
    }
}

/// Options of a column family that few programs change: sizes of files and levels, throttle,
/// collection.
///
/// [`FamilyOptions::expert`](method@crate::FamilyOptions::expert) sets them. A value out of range
/// is refused; `0` mostly means a derived value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertFamilyOptions {
    /// Uncompressed size of a data block, bytes, 512 to 1 MiB. A point read takes one block from
    /// the disk; larger blocks compress better and suit scans. Default: 4096, a page.
    pub block_bytes: usize,
    /// Size at which a compaction starts the next table file, bytes, 4 KiB to 4 GiB. Smaller files
    /// make compactions shorter and more numerous. Default: 16 MiB.
    pub file_bytes: u64,
    /// Target size of the first level below level 0, bytes, at least `file_bytes`. Default: 0,
    /// derived: 64 MiB, or four files if these are longer.
    pub level_base_bytes: u64,
    /// Growth factor from one level to the next, 2 to 1000. A smaller one rewrites less per level
    /// and has more levels to search. Default: 10.
    pub level_multiplier: u32,
    /// Number of levels, including level 0, 2 to 7. The default suits all sizes. Default: 7.
    pub levels: usize,
    /// Number of files in level 0 that starts a compaction, 1 to 1000. More files save rewrites,
    /// and each point read may search all of them. Default: 4.
    pub l0_compaction_files: usize,
    /// Depth of level 0, in flushed memtables, at which the write throttle starts, so that
    /// compaction keeps up; at least `l0_compaction_files`. Default: 0, derived: four times
    /// `l0_compaction_files`, that is 16.
    pub l0_slowdown_files: usize,
    /// Depth of level 0, in flushed memtables, at which writers wait for a compaction; more than
    /// `l0_slowdown_files`. Default: 0, derived: twice `l0_slowdown_files`, that is 32.
    pub l0_stop_files: usize,
    /// Size at which the next value file (vSST) starts, bytes, 4 KiB to 4 GiB. Smaller files free
    /// garbage in smaller steps. Default: 32 MiB.
    pub vsst_bytes: u64,
    /// Share of garbage at which collection rewrites a value file (vSST), percent, 1 to 99. A lower
    /// one saves space and costs more rewrites. The engine collects earlier or later depending on
    /// free space. Default: 20.
    pub gc_ratio_percent: u32,
}

impl Default for ExpertFamilyOptions {
    fn default() -> Self {
        ExpertFamilyOptions {
            block_bytes: 4096,
            file_bytes: 16 << 20,
            level_base_bytes: 0,
            level_multiplier: 10,
            levels: limits::LEVELS_MAX,
            l0_compaction_files: 4,
            l0_slowdown_files: 0,
            l0_stop_files: 0,
            vsst_bytes: 32 << 20,
            gc_ratio_percent: 20,
        }
    }
}

impl ExpertFamilyOptions {
    /// Returns the same options with all derived values filled in.
    pub(super) fn derived(mut self) -> ExpertFamilyOptions {
        if self.level_base_bytes == 0 {
            self.level_base_bytes = (64 << 20).max(self.file_bytes.saturating_mul(4));
        }
        if self.l0_slowdown_files == 0 {
            self.l0_slowdown_files = self.l0_compaction_files.saturating_mul(4);
        }
        if self.l0_stop_files == 0 {
            self.l0_stop_files = self.l0_slowdown_files.saturating_mul(2);
        }
        self
    }

    /// Checks each option of a struct with all derived values filled in.
    pub(super) fn check_ranges(&self) -> Result<()> {
        check("block_bytes", self.block_bytes, 512, 1 << 20)?;
        check("file_bytes", self.file_bytes, 4 << 10, 4 << 30)?;
        check("level_base_bytes", self.level_base_bytes, self.file_bytes, 1 << 50)
            .map_err(beside("file_bytes", self.file_bytes))?;
        check("level_multiplier", self.level_multiplier, 2, 1000)?;
        check("levels", self.levels, 2, limits::LEVELS_MAX)?;
        check("l0_compaction_files", self.l0_compaction_files, 1, 1000)?;
        check("l0_slowdown_files", self.l0_slowdown_files, self.l0_compaction_files, 10_000)
            .map_err(beside("l0_compaction_files", self.l0_compaction_files))?;
        check("l0_stop_files", self.l0_stop_files, self.l0_slowdown_files.saturating_add(1), 100_000)
            .map_err(beside("l0_slowdown_files", self.l0_slowdown_files))?;
        check("vsst_bytes", self.vsst_bytes, 4 << 10, 4 << 30)?;
        check("gc_ratio_percent", self.gc_ratio_percent, 1, 99)
    }
}
