//! What a run can be told on the command line. The program that embeds it adds where the store lies and where the
//! report goes.

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

/// What is done in the measured phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Every key once, in random order, into an empty store.
    Load,
    /// Updates of existing keys.
    Overwrite,
    /// Point reads of existing keys.
    Read,
    /// Point reads while one more thread updates at a fixed rate.
    Readwhilewriting,
    /// Point reads of many keys in one call, beside single ones and the device's own random reads.
    #[serde(rename = "multi-get")]
    MultiGet,
    /// Seeks, each followed by a number of nexts.
    Scan,
    /// The same while one more thread updates at a fixed rate.
    Scanwhilewriting,
    /// LavaStore: one thread with many requests in flight, reads, writes or both.
    Async,
    /// Durable updates, by a number of writers that each wait for theirs.
    Sync,
    /// The six mixes of YCSB, chosen by --workload.
    Ycsb,
    /// LavaStore: overwrites at the space limit, a store that is full and, with --volume, a volume that is.
    Contract,
    /// LavaStore: `overwrite` again and again, with one mechanism of Scavenger+ more each time.
    Ablation,
    /// A queue: an insert at the end, a read of the first element and its delete, all the time.
    Queue,
    /// Updates and point reads that are due at a part of the rate that the store sustains, and how late they are.
    Tail,
}

/// Which keys are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Zipf with exponent 0.99, the popular keys spread over the whole key space.
    Zipf,
    /// Pareto's law: of any popular part of the keys, a fifth gets four fifths of the operations; spread as Zipf's.
    Pareto,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// What decides which tables are compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Level 0 is gathered and merged into the next level at once.
    #[default]
    Leveled,
    /// Level 0 is a queue, and tables of the next level end where their overlap says.
    Vlsm,
    /// One after the other: `ablation` alone.
    Each,
}

/// Raw bytes of a store whose number of keys nobody gave: several times what the caches of a small machine hold back.
const DATA_LEN: f64 = 131_072.0 * 16_000.0;
/// Bytes of a value, unless somebody says otherwise.
const VALUE_LEN: u64 = 1000;
/// Most keys of such a store.
const KEYS_MAX: u64 = 1_000_000;
/// The same of `sync`.
const SYNC_KEYS_MAX: u64 = 100_000;
/// The same of `tail`, whose store is to have levels.
const TAIL_KEYS_MAX: u64 = 8_000_000;
/// Client threads of `tail` and `ycsb`; of everything else it is one.
const TAIL_THREADS: u64 = 4;
/// A warm-up that nobody asked for takes at most so long.
const WARM_UP_SECONDS_MAX: f64 = 20.0;

/// A store that has not become smaller for so long will not do so without writes.
const LIMIT_PATIENCE_SECONDS: f64 = 60.0;

/// What a value is called on the command line.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

fn limit_patience_seconds() -> f64 {
    LIMIT_PATIENCE_SECONDS
}

fn keys_per_call() -> usize {
    64
}

