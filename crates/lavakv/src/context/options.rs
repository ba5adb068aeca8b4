//! Options of a store, of its column families, and of single reads and writes.
//!
//! Every option has a default that works; `Db::open(path)` needs none. Sizes are in bytes. An option that is out of
//! range, or a combination the engine does not support, is refused at open with [`ErrorKind::InvalidArgument`] and a
//! sentence that names the option and its range: nothing is silently clamped. (Sizes are made to fit a small volume, see
//! [`Options`].)
//!
//! Options of the store are given at every open. Options of a family are stored in the manifest when the family is
//! created; `Db::open_with` replaces the stored options of the default family by those in [`Options::family`].

use crate::context::ablation::Ablation;
use crate::context::event::EventListener;
use base::codec::{Reader, put_bytes, put_varint};
use base::{Compression, Error, ErrorKind, Result, limits};
use io::Access;
use lsm::policy::{FileChoice, Policies, PolicyChoice, TreeOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use version::names;

pub use store::space::SpaceLimit;
pub use wal::{Durability, Loggers};

/// How a store is opened.
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
    /// Budget of the block cache: index blocks, filters and data share it. Default: 64 MiB.
    pub cache_bytes: usize,
    /// Size at which a memtable is flushed. Default: 16 MiB.
    pub memtable_bytes: usize,
    /// Budget of all memtables of all families, flushing ones included, and of what of the log waits for them ([`Options::buffered_age_ms_max`]); writers wait
    /// above it. Default: 0, derived: four memtables and a full ring of open log pages. That is 112 MiB with the default sizes, of
    /// which 48 are for the log.
    pub memory_bytes: usize,
    /// The longest log group, the unit in which the write-ahead log is allocated. Groups begin at an eighth of it (16 to
    /// 64 KiB) and grow with the rate of writes. Default: 16 MiB.
    pub log_group_bytes: u64,
    /// Bound on the live write-ahead log: above it the family that holds the oldest group is flushed. Default: 0, derived: 256 MiB, or four
    /// log groups if these are longer.
    pub wal_bytes_max: u64,
    /// Threads for flush, compaction, garbage collection and clean-up; one more serves the log. Default: 2.
    pub background_threads: usize,
    /// Threads that carry on asynchronous requests ([`crate::Requests`]) which their caller could not finish: writes that wait, scans, and what
    /// else blocks; one more has their point reads in flight. They begin with the first such requests. Default: 2.
    pub async_threads: usize,
    /// Most compactions that run at once. Default: 0 (one less than the threads, at least one).
    pub compactions_max: usize,
    /// What background work may read and write in a second, all together, in bytes. Flush is counted and never held back, since writers
    /// wait for it: the rest waits for what it took. 0 is no bound. Default: 0.
    pub io_budget: u64,
    /// Gaps of at most so many bytes between two places of a file are read over, where both are wanted by one batch: by scans, by reads of many keys, by
    /// requests, and by collections. Default: none given, as many as cost what one request more costs. That is measured, for each disk, while the
    /// store is open ([`crate::Statistics::io_read_gap_bytes`]), and until enough is known 16 KiB (12 for collections).
    pub read_gap_bytes: Option<u64>,
    /// Durable writes of the log that are at the device at once. Default: one.
    pub loggers: Loggers,
    /// What a buffered write logs may wait so many milliseconds for the flush of its memtable, and then never costs a write of the log on the device; if it is older
    /// it is made durable (up to a second late). Until then a loss of power takes it, and what follows it. Up to 64 MiB of the log wait: a memtable and two log groups,
    /// in memory (part of [`Options::memory_bytes`](field@Options::memory_bytes)) and in a file that survives the process; a durable write takes along what waits. Where durable writes come, which [`Options::durability`] says or one
    /// that came since the opening, that is no more than the device takes within [`Options::stall_budget`]. Up to
    /// four families that are written are flushed together; where it is more of them every flush takes along what waits, too. Releases that know of no such option refuse a store that was open with it, until it was
    /// opened twice without and flushed. `Some(0)`: what is buffered is written when it is worth a write.
    /// Default: `None`, 10 seconds where [`Options::memory_bytes`](field@Options::memory_bytes) has room for what waits beside two memtables, and a [`Options::space_limit`] in bytes is 32 times
    /// as much; else as `Some(0)`.
    pub buffered_age_ms_max: Option<u64>,
    /// How fast everything the store is read from is read again in the background, to find what is damaged before it is
    /// needed; 0: not at all. Default: 0. What is found is told as [`crate::Event`] and in [`crate::Db::damaged_files`].
    pub scrub_bytes_per_s: u64,
    /// A file in which the store keeps its metrics while it is open, as [`crate::Db::metrics`] gives them: rewritten as a
    /// whole every five seconds, removed at close. A relative path begins at the directory of the store; `METRICS` there is
    /// where `lava stats --prometheus` looks. Default: none.
    pub metrics_file: Option<PathBuf>,
    /// The directory of a second disk, on which the log lies, all of it, tables of the first [`Options::speed_levels`] levels, and [`Options::speed_values_bytes_max`] of hot values. A store that has none yet gets it with this opening,
    /// and from then on is opened with it and with no other ([`store::speed`]). For one on another kind of file system than the
    /// store's see [`store::speed::joined`]. Default: none, the log is in the directory of the store.
    pub speed: Option<PathBuf>,
    /// Levels, from level 0 on, whose new tables are made on the second disk, if there is one with room beside what the log needs there
    /// (`wal_bytes_max` and a quarter more); those for which there is none are made in the directory, and counted
    /// ([`crate::Statistics::speed_tables_elsewhere`]). What is on either disk stays there until it is compacted. Default: 0, none.
    pub speed_levels: usize,
    /// Bytes of separated values that may be on the second disk, in the files of those that are overwritten often, which a flush parts from all others
    /// where keys are skewed. A file is begun there if a whole one stays within the bound and has room beside log and tables, else in the directory, and counted
    /// ([`crate::Statistics::speed_values_elsewhere`]); what survives their collection is in the directory. More than 0 is refused for a store without a
    /// second disk. What is on either disk stays there until it is collected. Default: 0, none.
    pub speed_values_bytes_max: u64,
    /// All values that a flush writes go to the second disk first, within [`Options::speed_values_bytes_max`], and what survives a collection comes to the
    /// directory where half of the bound is taken: what is overwritten before that never does. For a disk with room for a good part of what is written between two
    /// overwrites of a key. Values that are not known to be overwritten often leave a quarter of the bound to those that are, and what lasts goes to the directory where
    /// more than five eighths are taken ([`crate::Statistics::speed_values_moved_down`]). When it is switched off what lasts there goes to the directory. Default: false, only values that are overwritten often.
    pub speed_values_fresh: bool,
    /// How many levels are on the second disk follows what is measured, up to [`Options::speed_levels`]: it begins with the log alone, and tables go up and down while
    /// the store is open, where they wait less, and so that the log has its room. With `speed_levels` 0 whatever is there goes to the directory. Default:
    /// false, new tables of all these levels are made there.
    pub speed_moving: bool,
    /// How often it is looked whether it should move. Default: 1 s; less is for tests.
    #[doc(hidden)]
    pub speed_look: Duration,
    /// Page cache or direct I/O for tables and log. Default: direct.
    pub access: Access,
    /// Durability of writes that do not say. Default: buffered.
    pub durability: Durability,
    /// Files of data that stay open, at most. Fewer are where the store would use more than half of the descriptors that the process may have when
    /// it is opened (`ulimit -n`), which [`crate::Event::OpenFilesBounded`] tells. Default: 4096.
    pub open_files_max: usize,
    /// Options of the column family `default`.
    pub family: FamilyOptions,
    /// Told about flushes, compactions, stalls and background errors. A panic in it is caught and counted.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Where sequence numbers, file numbers, log groups and log pages start in a **new** store. For tests that cross
    /// 2^32; leave it alone otherwise. Default: 1.
    pub first_number: u64,
    /// Bound on what the store's files occupy, log and reserve included; kept at every moment. Default: none but the end
    /// of the volume, where the reserve is kept free as well.
    pub space_limit: Option<SpaceLimit>,
    /// What becomes of writes at that bound. Default: [`SpacePolicy::NoSpace`].
    pub space_policy: SpacePolicy,
    /// The longest that a write should wait for the engine: for memory, levels, log, garbage or space, but not for the device. What
    /// waits longer is counted ([`crate::Statistics::stalls_over_budget`]) and told ([`crate::Event::StallOverBudget`], with what was
    /// short). A write that must not wait says so itself ([`WriteOptions::wait_at_most`]). What others buffered, and a durable write has to take to the device before it, is bounded by it as
    /// well ([`Options::buffered_age_ms_max`]). Default: 10 ms.
    pub stall_budget: Duration,
    /// What an open does that finds tables or value files missing or of another length. Default: serve what can be read.
    pub damaged_files: DamagedFiles,
    /// The compaction policies that families may have: those that are built in. A test may add some.
    #[doc(hidden)]
    pub policies: Policies,
    /// Mechanisms switched off, to measure each of them: no option of a store.
    #[doc(hidden)]
    pub ablation: Ablation,
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
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            memory_bytes: 0,
            log_group_bytes: 16 << 20,
            wal_bytes_max: 0,
            background_threads: 2,
            async_threads: 2,
            compactions_max: 0,
            io_budget: 0,
            read_gap_bytes: None,
            loggers: Loggers::default(),
            buffered_age_ms_max: None,
            scrub_bytes_per_s: 0,
            metrics_file: None,
            speed: None,
            speed_levels: 0,
            speed_values_bytes_max: 0,
            speed_values_fresh: false,
            speed_moving: false,
            speed_look: Duration::from_secs(1),
            access: Access::Direct,
            durability: Durability::Buffered,
            open_files_max: 4096,
            family: FamilyOptions::default(),
            listener: None,
            first_number: 1,
            space_limit: None,
            space_policy: SpacePolicy::default(),
            stall_budget: Duration::from_millis(10),
            damaged_files: DamagedFiles::default(),
            policies: Policies::default(),
            ablation: Ablation::default(),
        }
    }
}

