//! Command line options of a run. The embedding program adds the directory of the store and the
//! file of the report.

pub mod requests;
pub mod sweep;
pub mod tail;

use crate::limit::SpaceLimit;
use crate::record::Kind;
use crate::values::{VALUE_LEN_MAX, ValueSizes};
use clap::{Args, ValueEnum};
use lavastore::testing::Ablation;
use lavastore::{OverlapOf, PolicyChoice, VlsmOptions};
use requests::RequestArgs;
pub use requests::SpeedLevels;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use sweep::Sweep;
use tail::TailArgs;

/// Operations of the measured phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Put every key once, in random order, into an empty store.
    Load,
    /// Update existing keys.
    Overwrite,
    /// Get existing keys.
    Read,
    /// Get keys while one more thread updates at a fixed rate.
    Readwhilewriting,
    /// Get many keys per call, compared with single gets and with the device's random reads.
    #[serde(rename = "multi-get")]
    MultiGet,
    /// Seek and call next a number of times.
    Scan,
    /// Scan while one more thread updates at a fixed rate.
    Scanwhilewriting,
    /// LavaStore: one thread with many reads, writes or both in flight.
    Async,
    /// Durable updates by a number of concurrent writers.
    Sync,
    /// The six mixes of YCSB, chosen by --workload.
    Ycsb,
    /// LavaStore: overwrites at the space limit, a full store and, with --volume, a full volume.
    Contract,
    /// LavaStore: `overwrite` repeatedly, with one more mechanism of Scavenger+ each time.
    Ablation,
    /// A queue: repeatedly insert at the end, read the first element, delete it.
    Queue,
    /// Delays of updates and gets that are due at a share of the sustained rate.
    Tail,
    /// Transactions of four reads and two writes on popular keys.
    Transactions,
    /// A social graph with the mix of operations of LinkBench.
    Graph,
    /// Increments of counters by merge operands.
    Counters,
}

/// Distribution of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Uniform.
    Uniform,
    /// Zipf with exponent 0.99, with popular keys spread over the whole key space.
    Zipf,
    /// Pareto: a fifth of any popular part of the keys gets four fifths of its operations; spread
    /// as for Zipf.
    Pareto,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// No compression.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Compaction policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Level 0 is gathered and merged into the next level at once.
    #[default]
    Leveled,
    /// Level 0 is a queue, and overlap bounds the tables of the next level.
    Vlsm,
    /// Both, one after the other; only for `ablation`.
    Each,
}

/// Default raw bytes of a store: several times the caches of a small machine.
const DATA_LEN: f64 = 131_072.0 * 16_000.0;
/// Default length of a value in bytes.
const VALUE_LEN: u64 = 1000;
/// Maximum default number of keys.
const KEYS_MAX: u64 = 1_000_000;
/// The same for `sync`.
const SYNC_KEYS_MAX: u64 = 100_000;
/// The same for `tail`, whose store needs levels.
const TAIL_KEYS_MAX: u64 = 8_000_000;
/// Default number of client threads of `tail` and `ycsb`; 1 for other workloads.
const TAIL_THREADS: u64 = 4;
/// Maximum duration of the default warm-up.
const WARM_UP_SECONDS_MAX: f64 = 20.0;

/// A store that has not shrunk for so long needs writes to shrink.
const LIMIT_PATIENCE_SECONDS: f64 = 60.0;

/// Returns the command line name of a value.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

fn limit_patience_seconds() -> f64 {
    LIMIT_PATIENCE_SECONDS
}

fn keys_per_call() -> usize {
    64
}

