//! The interface of measured engines.

use crate::Result;
use crate::args::{BenchArgs, Codec, SpeedLevels, Workload};
use crate::host::{self, DeviceCounters};
use crate::space::{self, Space};
use lavastore::testing::Ablation;
use lavastore::{Histograms, PolicyChoice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Minimum memtable size with many families.
const MEMTABLE_LEN_MIN: u64 = 1 << 20;
/// First level below level 0 in memtables: the size of level 0 at the start of its compaction by
/// default, as in RocksDB's tuning guide.
pub const LEVEL_BASE_MEMTABLES: u64 = 4;

/// Settings with the same meaning for every engine. A driver maps them to its own and reports the
/// mapping in [`Engine::settings`].
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Whether every write is durable before it is acknowledged.
    pub sync: bool,
    /// Whether writes stay out of the log.
    pub volatile: bool,
    /// Budget for cached blocks, indexes and filters.
    pub cache_bytes: u64,
    /// Size of a memtable of each family; writes wait beyond two.
    pub memtable_bytes: u64,
    /// Size of a table file.
    pub file_bytes: u64,
    /// Size of the first level below level 0.
    pub level_base_bytes: u64,
    /// Size ratio of consecutive levels; `None` for the engine's default.
    pub level_multiplier: Option<u32>,
    /// Minimum length of separated values, in engines that support them; 0: none.
    pub min_blob_size: u64,
    /// Size of a file of separated values.
    pub blob_file_bytes: u64,
    /// LavaStore: compaction policy.
    pub policy: PolicyChoice,
    /// LavaStore: garbage of a value file in percent at which it is collected.
    pub gc_ratio_percent: Option<u32>,
    /// LavaStore: maximum gap that a read covers; `None`: measured.
    pub read_gap: Option<u64>,
    /// Whether keys take merge operands that count.
    pub counters: bool,
    /// Number of column families; those after the first are in [`Engine::families`].
    pub families: u64,
    /// LavaStore: mechanisms switched off.
    pub ablation: Ablation,
    /// Space limit; an engine without limits ignores it, see [`Engine::keeps_space_limit`].
    pub space_limit_bytes: Option<u64>,
    /// Threads for flushes and compactions together.
    pub background_threads: u64,
    /// Bloom bits per key.
    pub filter_bits_per_key: u32,
    /// Whether table data bypasses the page cache.
    pub direct_io: bool,
    /// Compression of blocks.
    pub compression: Codec,
    /// LavaStore: concurrent durable writes of the log.
    pub loggers: u64,
    /// LavaStore: maximum age of a buffered log page in milliseconds.
    pub buffered_age: Option<u64>,
    /// LavaStore, RocksDB: directory of the log.
    pub log_dir: Option<PathBuf>,
    /// LavaStore: levels with tables there.
    pub speed_levels: SpeedLevels,
    /// LavaStore: maximum bytes of hot values there.
    pub speed_values: u64,
    /// LavaStore: whether all flushed values go there first.
    pub speed_fresh: bool,
    /// Log size that triggers flushes; `None` for the engine's default.
    pub log_bytes_max: Option<u64>,
}

impl EngineSettings {
    /// Returns the settings of a run.
    ///
    /// # Errors
    /// An unknown mechanism to switch off.
    pub fn of(args: &BenchArgs) -> Result<Self> {
        let families = args.tail.families;
        // Several families share the memory, down to a minimum memtable size; the first level of
        // their trees and their tables shrink accordingly.
        let memtable_bytes = match families {
            1 => args.memtable_len(),
            _ => (args.memtable_len() / families).max(MEMTABLE_LEN_MIN.min(args.memtable_len())),
        };
        let level_base_bytes = args.level_base_bytes.unwrap_or(memtable_bytes * LEVEL_BASE_MEMTABLES);
        Ok(EngineSettings {
            sync: args.is_durable(),
            volatile: args.volatile,
            loggers: args.requests.loggers,
            buffered_age: args.requests.buffered_age,
            log_dir: args.requests.log_dir.clone(),
            speed_levels: args.requests.speed_levels,
            speed_values: args.requests.speed_values,
            speed_fresh: args.requests.speed_fresh,
            log_bytes_max: None,
            families,
            counters: args.workload == Workload::Counters,
            cache_bytes: args.cache_budget(),
            memtable_bytes,
            file_bytes: args.file_len().min(level_base_bytes),
            level_base_bytes,
            level_multiplier: args.level_multiplier,
            policy: args.policy(),
            min_blob_size: args.min_blob_size,
            blob_file_bytes: args.blob_file_len(),
            gc_ratio_percent: args.gc_ratio_percent,
            read_gap: args.read_gap,
            ablation: args.ablation()?,
            space_limit_bytes: args.limit_bytes(),
            background_threads: args.background_threads,
            filter_bits_per_key: 10,
            direct_io: !args.buffered_io,
            compression: args.compression,
        })
    }
}

