//! What an engine must offer to be measured.

use crate::Result;
use crate::args::{BenchArgs, Codec, SpeedLevels};
use crate::host::{self, DeviceCounters};
use crate::space::{self, Space};
use lavastore::testing::Ablation;
use lavastore::{Histograms, PolicyChoice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The memtable of one of many families.
const MEMTABLE_LEN_MIN: u64 = 1 << 20;
/// The first level below level 0, in memtables: as much as level 0 holds when its compaction starts, by default and as
/// RocksDB's tuning guide has it.
pub const LEVEL_BASE_MEMTABLES: u64 = 4;

/// Settings that mean the same to every engine. A driver maps them to its own and reports the mapping in
/// [`Engine::settings`].
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Every write durable before it is acknowledged.
    pub sync: bool,
    /// Budget for cached blocks, indexes and filters.
    pub cache_bytes: u64,
    /// Bytes of one memtable of each family; two are allowed before writes must wait.
    pub memtable_bytes: u64,
    /// Bytes of one table file.
    pub file_bytes: u64,
    /// Bytes of the first level below level 0.
    pub level_base_bytes: u64,
    /// How many times as large as the one above each level is; none: what the engine does by itself.
    pub level_multiplier: Option<u32>,
    /// Values of at least so many bytes are kept apart from their keys, by engines that can; 0: none are.
    pub min_blob_size: u64,
    /// Bytes of one file of such values.
    pub blob_file_bytes: u64,
    /// LavaStore: what decides which tables are compacted.
    pub policy: PolicyChoice,
    /// LavaStore: garbage of a value file, in percent, that makes it worth collecting.
    pub gc_ratio_percent: Option<u32>,
    /// LavaStore: gaps between two places that are read over; none: what is measured.
    pub read_gap: Option<u64>,
    /// Families of keys; those behind the first are in [`Engine::families`].
    pub families: u64,
    /// LavaStore: mechanisms switched off.
    pub ablation: Ablation,
    /// The store may occupy so many bytes; an engine that does not know limits ignores it, see
    /// [`Engine::keeps_space_limit`].
    pub space_limit_bytes: Option<u64>,
    /// Threads for flushes and compactions together.
    pub background_threads: u64,
    /// Bloom bits per key.
    pub filter_bits_per_key: u32,
    /// Around the page cache for table data.
    pub direct_io: bool,
    /// Compression of blocks.
    pub compression: Codec,
    /// LavaStore: durable writes of the log at once.
    pub loggers: u64,
    /// LavaStore: what is buffered waits so long for a flush before it is written to the log, milliseconds.
    pub buffered_age: Option<u64>,
    /// LavaStore, RocksDB: the log is there.
    pub log_dir: Option<PathBuf>,
    /// LavaStore: so many levels are there as well.
    pub speed_levels: SpeedLevels,
    /// LavaStore: so many bytes of hot values are there as well.
    pub speed_values: u64,
    /// LavaStore: and not of hot ones alone.
    pub speed_fresh: bool,
    /// A log that is longer has memory flushed; none: the engine's own bound.
    pub log_bytes_max: Option<u64>,
}