/// Options of a run.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct BenchArgs {
    /// Workload to measure: the operations of the measured phase. All but `load`, which measures
    /// the load itself, first load the store with --num keys
    #[arg(value_enum)]
    pub workload: Workload,
    /// Length of values in bytes: a plain number, at most 16777216. Longer values mean fewer keys
    /// by default. No effect with --values and with `ablation --mechanisms`, which has its own
    /// lengths [default: 1000; contract: 16000]
    #[arg(long)]
    pub value_size: Option<u64>,
    /// Distribution of value lengths, which replaces --value-size: `fixed:N` (N bytes, at most
    /// 16777216), `mixed-8k` or `pareto-1k`. `mixed-8k`: half 100 to 512 B, half 16 KiB.
    /// `pareto-1k`: generalized Pareto with a mean of 1 KiB, at most 64 KiB. `queue` uses only the
    /// mean [default: all of --value-size]
    #[arg(long)]
    pub values: Option<ValueSizes>,
    /// Length of keys in bytes, 24 to 65536. Longer keys enlarge tables and log. No effect on
    /// `queue`, whose keys have 8 bytes
    #[arg(long, default_value_t = 24)]
    pub key_size: usize,
    /// Number of keys in the store (`queue`: of elements), at least 1. More keys need more disk
    /// space and a longer load [default: as many as give 2.1 GB of values, at most 1,000,000; sync:
    /// at most 100,000; tail: at most 8,000,000; contract: 65,536]
    #[arg(long)]
    pub num: Option<u64>,
    /// Number of updates of `overwrite`, `sync` and `async` [default: 3 x num], of operations of
    /// `ycsb` [default: num], over all threads. --seconds may end them sooner; `sync` and `ycsb`
    /// with --seconds run until then by default
    #[arg(long)]
    pub updates: Option<u64>,
    /// Number of gets of `read`, `readwhilewriting` and `async` [default: num], of scans of `scan`
    /// and `scanwhilewriting` [default: num / scan length, at least 1000], over all threads.
    /// --seconds may end them sooner
    #[arg(long)]
    pub reads: Option<u64>,
    /// Number of warm-up operations before the measured phase, which fill the caches; 0: none. Only
    /// for workloads that read: read, readwhilewriting, scan, scanwhilewriting, multi-get, ycsb,
    /// and async without puts. A given number has no time limit [default: a tenth of the measured
    /// ones, for at most 20 s]
    #[arg(long)]
    pub warmup: Option<u64>,
    /// Number of keys per call of `multi-get`, 1 to 65536. More keys put more device reads in
    /// flight at once. No effect on other workloads
    #[arg(long, default_value_t = 64)]
    #[serde(default = "keys_per_call")]
    pub keys_per_call: usize,
    /// Number of entries per scan of `scan`, `scanwhilewriting` and `async --workload scan`, at
    /// least 1. Longer scans mean fewer of them by default. `ycsb` draws its own lengths, 1 to 100
    #[arg(long, alias = "scan-len", default_value_t = 10)]
    pub scan_length: u64,
    /// Distribution of the accessed keys. With a skewed one, the cache serves more reads, and
    /// updates replace the same keys sooner. No effect on `load` and `queue`
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub distribution: Distribution,
    /// Number of client threads, 1 to 1024, which share the operations. Not with `async` and `sync`
    /// (see --depth, --writers); no effect on `multi-get` and `queue`, which use one [default: 1;
    /// tail, ycsb: 4]
    #[arg(long)]
    pub threads: Option<u64>,
    /// Open loop: operations per second over all threads, above 0, with latencies from the due time
    /// [default: closed loop, each thread as fast as it can]. `tail`: sustained rate that --load is
    /// a share of [default: measured]. Not with async, sync and --phases; no effect on multi-get
    /// and queue
    #[arg(long)]
    pub rate: Option<f64>,
    /// Number of puts per atomic batch in the measured phase, 1 to 65536; the load before it always
    /// has 64. Larger batches cost less per put, and each write takes longer. Not with async, sync,
    /// tail and ycsb; no effect on reads
    #[arg(long, default_value_t = 1)]
    pub batch: u64,
    /// Rate of the extra writer of `readwhilewriting` and `scanwhilewriting` in MB/s (1,000,000
    /// bytes of keys and values); 0: no writer. A higher rate delays the measured reads. No effect
    /// on other workloads [default: 50]
    #[arg(long)]
    pub write_mb_per_s: Option<f64>,
    /// Make every write durable before it is acknowledged, except those of the load. Concurrent
    /// writes share a device write; a single client waits for one each. The workload `sync` does so
    /// anyway [default: buffered writes, which a power failure may lose]
    #[arg(long)]
    pub sync: bool,
    /// Keep writes out of the log: a killed process loses those that are not in tables yet.
    /// LavaStore and RocksDB only [default: buffered writes]
    #[arg(long, conflicts_with = "sync")]
    #[serde(default)]
    pub volatile: bool,
    /// transactions: row locks [default: optimistic transactions]
    #[arg(long)]
    #[serde(default)]
    pub locks: bool,
    /// Maximum duration of the measured phase in seconds, fractions allowed; the operations are
    /// then a prefix of the full stream [default: no limit; tail: 60 for each load; queue,
    /// transactions, graph, counters: 10; contract: 600; multi-get: 2 for each part of a round]
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seed of the random keys, order and values, any number below 2^64: the same seed and options
    /// give the same operations. Another seed gives other ones of the same kind
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Compressible share of the bytes of each value, 0 (random bytes) to 1. Without --compression
    /// it has no effect on the size of the store
    #[arg(long, default_value_t = 0.5)]
    pub compressible: f64,
    /// Size of the block cache in bytes: a plain number; LavaStore: at most 4 TiB. A larger cache
    /// serves more reads from memory [default: 1/128 of the data, at least 8 MiB]
    #[arg(long)]
    pub cache_bytes: Option<u64>,
    /// Size of one of the two memtables in bytes: a plain number; LavaStore: 16384 to 4 GiB. Larger
    /// ones mean fewer and longer flushes. The --families of `tail` share them [default: 16 MiB;
    /// with --policy vlsm that of a table]
    #[arg(long)]
    pub memtable_bytes: Option<u64>,
    /// Target size of a table file in bytes: a plain number; LavaStore: 4096 to 4 GiB. At most
    /// --level-base-bytes is used. Smaller tables mean more files and narrower compactions
    /// [default: 16 MiB; with --policy vlsm 8 MiB]
    #[arg(long)]
    pub file_bytes: Option<u64>,
    /// Minimum length in bytes of values that are separated from keys; 0: none, LavaStore:
    /// otherwise 32 to 16777216. Compactions do not copy separated values, but garbage collection
    /// does. No effect on engines without separation
    #[arg(long, default_value_t = 512)]
    pub min_blob_size: u64,
    /// Target size of a file of separated values in bytes: a plain number; LavaStore: 4096 to 4
    /// GiB. Garbage collection takes whole files. No effect if no value is separated [default:
    /// --file-bytes if given, otherwise 16 MiB]
    #[arg(long)]
    pub blob_file_bytes: Option<u64>,
    /// Target size of the first level below level 0 in bytes: a plain number, at least 1. It also
    /// bounds the size of tables. A smaller one means more levels [default: four memtables]
    #[arg(long)]
    #[serde(default)]
    pub level_base_bytes: Option<u64>,
    /// Size ratio of consecutive levels, at least 2; LavaStore: at most 1000. A larger one means
    /// fewer levels, and compactions that rewrite more of the next level [default: the engine's;
    /// LavaStore: 10]
    #[arg(long)]
    #[serde(default)]
    pub level_multiplier: Option<u32>,
    /// LavaStore: compaction policy. `vlsm` has narrow compactions, few of them in a row, so that
    /// writers wait less. `ablation --policy` without a name compares the policies; other workloads
    /// need a name
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "each")]
    #[serde(default)]
    pub policy: Policy,
    /// LavaStore, policy vlsm: maximum size ratio of level 2 to level 1, 2 to 1000; beyond it a
    /// level is added. No effect with --policy leveled [default: 12]
    #[arg(long)]
    pub growth_max: Option<u32>,
    /// LavaStore, policy vlsm: number of full tables in level 1, 1 to 1000. It also bounds the
    /// overlap of a good table with level 2. No effect with --policy leveled [default: 8]
    #[arg(long)]
    pub level_1_tables: Option<u32>,
    /// LavaStore, policy vlsm: maximum number of level 0 tables that contain a key before
    /// compaction, 1 to 1000. With more, level 1 is rewritten less often, and reads search more
    /// tables. No effect with --policy leveled [default: 8]
    #[arg(long)]
    pub queue_tables: Option<u32>,
    /// LavaStore, policy vlsm: measure the overlap of a good level 1 table against a full table
    /// instead of its own size. Short tables may then overlap more. No effect with --policy leveled
    #[arg(long)]
    #[serde(default)]
    pub overlap_of_full_table: bool,
    /// Option of an earlier release, which is refused.
    #[arg(long, hide = true, value_parser = refuse_placement)]
    #[serde(skip)]
    pub placement: Option<String>,
    /// LavaStore: garbage of a value file in percent, 1 to 99, at which it is collected. Lower:
    /// less space, more copied values. The engine waits for more garbage where there is little in
    /// all, unless --without gc_threshold [default: 20]
    #[arg(long)]
    pub gc_ratio_percent: Option<u32>,
    /// LavaStore: maximum gap in bytes between two ranges that one read covers: a plain number, 0
    /// to 1048576. Larger: fewer reads with more unused bytes [default: measured for each disk;
    /// with `--without measured_reads`: 16 KiB, 12 in collections]
    #[arg(long, value_name = "BYTES")]
    #[serde(default)]
    pub read_gap: Option<u64>,
    /// LavaStore: mechanisms to switch off, separated by commas, to measure their effect (a wrong
    /// name lists them all). The store stays correct, but is slower or larger [default: none]
    #[arg(long, value_name = "MECHANISM", value_delimiter = ',')]
    #[serde(default)]
    pub without: Vec<String>,
    /// Space limit: a plain number of bytes above 0, or a multiple of the raw data (1.5x, at least
    /// 1x). LavaStore keeps it, and slows or refuses writes. For an engine without limits, writers
    /// wait while the store is above it [default: none; contract: 1.5x]
    #[arg(long, value_name = "BYTES|TIMESx")]
    #[serde(default)]
    pub space_limit: Option<SpaceLimit>,
    /// End the run if writers of an engine without space limits waited for this many seconds (above
    /// 0) without any decrease of the used space. No effect without --space-limit, and on LavaStore
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_PATIENCE_SECONDS)]
    #[serde(default = "limit_patience_seconds")]
    pub limit_patience: f64,
    /// Seconds, at least 0, to watch the I/O of the idle store after the background work, which
    /// lengthen the run; 0: none. No effect on tail, multi-get and queue
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    #[serde(default)]
    pub idle_seconds: f64,
    /// Number of background threads of the store, for flushes, compactions and collections;
    /// LavaStore: 1 to 64. With more, background work catches up sooner, and takes more of the
    /// processor and the device from the clients
    #[arg(long, default_value_t = 2)]
    pub background_threads: u64,
    /// Compression of table blocks and separated values. It saves space if values are
    /// --compressible, and costs processor time
    #[arg(long, value_enum, default_value_t = Codec::None)]
    pub compression: Codec,
    /// Use the page cache of the system for data instead of direct I/O. Reads may then come from
    /// memory that --cache-bytes does not count
    #[arg(long)]
    pub buffered_io: bool,
    /// Use the store of an earlier run with the same options in --db instead of loading a new one,
    /// which saves the load. Needs --db; `load` and `queue` write into that store. Not for contract
    /// and ablation, which create their own stores
    #[arg(long)]
    pub reuse: bool,
    /// `contract`: directory on a small volume that two more stores fill: an otherwise empty loop
    /// mount or tmpfs of 1 GB. No other program may use it. No effect on other workloads [default:
    /// no such stores]
    #[arg(long, value_name = "DIR")]
    #[serde(default)]
    pub volume: Option<PathBuf>,
    /// `ablation --policy`: compare values of one parameter of `vlsm`, one per row, instead of the
    /// policies. `growth`: growth factors of 2 to 1000. `table`: table sizes of 4096 bytes to
    /// 4096M, in bytes, or in MiB with M
    #[arg(long, value_name = "growth=N,...|table=BYTES,...")]
    #[serde(default)]
    pub sweep: Option<Sweep>,
    /// `ablation`: measure single mechanisms on suitable workloads, with and without each: two runs
    /// for each of ten mechanisms and each round. Without it, `ablation` adds the mechanisms one
    /// after the other on one workload. Not with `--policy` (without a name) or `--spandb`
    #[arg(long)]
    #[serde(default)]
    pub mechanisms: bool,
    /// Number of rounds of `ablation` and `multi-get`, at least 1 [default: 3]. A round measures
    /// every configuration once; every second round of `ablation` runs in the opposite order. More
    /// rounds take longer, and show the spread. The other workloads of lava ignore it
    #[arg(long, value_name = "ROUNDS")]
    #[serde(default)]
    pub pairs: Option<u64>,
    /// Do not wait for background work at the end of the measured phase, which shortens the run
    /// (figures `settled` are then those of its end). No effect on workloads that only read
    #[arg(long)]
    pub no_settle: bool,
    /// Options of `async` and `sync` only.
    #[command(flatten)]
    #[serde(default)]
    pub requests: RequestArgs,
    /// Options of `tail` only.
    #[command(flatten)]
    #[serde(default)]
    pub tail: TailArgs,
}