/// The options of one run.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub workload: Workload,
    /// Bytes of a value [default: 1000; contract: 16000]
    #[arg(long)]
    pub value_size: Option<u64>,
    /// Lengths of values, instead of --value-size: `fixed:N`, `mixed-8k` (half 100 to 512 B, half 16 KiB) or `pareto-1k`
    /// (generalized Pareto with a mean of 1 KiB)
    #[arg(long)]
    pub values: Option<ValueSizes>,
    /// Bytes of a key (at least 24)
    #[arg(long, default_value_t = 24)]
    pub key_size: usize,
    /// Keys in the store [default: 2.1 GB of values, at most 1,000,000 keys; tail: 8,000,000]
    #[arg(long)]
    pub num: Option<u64>,
    /// Updates of `overwrite` [default: 3 x num], operations of `ycsb` [default: num, or as many as --seconds allow]
    #[arg(long)]
    pub updates: Option<u64>,
    /// Gets of `read` and `readwhilewriting` [default: num], seeks of `scan` [default: num / scan length, at least 1000]
    #[arg(long)]
    pub reads: Option<u64>,
    /// Operations before the measured phase of workloads that read [default: a tenth of theirs, for at most 20 s]
    #[arg(long)]
    pub warmup: Option<u64>,
    /// Keys of a call of `multi-get`
    #[arg(long, default_value_t = 64)]
    #[serde(default = "keys_per_call")]
    pub keys_per_call: usize,
    /// Entries visited by each operation of `scan`
    #[arg(long, alias = "scan-len", default_value_t = 10)]
    pub scan_length: u64,
    /// Which keys are touched
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub distribution: Distribution,
    /// Client threads [default: 1; tail, ycsb: 4]
    #[arg(long)]
    pub threads: Option<u64>,
    /// Open loop: operations a second over all threads, latency from the intended start [default: closed loop]. `tail`: the
    /// rate that is sustained, of which --load is a part [default: it finds out]
    #[arg(long)]
    pub rate: Option<f64>,
    /// Operations of a write batch
    #[arg(long, default_value_t = 1)]
    pub batch: u64,
    /// What the extra writer of `readwhilewriting` and `scanwhilewriting` writes, MB/s [default: 50]
    #[arg(long)]
    pub write_mb_per_s: Option<f64>,
    /// Every write is durable before it is acknowledged
    #[arg(long)]
    pub sync: bool,
    /// Measure for at most so many seconds (the operations are then a prefix of the full stream)
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seed of keys, order and values
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Share of each value that a compressor can remove, 0 to 1
    #[arg(long, default_value_t = 0.5)]
    pub compressible: f64,
    /// Bytes of the block cache [default: 1/128 of the data, at least 8 MiB]
    #[arg(long)]
    pub cache_bytes: Option<u64>,
    /// Bytes of one memtable (there are two) [default: 16 MiB; with --policy vlsm those of a table]
    #[arg(long)]
    pub memtable_bytes: Option<u64>,
    /// Bytes of one table file [default: 16 MiB; with --policy vlsm 8 MiB]
    #[arg(long)]
    pub file_bytes: Option<u64>,
    /// Values of at least so many bytes are kept apart from their keys, by engines that can; 0: none are
    #[arg(long, default_value_t = 512)]
    pub min_blob_size: u64,
    /// Bytes of one file of such values [default: --file-bytes]
    #[arg(long)]
    pub blob_file_bytes: Option<u64>,
    /// Bytes of the first level below level 0 [default: four memtables]
    #[arg(long)]
    #[serde(default)]
    pub level_base_bytes: Option<u64>,
    /// How many times as large as the one above each level is [default: the engine's]
    #[arg(long)]
    #[serde(default)]
    pub level_multiplier: Option<u32>,
    /// LavaStore: what decides which tables are compacted (`vlsm`: narrow compactions, short chains). `ablation --policy`: they are
    /// what is compared
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "each")]
    #[serde(default)]
    pub policy: Policy,
    /// LavaStore, policy vlsm: level 2 may be so many times as large as level 1 [default: the engine's]
    #[arg(long)]
    pub growth_max: Option<u32>,
    /// LavaStore, policy vlsm: tables of level 1 [default: the engine's]
    #[arg(long)]
    pub level_1_tables: Option<u32>,
    /// LavaStore, policy vlsm: tables of level 0 that a key may be in before they go down [default: the engine's]
    #[arg(long)]
    pub queue_tables: Option<u32>,
    /// LavaStore, policy vlsm: a good table of level 1 is measured against a full one, not against itself
    #[arg(long)]
    #[serde(default)]
    pub overlap_of_full_table: bool,
    /// An option of an earlier release, which is refused.
    #[arg(long, hide = true, value_parser = refuse_placement)]
    #[serde(skip)]
    pub placement: Option<String>,
    /// LavaStore: garbage of a value file, in percent, that makes it worth collecting [default: the engine's]
    #[arg(long)]
    pub gc_ratio_percent: Option<u32>,
    /// LavaStore: gaps of at most so many bytes between two places are read over [default: what is measured; `--without measured_reads`: 16 KiB, 12
    /// in collections]
    #[arg(long, value_name = "BYTES")]
    #[serde(default)]
    pub read_gap: Option<u64>,
    /// LavaStore: mechanisms to switch off, to measure what each is worth (a wrong name tells which there are)
    #[arg(long, value_name = "MECHANISM", value_delimiter = ',')]
    #[serde(default)]
    pub without: Vec<String>,
    /// The store may occupy so many bytes, or so many times the raw data loaded (1.5x). An engine that cannot be told is
    /// held to it by its writers, who wait while it occupies as much
    #[arg(long, value_name = "BYTES|TIMESx")]
    #[serde(default)]
    pub space_limit: Option<SpaceLimit>,
    /// Writers who wait for an engine that cannot be told give up, which ends the run, if the space does not come down
    /// for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_PATIENCE_SECONDS)]
    #[serde(default = "limit_patience_seconds")]
    pub limit_patience: f64,
    /// After the background came to rest, watch for so many seconds what is still read and written
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    #[serde(default)]
    pub idle_seconds: f64,
    /// Background threads
    #[arg(long, default_value_t = 2)]
    pub background_threads: u64,
    /// Compression of blocks
    #[arg(long, value_enum, default_value_t = Codec::None)]
    pub compression: Codec,
    /// Data through the page cache instead of direct I/O
    #[arg(long)]
    pub buffered_io: bool,
    /// Use the store that an earlier run with the same options left in the directory, instead of loading
    #[arg(long)]
    pub reuse: bool,
    /// A directory on a small volume that `contract` shall fill, too: a loop mount or tmpfs of 1 GB with nothing else on it
    #[arg(long, value_name = "DIR")]
    #[serde(default)]
    pub volume: Option<PathBuf>,
    /// `ablation --policy`: the rows are `vlsm` with these values of its growth factor, or of the size of its tables
    #[arg(long, value_name = "growth=N,...|table=BYTES,...")]
    #[serde(default)]
    pub sweep: Option<Sweep>,
    /// `ablation`: what single mechanisms are worth, each on a workload where it matters, with and without
    #[arg(long)]
    #[serde(default)]
    pub mechanisms: bool,
    /// Rounds of `ablation`, each of all rows, every other one in the opposite order; runs of each engine of a comparison
    /// [default: 3]
    #[arg(long, value_name = "ROUNDS")]
    #[serde(default)]
    pub pairs: Option<u64>,
    /// Do not wait for the background before the measured phase ends (figures `settled` are then those of the end)
    #[arg(long)]
    pub no_settle: bool,
    /// What only `async` and `sync` ask.
    #[command(flatten)]
    #[serde(default)]
    pub requests: RequestArgs,
    /// What only `tail` asks.
    #[command(flatten)]
    #[serde(default)]
    pub tail: TailArgs,
}