/// Pending work of the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of memtables.
    pub memory_bytes: u64,
    /// Bytes of memtables that are not flushed without new writes.
    pub memory_rest_bytes: u64,
    /// Tables of level 0.
    pub level_0_files: u64,
    /// Tables of level 0 that are not compacted without new writes.
    pub level_0_rest_files: u64,
}

/// Next phase of the harness; an engine without direct I/O may drop its pages before reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Load of the store.
    Load,
    /// Writes only.
    Write,
    /// Reads, possibly with writes.
    Read,
    /// Wait for the background.
    Settle,
}

/// A batch of puts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Removes all puts and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of puts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true without puts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of keys and values.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|e| e.1));
        starts
            .zip(&self.ends)
            .map(|(start, &(key_end, end))| (&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// A put with this value and the durability of [`EngineSettings::sync`].
    Put(&'a [u8]),
    /// A get.
    Get,
    /// A scan of this many entries from the key on.
    Scan(u64),
}

/// Result of a request.
#[derive(Debug)]
pub enum Answer {
    /// Result of a put.
    Written,
    /// Result of a get.
    Value(Option<lavastore::Value>),
    /// Result of a scan.
    Entries(Vec<lavastore::Entry>),
}

/// Asynchronous requests of one thread.
pub trait Flight {
    /// Submits a request; its result comes with `token`.
    fn submit(&mut self, asked: Asked<'_>, key: &[u8], token: u64) -> Result<()>;

    /// Waits for a finished request.
    fn wait(&mut self) -> Result<(u64, Answer)>;
}

/// A transaction of an engine.
pub trait EngineTransaction {
    /// Reads a key into `value` (cleared first); returns false if it does not exist.
    ///
    /// # Errors
    /// A conflict; errors of the engine.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// The same for a key that the transaction writes afterwards.
    ///
    /// # Errors
    /// As [`EngineTransaction::get`].
    fn get_for_update(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Sets a key at the commit.
    ///
    /// # Errors
    /// As [`EngineTransaction::get`].
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes the changes, with the durability of [`EngineSettings::sync`].
    ///
    /// # Errors
    /// As [`EngineTransaction::get`].
    fn commit(self: Box<Self>) -> Result<()>;
}

/// An open store of an engine. Several threads call it concurrently.
pub trait Engine: Send + Sync {
    /// Writes a key with the durability of [`EngineSettings::sync`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes a batch atomically; `durable` is false during the load, otherwise
    /// [`EngineSettings::sync`] applies.
    fn write(&self, batch: &Batch, durable: bool) -> Result<()>;

    /// Adds a merge operand to a counter ([`EngineSettings::counters`]), with the durability of
    /// [`EngineSettings::sync`]. Fails if the driver of the engine has no merges.
    fn merge(&self, _key: &[u8], _operand: &[u8]) -> Result<()> {
        Err("the driver of the engine has no merges".into())
    }

    /// Deletes a key with the durability of [`EngineSettings::sync`].
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Reads a key into `value` (cleared first); returns false if it does not exist.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Reads many keys in one call, and visits each existing one with its index. Falls back to
    /// single gets.
    fn multi_get(&self, keys: &[Vec<u8>], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut value = Vec::new();
        for (nth, key) in keys.iter().enumerate() {
            if self.get(key, &mut value)? {
                visit(nth, &value);
            }
        }
        Ok(())
    }

    /// Seeks to `start` and visits up to `limit` entries in key order; returns their number.
    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Visits up to `limit` entries whose keys begin with `prefix`, in key order; returns their
    /// number. Fails if the driver of the engine has none.
    fn scan_prefix(&self, _prefix: &[u8], _limit: u64, _visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        Err("the driver of the engine has no scans of a prefix".into())
    }

    /// Flushes the memtables to tables.
    fn flush(&self) -> Result<()>;

    /// Waits for background work; returns false after `timeout`.
    fn settle(&self, timeout: Duration) -> Result<bool>;

    /// Returns the column families after the first one, which is the engine itself, as engines on
    /// their keys. The total number is [`EngineSettings::families`]; an engine without families
    /// fails the open.
    fn families(&self) -> Vec<&dyn Engine> {
        Vec::new()
    }

    /// Returns an asynchronous interface with at most `depth` requests in flight; `None` for
    /// blocking engines.
    fn flight(&self, _depth: u64) -> Result<Option<Box<dyn Flight>>> {
        Ok(None)
    }

    /// Begins a transaction, with row locks or optimistic; `None` if the engine has none. The run
    /// does not mix the two.
    fn transaction(&self, _locks: bool) -> Result<Option<Box<dyn EngineTransaction + '_>>> {
        Ok(None)
    }

    /// Returns true if an error of a transaction means that it is to begin again.
    fn is_conflict(&self, _error: &crate::Error) -> bool {
        false
    }

    /// Returns the waits of writers since the open by cause, in nanoseconds, for the time series of
    /// `tail`. Called once a second.
    fn waits_ns(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the contents of memory and level 0, if known. Called ten times a second during
    /// bursts.
    fn backlog(&self) -> Option<Backlog> {
        None
    }

    /// Returns distributions of operation times, writer waits and compaction sizes since the open,
    /// if the engine has them.
    fn histograms(&self) -> Option<Histograms> {
        None
    }

    /// Returns the maximum wait that the engine promises; `None` without a promise.
    fn stall_budget(&self) -> Option<Duration> {
        None
    }

    /// Called in each client thread before its first operation.
    fn thread_begin(&self) {}

    /// Called in each client thread after its last operation.
    fn thread_end(&self) {}

    /// Called before a phase begins.
    fn phase(&self, _phase: Phase) {}

    /// Returns the engine's counters since the open, for the report. The harness itself uses
    /// `get_device_reads` (storage reads of gets), `get_*_reads` (the same by cause) and `stall_ns`
    /// (total waits of writers) for the measured phase.
    fn stats(&self) -> Vec<(String, serde_json::Value)> {
        Vec::new()
    }

    /// Returns the parts of the engine's space in bytes, for the timeline. Called once a second.
    fn space_parts(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns true if the engine enforces [`EngineSettings::space_limit_bytes`]; otherwise the
    /// harness makes writers wait.
    fn keeps_space_limit(&self) -> bool {
        false
    }

    /// Changes the space limit of the open store. Returns the maximum size of its files from now
    /// on: above the limit if they are larger already. `None`: not supported.
    fn change_space_limit(&self, _limit_bytes: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the allocated space of the store's files in `dir`.
    fn allocated(&self, dir: &Path) -> Space {
        space::allocated(dir)
    }

    /// Returns the counters of the device below the store in `dir`; `None` without one.
    fn device_counters(&self, dir: &Path) -> Option<DeviceCounters> {
        host::device_counters(dir)
    }

    /// Reads and checks every byte of every file; returns the number of damaged files, 0 if not
    /// supported.
    fn files_damaged(&self) -> Result<u64> {
        Ok(0)
    }

    /// Returns the engine's own settings, for the report.
    fn settings(&self) -> Vec<(String, String)>;

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens stores of an engine.
pub trait Opener: Sync {
    /// Returns its name and version.
    fn name(&self) -> String;

    /// Opens or creates the store in a directory.
    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>>;
}