/// Refuses `--placement log` with the reason.
fn refuse_placement(value: &str) -> Result<String, String> {
    match value {
        "table" => Ok(value.to_owned()),
        _ => Err("--placement log was removed, because it halved the rate of durable writes (docs/decisions/tried-and-removed.md): omit the option"
            .to_owned()),
    }
}

impl BenchArgs {
    /// Refuses invalid options.
    pub fn check(&self) -> crate::Result<()> {
        let complaint = if self.num == Some(0) {
            "--num must be at least 1 key"
        } else if self.key_size < 24 || self.key_size > 64 << 10 {
            "--key-size must be 24 to 65536 bytes"
        } else if self.value_len() > VALUE_LEN_MAX {
            "--value-size must be at most 16777216 bytes"
        } else if self.threads.is_some_and(|threads| threads == 0 || threads > 1024) {
            "--threads must be 1 to 1024 client threads"
        } else if self.keys_per_call == 0 || self.keys_per_call > 1 << 16 {
            "--keys-per-call must be 1 to 65536 keys"
        } else if self.scan_length == 0 {
            "--scan-length must be at least 1 entry"
        } else if self.batch == 0 || self.batch > 1 << 16 {
            "--batch must be 1 to 65536 operations"
        } else if self.rate.is_some_and(|r| !(r > 0.0 && r.is_finite())) {
            "--rate must be above 0 operations per second"
        } else if self.write_mb_per_s.is_some_and(|r| !(r >= 0.0 && r.is_finite())) {
            "--write-mb-per-s must be at least 0 MB/s"
        } else if !(0.0..=1.0).contains(&self.compressible) {
            "--compressible must be a share from 0 to 1"
        } else if self.pairs == Some(0) {
            "--pairs must be at least 1 round"
        } else if self.policy == Policy::Each && self.workload != Workload::Ablation {
            "--policy needs leveled or vlsm here: only the workload ablation compares both"
        } else if self.mechanisms
            && (self.workload != Workload::Ablation || self.policy == Policy::Each || self.requests.spandb)
        {
            "--mechanisms works only with the workload ablation, without --spandb and without `--policy` (without a name)"
        } else if self.sweep.is_some() && !self.compares_policies() {
            "--sweep works only with ablation --policy (without a name)"
        } else if self.growth_max.is_some_and(|times| !sweep::GROWTH.contains(&times)) {
            "--growth-max must be a ratio of 2 to 1000"
        } else if self.sweep.as_ref().is_some_and(|sweep| !sweep.is_possible()) {
            "--sweep values must be growth ratios of 2 to 1000, or table sizes of 4096 bytes to 4096M (4 GiB)"
        } else if self.workload == Workload::Ablation && self.tail.loads().iter().count() > 1 {
            "the workload ablation takes one --load value, not a list"
        } else if self.level_base_bytes == Some(0) || self.level_multiplier.is_some_and(|times| times < 2) {
            "--level-base-bytes must be at least 1 byte, --level-multiplier a ratio of at least 2"
        } else if !(self.limit_patience > 0.0 && self.limit_patience.is_finite()) {
            "--limit-patience must be above 0 seconds"
        } else if !(self.idle_seconds >= 0.0 && self.idle_seconds.is_finite()) {
            "--idle-seconds must be at least 0 seconds"
        } else if let Some(complaint) = self.requests.complaint(self).or(self.tail.complaint(self)) {
            complaint
        } else {
            return self.ablation().map(|_| ());
        };
        Err(complaint.into())
    }