fn check<T: PartialOrd + std::fmt::Display>(name: &str, value: T, low: T, high: T) -> Result<()> {
    if value < low || value > high {
        return Err(Error::invalid(format!("option {name} = {value} is out of range: {low} to {high}")));
    }
    Ok(())
}

/// Names the option that a bound follows from.
fn beside<T: std::fmt::Display>(name: &str, value: T) -> impl Fn(Error) -> Error {
    move |e| e.context(format!("with {name} = {value}"))
}

impl Options {
    /// The same options, with a value for each of those that are derived where they are 0.
    pub(crate) fn derived(mut self) -> Options {
        self.family = self.family.derived();
        self.wal_bytes_max = self.wal_bytes_max();
        self.memory_bytes = self.memory_bytes();
        self
    }

    /// Checks every option but for what a limit of the space has to leave.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        check("cache_bytes", self.cache_bytes, 0, 1 << 42)?;
        check("memtable_bytes", self.memtable_bytes, 16 << 10, 4 << 30)?;
        let of_memory = if self.buffered_age_ms_max > Some(0) {
            "memory_bytes, with buffered_age_ms_max,"
        } else {
            "memory_bytes"
        };
        check(of_memory, self.memory_bytes, self.memory_bytes_min(), 1 << 42)
            .map_err(beside("memtable_bytes", self.memtable_bytes))?;
        check("buffered_age_ms_max", self.buffered_age_ms_max.unwrap_or(0), 0, 3_600_000)?;
        check("log_group_bytes", self.log_group_bytes, 64 << 10, 4 << 30)?;
        if !self.log_group_bytes.is_multiple_of(io::PAGE as u64) {
            return Err(Error::invalid("option log_group_bytes must be a multiple of 4096"));
        }
        check("wal_bytes_max", self.wal_bytes_max, 2 * self.log_group_bytes, 1 << 50)
            .map_err(beside("log_group_bytes", self.log_group_bytes))?;
        check("background_threads", self.background_threads, 1, 64)?;
        check("async_threads", self.async_threads, 1, 64)?;
        check("compactions_max", self.compactions_max, 0, 64)?;
        check("speed_levels", self.speed_levels, 0, limits::LEVELS_MAX)?;
        check("speed_values_bytes_max", self.speed_values_bytes_max, 0, 1 << 50)?;
        check("open_files_max", self.open_files_max, 16, 1 << 24)?;
        check("first_number", self.first_number, 1, 1 << 48)?;
        check("read_gap_bytes", self.read_gap_bytes.unwrap_or(0), 0, 1 << 20)?;
        self.loggers.validate()?;
        if self.io_budget != 0 {
            check("io_budget", self.io_budget, 1 << 20, 1 << 50)?;
        }
        let budget_us = u64::try_from(self.stall_budget.as_micros()).unwrap_or(u64::MAX);
        check("stall_budget, microseconds,", budget_us, 100, 3_600_000_000)?;
        self.check_metrics_file()?;
        if self.scrub_bytes_per_s != 0 {
            check("scrub_bytes_per_s", self.scrub_bytes_per_s, 64 << 10, 1 << 50)?;
        }
        self.family.validate()
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
        self.ablation.hot_cold.then_some((self.cache_bytes / 64).clamp(16 << 10, 4 << 20))
    }

    /// The most compactions below level 0 that run at once.
    pub(crate) fn compaction_slots(&self) -> usize {
        match self.compactions_max {
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

/// Options of one column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyOptions {
    /// How blocks of tables are compressed. Default: none.
    pub compression: Compression,
    /// Uncompressed size of a data block. Default: 4096.
    pub block_bytes: usize,
    /// Bits of filter per key; 0 for no filter. Default: 10 (about 1 % false positives).
    pub filter_bits_per_key: u32,
    /// Size at which compaction starts the next table file. Default: 16 MiB.
    pub file_bytes: u64,
    /// Target size of the first level below L0. Default: 0, derived: 64 MiB, or four files if these are longer.
    pub level_base_bytes: u64,
    /// How much larger each level is than the one above. Default: 10.
    pub level_multiplier: u32,
    /// Levels, L0 included. Default: 7.
    pub levels: usize,
    /// Files in L0 that start a compaction. Default: 4.
    pub l0_compaction_files: usize,
    /// Depth of L0, in flushed memtables, from which writers are slowed down. Default: 0, derived: four times
    /// [`FamilyOptions::l0_compaction_files`], which makes 16.
    pub l0_slowdown_files: usize,
    /// Depth of L0, in flushed memtables, at which writers wait. Default: 0, derived: twice the depth from which they are slowed
    /// down, which makes 32.
    pub l0_stop_files: usize,
    /// Values of at least so many bytes are kept apart from the keys, in vSSTs; 0: every value stays with its key. May
    /// change at every open: old data is read as it is, and moves when compaction rewrites it. Default: 512.
    pub min_blob_size: usize,
    /// Size at which the next vSST is started. Default: 32 MiB.
    pub vsst_bytes: u64,
    /// Garbage collection rewrites a vSST when so much of it, in percent, is garbage. Default: 20.
    pub gc_ratio_percent: u32,
    /// What decides which tables are compacted. Default: `leveled`, version 1. A store opens whatever its families have; one
    /// whose policy is not known here is read, and not written ([`ErrorKind::Unsupported`]) nor compacted, until a release
    /// that knows it opens the store, or [`crate::Db::set_family_options`] gives it another.
    pub policy: PolicyChoice,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        FamilyOptions {
            compression: Compression::None,
            block_bytes: 4096,
            filter_bits_per_key: 10,
            file_bytes: 16 << 20,
            level_base_bytes: 0,
            level_multiplier: 10,
            levels: limits::LEVELS_MAX,
            l0_compaction_files: 4,
            l0_slowdown_files: 0,
            l0_stop_files: 0,
            min_blob_size: 512,
            vsst_bytes: 32 << 20,
            gc_ratio_percent: 20,
            policy: PolicyChoice::default(),
        }
    }
}