/// Refuses `--placement log` with the reason.
fn refuse_placement(value: &str) -> Result<String, String> {
    match value {
        "table" => Ok(value.to_owned()),
        _ => Err("value_placement = log was removed: it halved the rate of durable writes to save a fifth of the bytes \
                  (docs/decisions/tried-and-removed.md)"
            .to_owned()),
    }
}

impl BenchArgs {
    /// Refuses what makes no sense.
    pub fn check(&self) -> crate::Result<()> {
        let complaint = if self.num == Some(0) {
            "--num must be at least 1"
        } else if self.key_size < 24 || self.key_size > 64 << 10 {
            "--key-size must be 24 to 65536"
        } else if self.value_len() > VALUE_LEN_MAX {
            "--value-size must be at most 16777216"
        } else if self.threads.is_some_and(|threads| threads == 0 || threads > 1024) {
            "--threads must be 1 to 1024"
        } else if self.keys_per_call == 0 || self.keys_per_call > 1 << 16 {
            "--keys-per-call must be 1 to 65536"
        } else if self.scan_length == 0 {
            "--scan-length must be at least 1"
        } else if self.batch == 0 || self.batch > 1 << 16 {
            "--batch must be 1 to 65536"
        } else if self.rate.is_some_and(|r| !(r > 0.0 && r.is_finite())) {
            "--rate must be above 0"
        } else if self.write_mb_per_s.is_some_and(|r| !(r >= 0.0 && r.is_finite())) {
            "--write-mb-per-s must not be negative"
        } else if !(0.0..=1.0).contains(&self.compressible) {
            "--compressible must be 0 to 1"
        } else if self.pairs == Some(0) {
            "--pairs must be at least 1"
        } else if self.policy == Policy::Each && self.workload != Workload::Ablation {
            "--policy names one: only ablation compares them"
        } else if self.mechanisms
            && (self.workload != Workload::Ablation || self.policy == Policy::Each || self.requests.spandb)
        {
            "--mechanisms is of ablation alone, without --policy and --spandb"
        } else if self.sweep.is_some() && !self.compares_policies() {
            "--sweep is of ablation --policy alone"
        } else if self.growth_max.is_some_and(|times| !sweep::GROWTH.contains(&times)) {
            "--growth-max must be 2 to 1000"
        } else if self.sweep.as_ref().is_some_and(|sweep| !sweep.is_possible()) {
            "--sweep: growth must be 2 to 1000, table 4096 to 4096M"
        } else if self.workload == Workload::Ablation && self.tail.loads().iter().count() > 1 {
            "ablation has one load"
        } else if self.level_base_bytes == Some(0) || self.level_multiplier.is_some_and(|times| times < 2) {
            "--level-base-bytes must be at least 1, --level-multiplier at least 2"
        } else if !(self.limit_patience > 0.0 && self.limit_patience.is_finite()) {
            "--limit-patience must be above 0"
        } else if !(self.idle_seconds >= 0.0 && self.idle_seconds.is_finite()) {
            "--idle-seconds must not be negative"
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

    /// The lengths of values.
    pub fn sizes(&self) -> ValueSizes {
        self.values.unwrap_or(ValueSizes::Fixed(self.value_len()))
    }

    /// Keys in the store.
    pub fn keys(&self) -> u64 {
        let fitting = (DATA_LEN / self.sizes().mean().max(1.0)) as u64;
        let most = match self.workload {
            _ if self.is_tail() => TAIL_KEYS_MAX,
            // What is measured is the log.
            Workload::Sync => SYNC_KEYS_MAX,
            _ => KEYS_MAX,
        };
        self.num.unwrap_or(fitting.clamp(1, most))
    }

    /// True for `tail`, and for the ablation whose runs are of that kind.
    pub fn is_tail(&self) -> bool {
        self.workload == Workload::Tail || self.compares_policies()
    }

    /// True if the policies themselves are what is compared.
    pub fn compares_policies(&self) -> bool {
        self.workload == Workload::Ablation && self.policy == Policy::Each
    }

    /// Client threads.
    pub fn threads(&self) -> u64 {
        self.threads.unwrap_or(match self.workload {
            _ if self.is_tail() || self.workload == Workload::Ycsb => TAIL_THREADS,
            _ if self.in_flight().is_some() => 1,
            Workload::Async => self.requests.depth,
            Workload::Sync => self.requests.writers,
            _ => 1,
        })
    }

    /// What the clients do.
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
            | Workload::Tail => Kind::Put,
            Workload::Read | Workload::Readwhilewriting | Workload::MultiGet => Kind::Get,
            Workload::Scan | Workload::Scanwhilewriting => Kind::Scan,
        }
    }