    fn value_len(&self) -> u64 {
        self.value_size.unwrap_or(VALUE_LEN)
    }

    /// Returns the distribution of value lengths.
    pub fn sizes(&self) -> ValueSizes {
        self.values.unwrap_or(ValueSizes::Fixed(self.value_len()))
    }

    /// Returns the number of keys in the store.
    pub fn keys(&self) -> u64 {
        let fitting = (DATA_LEN / self.sizes().mean().max(1.0)) as u64;
        let most = match self.workload {
            _ if self.is_tail() => TAIL_KEYS_MAX,
            // The workload measures the log.
            Workload::Sync => SYNC_KEYS_MAX,
            _ => KEYS_MAX,
        };
        self.num.unwrap_or(fitting.clamp(1, most))
    }

    /// Returns true for `tail`, and for an ablation with runs of that kind.
    pub fn is_tail(&self) -> bool {
        self.workload == Workload::Tail || self.compares_policies()
    }

    /// Returns true if the policies themselves are compared.
    pub fn compares_policies(&self) -> bool {
        self.workload == Workload::Ablation && self.policy == Policy::Each
    }

    /// Returns the number of client threads.
    pub fn threads(&self) -> u64 {
        self.threads.unwrap_or(match self.workload {
            _ if self.is_tail() || self.workload == Workload::Ycsb => TAIL_THREADS,
            _ if self.in_flight().is_some() => 1,
            Workload::Async => self.requests.depth,
            Workload::Sync => self.requests.writers,
            _ => 1,
        })
    }