/// First byte of encoded family options. Version 1 has nothing about separated values. Version 3 adds a byte that says where an
/// earlier release placed values; this one reads it and does not write that version. Version 4 is written for a policy other than
/// `leveled` 1.
const FAMILY_OPTIONS_VERSION: u8 = 4;

/// The byte of version 3 for values that go to the log and, by the flush, to a vSST.
const PLACED_IN_TABLES: u8 = 0;
/// The byte of version 3 for values in files beside the log. Such a family takes the default.
const PLACED_IN_LOG: u8 = 1;

/// The longest name of a policy, bytes.
const POLICY_NAME_LEN_MAX: usize = 255;
/// The longest parameters of a policy, bytes.
const POLICY_PARAMETERS_LEN_MAX: usize = 4 << 10;

impl FamilyOptions {
    /// The same options, with a value for each of those that are derived where they are 0: what a family that was created with them
    /// says its options are.
    pub fn derived(mut self) -> FamilyOptions {
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

    /// Checks every option, those that are derived with the values that they get.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option and its range; `Unsupported` for a codec that is not part of the build.
    pub fn validate(&self) -> Result<()> {
        self.clone().derived().check_ranges()
    }

    fn check_ranges(&self) -> Result<()> {
        check("block_bytes", self.block_bytes, 512, 1 << 20)?;
        check("filter_bits_per_key", self.filter_bits_per_key, 0, 64)?;
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
        if self.min_blob_size != 0 {
            check("min_blob_size", self.min_blob_size, 32, limits::VALUE_LEN_MAX)?;
        }
        check("vsst_bytes", self.vsst_bytes, 4 << 10, 4 << 30)?;
        check("gc_ratio_percent", self.gc_ratio_percent, 1, 99)?;
        check("bytes of policy.name", self.policy.name.len(), 1, POLICY_NAME_LEN_MAX)?;
        check("bytes of policy.parameters", self.policy.parameters.len(), 0, POLICY_PARAMETERS_LEN_MAX)?;
        table::compress::require(self.compression)
    }

    /// Fails if the policy is not known to the store, or its parameters are none.
    pub(crate) fn check_policy(&self, store: &Options) -> Result<()> {
        store.policies.make(&self.policy, &self.tree(store.ablation)).map(drop)
    }

    /// What they say to a compaction policy.
    pub(crate) fn tree(&self, ablation: Ablation) -> TreeOptions {
        TreeOptions {
            l0_compaction_files: self.l0_compaction_files,
            l0_slowdown_files: self.l0_slowdown_files,
            level_base_bytes: self.level_base_bytes,
            level_multiplier: u64::from(self.level_multiplier),
            levels: self.levels,
            file_bytes: self.file_bytes,
            compensated: ablation.compensated_size,
            choice: match ablation.least_overlap {
                true => FileChoice::MinOverlap,
                false => FileChoice::LargestCompensated,
            },
        }
    }

    /// As the manifest has them: nothing is left to be derived.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.clone().derived().encode_derived()
    }

