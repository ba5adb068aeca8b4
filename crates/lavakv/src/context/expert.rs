//! The second page of options: [`ExpertOptions`] of a store, [`ExpertFamilyOptions`] of a column family.
//!
//! An option stands here if its default, or the value that the engine derives, suits nearly every program: a program that
//! changes it has a measurement that says so. The rules of the module `options` hold here as well.

use super::ablation::Ablation;
use super::range::{beside, check};
use base::{Error, Result, limits};
use lsm::policy::Policies;
use std::time::Duration;
use wal::Loggers;

/// Options of a store that few programs change: [`Options::expert`](method@crate::Options::expert) sets them.
#[derive(Clone, Debug)]
pub struct ExpertOptions {
    /// The longest log group, the unit of allocation of the write-ahead log, bytes: 64 KiB to 4 GiB, a multiple of 4096. Groups
    /// begin at an eighth of it (16 to 64 KiB) and grow with the rate of writes; on a small volume they are shorter. Default:
    /// 16 MiB.
    pub log_group_bytes: u64,
    /// Bound on the live write-ahead log, bytes: above it the engine flushes the family that holds the oldest group. At least two
    /// log groups. Default: 0, derived: 256 MiB, or four log groups if these are longer.
    pub wal_bytes_max: u64,
    /// Threads that run asynchronous requests ([`crate::Requests`]) which their caller could not finish: writes that wait, scans,
    /// and other blocking calls. 1 to 64. One more thread has their point reads in flight. The threads begin with the first such
    /// request. Default: 2, since these threads wait more than they compute.
    pub async_threads: usize,
    /// The most compactions that run at once, at most 64. Default: 0, derived: one less than the background threads, at least
    /// one, so that one thread is left for flushes.
    pub compactions_max: usize,
    /// The widest gap between two places of a file that a read goes over where one batch wants both, bytes, at most 1 MiB: scans, reads
    /// of many keys, requests, and collections. Default: `None`, derived: as many bytes as cost what one request more costs. The
    /// engine measures that for each disk while the store is open ([`crate::Statistics::io_read_gap_bytes`]); before it knows
    /// enough, 16 KiB (12 KiB for collections).
    pub read_gap_bytes: Option<u64>,
    /// Durable writes of the log that are at the device at once. Default: one. [`Loggers::AUTO`] finds the number while the store
    /// is open.
    pub loggers: Loggers,
    /// The longest time that a page of buffered writes waits for the flush of its memtable, milliseconds, at most 3,600,000 (an
    /// hour). A page whose memtable is flushed sooner is never written to the log device; an older one is made durable (up to a
    /// second late). Until then a loss of power takes these writes and those after them.
    ///
    /// Up to 64 MiB of the log wait (a memtable and two log groups), in memory (part of
    /// [`Options::memory_bytes`](field@crate::Options::memory_bytes)) and in a file that survives the process. A durable write
    /// makes all waiting pages durable. Where durable writes are expected ([`crate::Options::durability`]) or one came since the
    /// opening, no more waits than the device takes within [`crate::Options::stall_budget`]. Up to four written families are
    /// flushed together; with more, each flush writes the waiting pages too. A release that does not know this option refuses a
    /// store that was open with it, until the store was opened twice without it and flushed.
    ///
    /// `Some(0)`: a page is written as soon as it is worth a write. Default: `None`, derived: 10 seconds where `memory_bytes` has
    /// room for the waiting pages beside two memtables, and a [`crate::Options::space_limit`] in bytes is at least 32 times as much;
    /// else as `Some(0)`.
    pub buffered_age_ms_max: Option<u64>,
    /// Rate at which the engine reads all files of the store again in the background, to find damage before a reader needs the
    /// data, bytes per second; at least 64 KiB. It reports damage as [`crate::Event`] and in [`crate::Db::damaged_files`]. Default: 0,
    /// no such reads.
    pub scrub_bytes_per_s: u64,
    /// Whether the store makes checkpoints that other processes request through its directory (`lava checkpoint`). Any process that may
    /// write the directory may request one, at any absolute path where this process may make a directory. The store looks for one
    /// name at most once a second. Default: true.
    pub checkpoint_requests: bool,
    /// Levels, from level 0 on, whose new tables are made on the second disk ([`crate::Options::speed`]), at most 7. The log comes
    /// first there: `wal_bytes_max` and a quarter more. Tables without room are made in the directory, and counted
    /// ([`crate::Statistics::speed_tables_elsewhere`]). A table stays on its disk until it is compacted. Default: 0, none.
    pub speed_levels: usize,
    /// Bound on separated values on the second disk, bytes: files of hot values, which a flush writes apart from all others where keys are
    /// skewed. A file begins there if a whole one stays within the bound and has room beside log and tables; else it begins in the
    /// directory, and is counted ([`crate::Statistics::speed_values_elsewhere`]). Values that survive a collection go to the
    /// directory. A file stays on its disk until it is collected. More than 0 is refused for a store without a second disk.
    /// Default: 0, none.
    pub speed_values_bytes_max: u64,
    /// Write all flushed values to the second disk first, within
    /// [`speed_values_bytes_max`](ExpertOptions::speed_values_bytes_max). Values that survive a collection go to the directory where half
    /// of the bound is taken: values that are overwritten sooner never do. For a second disk with room for a good part of the bytes
    /// that are written between two overwrites of a key. Values not known to be hot leave a quarter of the bound to hot ones, and
    /// lasting values go to the directory where more than five eighths of it are taken
    /// ([`crate::Statistics::speed_values_moved_down`]). After it is switched off, lasting values go to the directory. Default:
    /// false, hot values only.
    pub speed_values_fresh: bool,
    /// Derive the number of levels on the second disk from measured waits, up to
    /// [`speed_levels`](ExpertOptions::speed_levels): the store begins with the log alone there, and moves tables between the
    /// disks while it is open. With `speed_levels` 0 all tables there go to the directory. Default: false, new tables of all these
    /// levels are made there.
    pub speed_moving: bool,
    /// Interval between two decisions on the levels of the second disk. Default: 1 s; less is for tests.
    #[doc(hidden)]
    pub speed_look: Duration,
    /// First sequence number, file number, log group and log page of a **new** store, 1 to 2^48. For tests that cross 2^32.
    /// Default: 1.
    pub first_number: u64,
    /// The compaction policies that families may have. Default: those that are built in; a test may add some.
    #[doc(hidden)]
    pub policies: Policies,
    /// Mechanisms switched off, to measure each of them: no option of a store.
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
            speed_levels: 0,
            speed_values_bytes_max: 0,
            speed_values_fresh: false,
            speed_moving: false,
            speed_look: Duration::from_secs(1),
            first_number: 1,
            policies: Policies::default(),
            ablation: Ablation::default(),
        }
    }
}