    /// Returns the kind of the clients' operations.
    pub fn client_kind(&self) -> Kind {
        match self.workload {
            Workload::Async | Workload::Ycsb => {
                self.mixture().and_then(|mixture| mixture.only()).unwrap_or(Kind::Put)
            }
            Workload::Load
            | Workload::Overwrite
            | Workload::Sync
            | Workload::Contract
            | Workload::Ablation
            | Workload::Queue
            | Workload::Tail
            | Workload::Graph
            | Workload::Counters
            | Workload::Transactions => Kind::Put,
            Workload::Read | Workload::Readwhilewriting | Workload::MultiGet => Kind::Get,
            Workload::Scan | Workload::Scanwhilewriting => Kind::Scan,
        }
    }

    /// Returns the number of operations of the measured phase.
    pub fn ops(&self) -> u64 {
        match (self.workload, self.client_kind()) {
            (Workload::Load, _) => self.keys(),
            // Until the time is over.
            (Workload::Sync | Workload::Ycsb, _) if self.seconds.is_some() => {
                self.updates.unwrap_or(u64::MAX)
            }
            (Workload::Ycsb, _) => self.updates.unwrap_or(self.keys()),
            (_, Kind::Put | Kind::Insert | Kind::ReadModifyWrite) => {
                self.updates.unwrap_or(self.keys().saturating_mul(3))
            }
            (_, Kind::Get) => self.reads.unwrap_or(self.keys()),
            (_, Kind::Scan) => self.reads.unwrap_or((self.keys() / self.scan_length.max(1)).max(1000)),
        }
    }