    fn encode_derived(&self) -> Vec<u8> {
        let version = match self.policy == PolicyChoice::default() {
            true => 2,
            false => FAMILY_OPTIONS_VERSION,
        };
        let mut out = vec![version, self.compression as u8];
        for v in [
            self.block_bytes as u64,
            u64::from(self.filter_bits_per_key),
            self.file_bytes,
            self.level_base_bytes,
            u64::from(self.level_multiplier),
            self.levels as u64,
            self.l0_compaction_files as u64,
            self.l0_slowdown_files as u64,
            self.l0_stop_files as u64,
            self.min_blob_size as u64,
            self.vsst_bytes,
            u64::from(self.gc_ratio_percent),
        ] {
            put_varint(&mut out, v);
        }
        if version >= 4 {
            out.push(PLACED_IN_TABLES);
            put_bytes(&mut out, self.policy.name.as_bytes());
            put_varint(&mut out, u64::from(self.policy.version));
            put_bytes(&mut out, &self.policy.parameters);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if !(1..=FAMILY_OPTIONS_VERSION).contains(&version) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "family options of a newer release: upgrade the engine",
            ));
        }
        let compression = Compression::from_u8(r.u8()?)
            .ok_or_else(|| Error::corruption("unknown compression in family options"))?;
        // What is too large for its type is over every range, and refused as such.
        let size = |v: u64| usize::try_from(v).unwrap_or(usize::MAX);
        let mut options = FamilyOptions {
            compression,
            block_bytes: size(r.varint()?),
            filter_bits_per_key: size(r.varint()?).try_into().unwrap_or(u32::MAX),
            file_bytes: r.varint()?,
            level_base_bytes: r.varint()?,
            level_multiplier: size(r.varint()?).try_into().unwrap_or(u32::MAX),
            levels: size(r.varint()?),
            l0_compaction_files: size(r.varint()?),
            l0_slowdown_files: size(r.varint()?),
            l0_stop_files: size(r.varint()?),
            min_blob_size: 0,
            ..FamilyOptions::default()
        };
        if version >= 2 {
            options.min_blob_size = size(r.varint()?);
            options.vsst_bytes = r.varint()?;
            options.gc_ratio_percent = size(r.varint()?).try_into().unwrap_or(u32::MAX);
        }
        if version >= 3 {
            match r.u8()? {
                PLACED_IN_TABLES | PLACED_IN_LOG => {}
                n => return Err(Error::corruption(format!("value placement {n} in family options"))),
            }
        }
        if version >= 4 {
            options.policy = decode_policy(&mut r)?;
        }
        options.check_ranges().map_err(|e| e.context("family options in the manifest"))?;
        Ok(options)
    }
}