    /// Operations of the measured phase.
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

    /// Operations before the measured phase of a workload that reads, and the most seconds they may take.
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

    /// The rate of the extra writer, MB/s; 0: there is none.
    pub fn writer_mb_per_s(&self) -> f64 {
        match self.workload {
            Workload::Readwhilewriting | Workload::Scanwhilewriting => self.write_mb_per_s.unwrap_or(50.0),
            _ => 0.0,
        }
    }

    /// True if nothing is written after loading, so that several runs can share one store.
    pub fn only_reads(&self) -> bool {
        self.client_kind() != Kind::Put && self.writer_mb_per_s() == 0.0
    }

    /// Raw bytes of all keys and values when every key is there once.
    pub fn live_bytes(&self) -> u64 {
        let keys = self.keys().saturating_mul(self.key_size as u64);
        self.sizes().total(self.keys()).saturating_add(keys)
    }

    /// The space limit in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.space_limit.map(|limit| limit.bytes(self.live_bytes()))
    }

    /// The mechanisms of LavaStore that are on.
    pub fn ablation(&self) -> crate::Result<Ablation> {
        Ok(Ablation::without(self.without.iter().map(String::as_str))?)
    }

    /// Bytes of the cache.
    pub fn cache_budget(&self) -> u64 {
        self.cache_bytes.unwrap_or((self.live_bytes() / 128).max(8 << 20))
    }

    /// Bytes of a table file.
    pub fn file_len(&self) -> u64 {
        let default = if self.policy == Policy::Vlsm { 8 << 20 } else { 16 << 20 };
        self.file_bytes.unwrap_or(default)
    }

    /// Bytes of a memtable.
    pub fn memtable_len(&self) -> u64 {
        self.memtable_bytes.unwrap_or(if self.policy == Policy::Vlsm { self.file_len() } else { 16 << 20 })
    }

    /// Bytes of a file of separated values.
    pub fn blob_file_len(&self) -> u64 {
        self.blob_file_bytes.unwrap_or(self.file_bytes.unwrap_or(16 << 20))
    }

    /// The compaction policy with its parameters.
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

    /// The same options with what the defaults came to, for the report.
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

    /// The options of a line.
    pub(crate) fn args(line: &str) -> BenchArgs {
        Cli::parse_from(std::iter::once("bench").chain(line.split_whitespace())).args
    }

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_policy_without_a_name_is_each_of_them_and_of_ablation_alone() {
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