    /// Returns the number of warm-up operations of a reading workload, and their maximum duration
    /// in seconds.
    pub fn warm_up(&self) -> (u64, f64) {
        match self.warmup {
            Some(ops) => (ops, f64::INFINITY),
            None => {
                let ops =
                    if self.workload == Workload::Ycsb { self.ops().min(self.keys()) } else { self.ops() };
                (ops / 10, self.seconds.map_or(WARM_UP_SECONDS_MAX, |s| s.min(WARM_UP_SECONDS_MAX)))
            }
        }
    }

    /// Returns the rate of the extra writer in MB/s; 0 without one.
    pub fn writer_mb_per_s(&self) -> f64 {
        match self.workload {
            Workload::Readwhilewriting | Workload::Scanwhilewriting => self.write_mb_per_s.unwrap_or(50.0),
            _ => 0.0,
        }
    }

    /// Returns true if nothing is written after the load, so that several runs can share a store.
    pub fn only_reads(&self) -> bool {
        self.client_kind() != Kind::Put && self.writer_mb_per_s() == 0.0
    }

    /// Returns the raw bytes of all keys and values.
    pub fn live_bytes(&self) -> u64 {
        let keys = self.keys().saturating_mul(self.key_size as u64);
        self.sizes().total(self.keys()).saturating_add(keys)
    }