impl EngineSettings {
    /// The settings of a run.
    ///
    /// # Errors
    /// A mechanism to be switched off that does not exist.
    pub fn of(args: &BenchArgs) -> Result<Self> {
        let families = args.tail.families;
        // Of several families each gets its part, down to a size below which a memtable is none; its tree begins
        // accordingly smaller, and a table is no larger than the first level.
        let memtable_bytes = match families {
            1 => args.memtable_len(),
            _ => (args.memtable_len() / families).max(MEMTABLE_LEN_MIN.min(args.memtable_len())),
        };
        let level_base_bytes = args.level_base_bytes.unwrap_or(memtable_bytes * LEVEL_BASE_MEMTABLES);
        Ok(EngineSettings {
            sync: args.is_durable(),
            loggers: args.requests.loggers,
            buffered_age: args.requests.buffered_age,
            log_dir: args.requests.log_dir.clone(),
            speed_levels: args.requests.speed_levels,
            speed_values: args.requests.speed_values,
            speed_fresh: args.requests.speed_fresh,
            log_bytes_max: None,
            families,
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

/// What has been written and is not yet where it is to stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of memtables.
    pub memory_bytes: u64,
    /// As many there may be when nothing is left to be flushed.
    pub memory_rest_bytes: u64,
    /// Tables of level 0.
    pub level_0_files: u64,
    /// As many there may be when nothing is left to be compacted.
    pub level_0_rest_files: u64,
}

/// What the harness does next; an engine without direct I/O may want to drop its pages before it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Filling the store.
    Load,
    /// Writes only.
    Write,
    /// Reads, perhaps beside writes.
    Read,
    /// Waiting for the background.
    Settle,
}

/// Puts that are written together.
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

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Number of puts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without puts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of keys and values.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|e| e.1));
        starts
            .zip(&self.ends)
            .map(|(start, &(key_end, end))| (&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// A put of this value, as durable as [`EngineSettings::sync`] says.
    Put(&'a [u8]),
    /// A get.
    Get,
    /// The first so many entries from the key on.
    Scan(u64),
}

/// What a request came to.
#[derive(Debug)]
pub enum Answer {
    /// It is written.
    Written,
    /// What the key has.
    Value(Option<lavastore::Value>),
    /// Keys with their values.
    Entries(Vec<lavastore::Entry>),
}

/// Requests of one thread that does not wait for each.
pub trait Flight {
    /// Submits a request. `token` comes back with its answer.
    fn submit(&mut self, asked: Asked<'_>, key: &[u8], token: u64) -> Result<()>;

    /// Waits for one that is over.
    fn wait(&mut self) -> Result<(u64, Answer)>;
}

/// An open store of some engine. All calls come from several threads at once.
pub trait Engine: Send + Sync {
    /// Writes one key, as durable as [`EngineSettings::sync`] says.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes a batch, atomically; `durable` false during the load, else as [`EngineSettings::sync`] says.
    fn write(&self, batch: &Batch, durable: bool) -> Result<()>;

    /// Deletes a key, as durable as [`EngineSettings::sync`] says.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Reads a key into `value` (cleared first); false if it does not exist.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Reads many keys in one call, and visits each that is there with its number. An engine that has no such call reads them one by one.
    fn multi_get(&self, keys: &[Vec<u8>], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut value = Vec::new();
        for (nth, key) in keys.iter().enumerate() {
            if self.get(key, &mut value)? {
                visit(nth, &value);
            }
        }
        Ok(())
    }

    /// Seeks to `start` and visits up to `limit` entries in key order; returns how many there were.
    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Moves what is in memory to tables.
    fn flush(&self) -> Result<()>;

    /// Waits until no background work is left; false if it took longer than `timeout`.
    fn settle(&self, timeout: Duration) -> Result<bool>;

    /// The families behind the first, which is the engine itself: the same store, but what is read and written are the keys of
    /// that family. There are as many in all as [`EngineSettings::families`] says; an engine that has none says so when
    /// it is opened.
    fn families(&self) -> Vec<&dyn Engine> {
        Vec::new()
    }

    /// Requests of which so many may be in flight at once; `None`: the engine has blocking calls only.
    fn flight(&self, _depth: u64) -> Result<Option<Box<dyn Flight>>> {
        Ok(None)
    }

    /// How long writers were made to wait since the store was opened, by cause, in nanoseconds: for the time series of
    /// `tail`. Called once a second.
    fn waits_ns(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// What is in memory and in level 0, if the engine tells. Called ten times a second while there are bursts.
    fn backlog(&self) -> Option<Backlog> {
        None
    }

    /// How long operations took, writers waited, and how large compactions were, since the store was opened, if the engine keeps
    /// that.
    fn histograms(&self) -> Option<Histograms> {
        None
    }

    /// No wait that the engine imposes is to be longer; none: it promises nothing.
    fn stall_budget(&self) -> Option<Duration> {
        None
    }

    /// Called in each client thread before its first operation.
    fn thread_begin(&self) {}

    /// Called in each client thread after its last operation.
    fn thread_end(&self) {}

    /// Called before a phase begins.
    fn phase(&self, _phase: Phase) {}

    /// The engine's own counters since it was opened: names and values, for the report. Of what happened in the measured
    /// phase the harness itself uses `get_device_reads` (reads from storage that gets needed), `get_*_reads` (the same by
    /// cause) and `stall_ns` (how long writers were made to wait, all together).
    fn stats(&self) -> Vec<(String, serde_json::Value)> {
        Vec::new()
    }

    /// What the engine says its space consists of: names and bytes, for the timeline. Called once a second.
    fn space_parts(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// True if it keeps [`EngineSettings::space_limit_bytes`] itself; otherwise the harness makes its writers wait.
    fn keeps_space_limit(&self) -> bool {
        false
    }

    /// Changes the limit of the space while the store is open. Returns the most that its files may occupy from now on: more than
    /// the limit if they occupy more already. `None`: it cannot do that.
    fn change_space_limit(&self, _limit_bytes: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The space that the files of the store in `dir` have.
    fn allocated(&self, dir: &Path) -> Space {
        space::allocated(dir)
    }

    /// The counters of the device below the store in `dir`; `None` if there is none.
    fn device_counters(&self, dir: &Path) -> Option<DeviceCounters> {
        host::device_counters(dir)
    }

    /// Reads and checks every byte of every file: how many are damaged. An engine that cannot do so finds none.
    fn files_damaged(&self) -> Result<u64> {
        Ok(0)
    }

    /// The engine's own settings: names and values, for the report.
    fn settings(&self) -> Vec<(String, String)>;

    /// Ends it cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens stores of an engine.
pub trait Opener: Sync {
    /// Its name and version.
    fn name(&self) -> String;

    /// Opens, or creates, the store in a directory.
    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>>;
}