impl ExpertOptions {
    /// Checks each option, [`wal_bytes_max`](ExpertOptions::wal_bytes_max) with the value that it gets.
    pub(super) fn check_ranges(&self) -> Result<()> {
        check("buffered_age_ms_max", self.buffered_age_ms_max.unwrap_or(0), 0, 3_600_000)?;
        check("log_group_bytes", self.log_group_bytes, 64 << 10, 4 << 30)?;
        if !self.log_group_bytes.is_multiple_of(io::PAGE as u64) {
            return Err(Error::invalid("option log_group_bytes must be a multiple of 4096"));
        }
        check("wal_bytes_max", self.wal_bytes_max(), 2 * self.log_group_bytes, 1 << 50)
            .map_err(beside("log_group_bytes", self.log_group_bytes))?;
        check("async_threads", self.async_threads, 1, 64)?;
        check("compactions_max", self.compactions_max, 0, 64)?;
        check("speed_levels", self.speed_levels, 0, limits::LEVELS_MAX)?;
        check("speed_values_bytes_max", self.speed_values_bytes_max, 0, 1 << 50)?;
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

    /// Fails if something is to be on a second disk, and none is given.
    pub(crate) fn check_disks(&self, has_speed_disk: bool) -> Result<()> {
        if self.speed_values_fresh && self.speed_values_bytes_max == 0 {
            return Err(Error::invalid(
                "option speed_values_fresh is about values on a speed disk: set speed_values_bytes_max",
            ));
        }
        match self.speed_values_bytes_max > 0 && !has_speed_disk {
            true => Err(Error::invalid(
                "option speed_values_bytes_max is for a store with a speed disk: name the disk",
            )),
            false => Ok(()),
        }
    }
}

/// Options of a column family that few programs change: [`FamilyOptions::expert`](method@crate::FamilyOptions::expert) sets
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertFamilyOptions {
    /// Uncompressed size of a data block, bytes, 512 to 1 MiB. A point read takes one block from the disk. Default: 4096, a page.
    pub block_bytes: usize,
    /// Size at which a compaction starts the next table file, bytes, 4 KiB to 4 GiB. Default: 16 MiB.
    pub file_bytes: u64,
    /// Target size of the first level below level 0, bytes, at least `file_bytes`. Default: 0, derived: 64 MiB, or four files if
    /// these are longer.
    pub level_base_bytes: u64,
    /// Growth factor from one level to the next, 2 to 1000. Default: 10.
    pub level_multiplier: u32,
    /// Levels, level 0 included, 2 to 7. Default: 7.
    pub levels: usize,
    /// Files in level 0 that start a compaction, 1 to 1000. Default: 4.
    pub l0_compaction_files: usize,
    /// Depth of level 0, in flushed memtables, from which writers are slowed down; at least `l0_compaction_files`. Default: 0,
    /// derived: four times `l0_compaction_files`, which makes 16.
    pub l0_slowdown_files: usize,
    /// Depth of level 0, in flushed memtables, at which writers wait; more than `l0_slowdown_files`. Default: 0, derived: twice
    /// `l0_slowdown_files`, which makes 32.
    pub l0_stop_files: usize,
    /// Size at which the next vSST (file of separated values) starts, bytes, 4 KiB to 4 GiB. Default: 32 MiB.
    pub vsst_bytes: u64,
    /// Share of garbage at which collection rewrites a vSST, percent, 1 to 99. The engine collects sooner or later than that by the
    /// room that is left. Default: 20.
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
    /// The same options, with a value for each derived one that is 0.
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

    /// Checks each option of those that have a value for the derived ones.
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