    /// Returns the space limit in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.space_limit.map(|limit| limit.bytes(self.live_bytes()))
    }

    /// Returns the enabled mechanisms of LavaStore.
    pub fn ablation(&self) -> crate::Result<Ablation> {
        Ok(Ablation::without(self.without.iter().map(String::as_str))?)
    }

    /// Returns the size of the cache in bytes.
    pub fn cache_budget(&self) -> u64 {
        self.cache_bytes.unwrap_or((self.live_bytes() / 128).max(8 << 20))
    }

    /// Returns the size of a table file in bytes.
    pub fn file_len(&self) -> u64 {
        let default = if self.policy == Policy::Vlsm { 8 << 20 } else { 16 << 20 };
        self.file_bytes.unwrap_or(default)
    }

    /// Returns the size of a memtable in bytes.
    pub fn memtable_len(&self) -> u64 {
        self.memtable_bytes.unwrap_or(if self.policy == Policy::Vlsm { self.file_len() } else { 16 << 20 })
    }

    /// Returns the size of a file of separated values in bytes.
    pub fn blob_file_len(&self) -> u64 {
        self.blob_file_bytes.unwrap_or(self.file_bytes.unwrap_or(16 << 20))
    }

    /// Returns the compaction policy with its parameters.
    pub fn policy(&self) -> PolicyChoice {
        let defaults = VlsmOptions::default();
        match self.policy {
            Policy::Leveled | Policy::Each => PolicyChoice::default(),
            Policy::Vlsm => PolicyChoice::vlsm(&VlsmOptions {
                table_bytes: self.file_len(),
                growth_max: self.growth_max.unwrap_or(defaults.growth_max),
                level_1_tables: self.level_1_tables.unwrap_or(defaults.level_1_tables),
                queue_tables: self.queue_tables.unwrap_or(defaults.queue_tables),
                overlap: if self.overlap_of_full_table { OverlapOf::FullTable } else { defaults.overlap },
                ..defaults
            }),
        }
    }

    /// Returns the options with explicit defaults, for the report.
    pub fn resolved(&self) -> BenchArgs {
        let (puts, gets) = (self.client_kind() == Kind::Put, self.client_kind() != Kind::Put);
        BenchArgs {
            value_size: self.values.is_none().then(|| self.value_len()),
            num: Some(self.keys()),
            threads: Some(self.threads()),
            updates: puts.then(|| self.ops()),
            reads: gets.then(|| self.ops()),
            warmup: gets.then(|| self.warm_up().0),
            write_mb_per_s: (self.writer_mb_per_s() > 0.0).then(|| self.writer_mb_per_s()),
            cache_bytes: Some(self.cache_budget()),
            memtable_bytes: Some(self.memtable_len()),
            file_bytes: Some(self.file_len()),
            blob_file_bytes: Some(self.blob_file_len()),
            requests: RequestArgs {
                mix: self.mix().filter(|_| self.requests.phases.is_empty()),
                ..self.requests.clone()
            },
            ..self.clone()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    /// Parses the options of a line.
    pub(crate) fn args(line: &str) -> BenchArgs {
        Cli::parse_from(std::iter::once("bench").chain(line.split_whitespace())).args
    }

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn policy_without_a_name_selects_all_in_ablation_only() {
        let told = |line: &str| (args(line).policy, args(line).check().is_ok());
        assert_eq!(told("ablation --policy --num 5"), (Policy::Each, true));
        assert_eq!(told("ablation --policy vlsm"), (Policy::Vlsm, true));
        assert_eq!(told("ablation"), (Policy::Leveled, true));
        assert_eq!(told("tail --policy"), (Policy::Each, false));
        let (policies, mechanisms) = (args("ablation --policy"), args("ablation"));
        assert!(policies.is_tail() && policies.compares_policies() && !mechanisms.is_tail());
        assert_eq!((policies.threads(), mechanisms.threads()), (4, 1));
    }
}