fn decode_policy(r: &mut Reader<'_>) -> Result<PolicyChoice> {
    let name = String::from_utf8(r.bytes()?.to_vec())
        .map_err(|_| Error::corruption("the name of a compaction policy in family options is no UTF-8"))?;
    let version = u32::try_from(r.varint()?)
        .map_err(|_| Error::corruption("version of a compaction policy in family options"))?;
    Ok(PolicyChoice { name, version, parameters: r.bytes()?.to_vec() })
}

/// Options of one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// What the acknowledgement promises; `None` takes [`Options::durability`].
    pub durability: Option<Durability>,
    /// The longest that the write may wait for the engine (not for the device, which makes it durable): if it would have to wait
    /// longer it fails with [`ErrorKind::Busy`], and nothing of it is written. Of a stream: each of its pieces. `None`: as long as
    /// it takes.
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
mod tests {
    use super::*;

    #[test]
    fn family_options_round_trip_and_absurd_ones_are_refused() {
        let o = FamilyOptions {
            compression: Compression::None,
            file_bytes: 1 << 20,
            levels: 3,
            ..Default::default()
        };
        assert_eq!(FamilyOptions::decode(&o.encode()).unwrap(), o.clone().derived());
        for cut in 0..o.encode().len() {
            assert!(FamilyOptions::decode(&o.encode()[..cut]).is_err());
        }
        // A policy is written only where it is another one, and nothing of it is looked at.
        assert_eq!(o.encode()[0], 2);
        let policy = PolicyChoice { name: "none of ours".into(), version: 300, parameters: vec![7, 8] };
        let other = FamilyOptions { policy, ..o.clone() };
        let bytes = other.encode();
        assert_eq!(bytes[1..o.encode().len()], o.encode()[1..]);
        let more = b"\x00\x0cnone of ours\xac\x02\x02\x07\x08";
        assert_eq!((bytes[0], &bytes[o.encode().len()..]), (4, &more[..]));
        assert_eq!(FamilyOptions::decode(&bytes).unwrap(), other.derived());
        for cut in 0..bytes.len() {
            assert!(FamilyOptions::decode(&bytes[..cut]).is_err());
        }
        let newer = FamilyOptions::decode(&[&[5], &bytes[1..]].concat()).unwrap_err();
        assert_eq!(newer.kind(), ErrorKind::Unsupported);
        let absurd = [
            Options { memtable_bytes: 1, ..Default::default() },
            Options { memory_bytes: 1 << 20, ..Default::default() },
            Options { log_group_bytes: 100_001, ..Default::default() },
            Options { background_threads: 0, ..Default::default() },
            Options {
                family: FamilyOptions { level_multiplier: 0, ..Default::default() },
                ..Default::default()
            },
            Options {
                family: FamilyOptions { l0_stop_files: 1, ..Default::default() },
                ..Default::default()
            },
        ];
        for o in absurd {
            assert_eq!(o.validate().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        Options::default().validate().unwrap();
    }

    /// An option that nobody set follows those that somebody did; two that contradict each other are both named.
    #[test]
    fn every_option_alone_is_valid_at_both_ends_of_its_range() {
        let defaults = Options::default().derived();
        assert_eq!((defaults.memory_bytes, defaults.wal_bytes_max), (112 << 20, 256 << 20));
        let family = &defaults.family;
        assert_eq!(
            (family.level_base_bytes, family.l0_slowdown_files, family.l0_stop_files),
            (64 << 20, 16, 32)
        );
        type Change = fn(&mut Options, bool);
        let alone: [(&str, Change); 28] = [
            ("cache_bytes", |o, most| o.cache_bytes = if most { 1 << 42 } else { 0 }),
            ("memtable_bytes", |o, most| o.memtable_bytes = if most { 4 << 30 } else { 16 << 10 }),
            ("memtable_bytes = 64 MiB", |o, _| o.memtable_bytes = 64 << 20),
            ("memory_bytes", |o, most| o.memory_bytes = if most { 1 << 42 } else { 32 << 20 }),
            ("log_group_bytes", |o, most| o.log_group_bytes = if most { 4 << 30 } else { 64 << 10 }),
            ("wal_bytes_max", |o, most| o.wal_bytes_max = if most { 1 << 50 } else { 32 << 20 }),
            ("background_threads", |o, most| o.background_threads = if most { 64 } else { 1 }),
            ("async_threads", |o, most| o.async_threads = if most { 64 } else { 1 }),
            ("compactions_max", |o, most| o.compactions_max = if most { 64 } else { 0 }),
            ("io_budget", |o, most| o.io_budget = if most { 1 << 50 } else { 1 << 20 }),
            ("read_gap_bytes", |o, most| o.read_gap_bytes = Some(if most { 1 << 20 } else { 0 })),
            ("buffered_age_ms_max", |o, most| o.buffered_age_ms_max = Some(if most { 3_600_000 } else { 0 })),
            ("buffered_age_ms_max = 1", |o, _| o.buffered_age_ms_max = Some(1)),
            ("scrub_bytes_per_s", |o, most| o.scrub_bytes_per_s = if most { 1 << 50 } else { 64 << 10 }),
            ("open_files_max", |o, most| o.open_files_max = if most { 1 << 24 } else { 16 }),
            ("first_number", |o, most| o.first_number = if most { 1 << 48 } else { 1 }),
            ("stall_budget", |o, most| {
                o.stall_budget = Duration::from_micros(if most { 3_600_000_000 } else { 100 })
            }),
            ("block_bytes", |o, most| o.family.block_bytes = if most { 1 << 20 } else { 512 }),
            ("filter_bits_per_key", |o, most| o.family.filter_bits_per_key = if most { 64 } else { 0 }),
            ("file_bytes", |o, most| o.family.file_bytes = if most { 4 << 30 } else { 4 << 10 }),
            ("level_base_bytes", |o, most| o.family.level_base_bytes = if most { 1 << 50 } else { 16 << 20 }),
            ("level_multiplier", |o, most| o.family.level_multiplier = if most { 1000 } else { 2 }),
            ("levels", |o, most| o.family.levels = if most { limits::LEVELS_MAX } else { 2 }),
            ("l0_compaction_files", |o, most| o.family.l0_compaction_files = if most { 1000 } else { 1 }),
            ("l0_slowdown_files", |o, most| o.family.l0_slowdown_files = if most { 10_000 } else { 4 }),
            ("l0_stop_files", |o, most| o.family.l0_stop_files = if most { 100_000 } else { 17 }),
            ("min_blob_size", |o, most| {
                o.family.min_blob_size = if most { limits::VALUE_LEN_MAX } else { 0 }
            }),
            ("vsst_bytes", |o, most| o.family.vsst_bytes = if most { 4 << 30 } else { 4 << 10 }),
        ];
        for (name, change) in alone {
            for most in [false, true] {
                let mut options = Options::default();
                change(&mut options, most);
                options.derived().validate().unwrap_or_else(|e| panic!("{name}, most {most}: {e}"));
            }
        }
        let both = Options { memtable_bytes: 64 << 20, memory_bytes: 112 << 20, ..Options::default() };
        let e = both.derived().validate().unwrap_err();
        let told = "with memtable_bytes = 67108864: option memory_bytes = 117440512 is out of range";
        assert!(e.message().starts_with(told), "{e}");
    }

    /// Each option has a range, and what is outside of it is refused by name.
    #[test]
    fn every_option_out_of_its_range_is_named() {
        type Change = fn(&mut Options);
        let cases: [(&str, Change); 25] = [
            ("background_threads", |o| o.background_threads = 0),
            ("async_threads", |o| o.async_threads = 0),
            ("compactions_max", |o| o.compactions_max = 65),
            ("speed_levels", |o| o.speed_levels = 8),
            ("speed_values_bytes_max", |o| o.speed_values_bytes_max = u64::MAX),
            ("scrub_bytes_per_s", |o| o.scrub_bytes_per_s = 1),
            ("io_budget", |o| o.io_budget = 1),
            ("buffered_age_ms_max", |o| {
                (o.buffered_age_ms_max, o.memory_bytes) = (Some(3_600_001), 1 << 30);
            }),
            ("memory_bytes, with buffered_age_ms_max,", |o| {
                (o.buffered_age_ms_max, o.memory_bytes) = (Some(1), 79 << 20);
            }),
            ("read_gap_bytes", |o| o.read_gap_bytes = Some((1 << 20) + 1)),
            ("loggers.writes_max", |o| o.loggers.writes_max = 4),
            ("stall_budget, microseconds,", |o| o.stall_budget = Duration::ZERO),
            ("open_files_max", |o| o.open_files_max = 1),
            ("wal_bytes_max", |o| o.wal_bytes_max = 1),
            ("block_bytes", |o| o.family.block_bytes = 1),
            ("file_bytes", |o| o.family.file_bytes = 1),
            ("level_base_bytes", |o| o.family.level_base_bytes = 1),
            ("level_multiplier", |o| o.family.level_multiplier = 1),
            ("levels", |o| o.family.levels = 100),
            ("l0_slowdown_files", |o| o.family.l0_slowdown_files = 1),
            ("l0_stop_files", |o| o.family.l0_stop_files = 1),
            ("vsst_bytes", |o| o.family.vsst_bytes = 1),
            ("gc_ratio_percent", |o| o.family.gc_ratio_percent = 100),
            ("bytes of policy.name", |o| o.family.policy.name.clear()),
            ("bytes of policy.parameters", |o| o.family.policy.parameters = vec![0; 5000]),
        ];
        for (name, change) in cases {
            let mut options = Options::default();
            change(&mut options);
            let e = options.derived().check_ranges().expect_err(name);
            assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
            let told = format!("option {name} = ");
            assert!(e.message().contains(&told) && e.message().contains("out of range"), "{name}: {e}");
        }
    }

    #[test]
    fn family_options_that_no_release_writes_are_told() {
        let policy = PolicyChoice { name: "x".into(), ..PolicyChoice::default() };
        let named = FamilyOptions { policy, ..FamilyOptions::default() }.encode();
        let at = named.len() - 3;
        assert_eq!(named[at - 1..at + 1], [1, b'x'], "the name, and its length before it");
        let changed = |at: usize, to: u8| {
            let mut bytes = named.clone();
            bytes[at] = to;
            bytes
        };
        let long = [&named[..at + 1], &[0xff, 0xff, 0xff, 0xff, 0x7f, 0]].concat();
        let absurd = FamilyOptions { levels: 100, ..FamilyOptions::default() }.derived().encode();
        let cases = [
            (changed(1, 99), "unknown compression in family options"),
            (changed(at - 2, 9), "value placement 9 in family options"),
            (changed(at, 0xff), "the name of a compaction policy in family options is no UTF-8"),
            (long, "version of a compaction policy in family options"),
            (absurd, "family options in the manifest: option levels = 100 is out of range"),
        ];
        for (bytes, told) in cases {
            let e = FamilyOptions::decode(&bytes).expect_err(told);
            assert!(e.message().starts_with(told), "{told}: {e}");
        }
    }
}
