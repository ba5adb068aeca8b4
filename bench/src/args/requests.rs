//! Options only of the workloads `async`, `sync` and `ycsb`.

use super::{BenchArgs, Workload};
use crate::ycsb::{Mix, Mixture};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum number of requests in flight and of writers.
const DEPTH_MAX: u64 = 4096;

/// Options of `async`, `sync` and `ycsb`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestArgs {
    /// async: number of requests in flight in the single thread, 1 to 4096; with --blocking number
    /// of threads. More raise the rate until the device is busy, and then only the latency
    #[arg(long, value_name = "N", default_value_t = RequestArgs::default().depth)]
    pub depth: u64,
    /// async: kind of all requests: read, write, mixed or scan [default: read]. ycsb: mix of
    /// operations, a to f [default: a]; not with --phases. No other workload takes it
    #[arg(long = "workload", value_enum, value_name = "MIX")]
    pub mix: Option<Mix>,
    /// ycsb: mixes to run consecutively in one store, separated by commas, each for --seconds
    /// (required): read, write, mixed, scan, a, b, c, f. It shows how the store adapts. Not with
    /// --workload and --rate [default: only --workload]
    #[arg(long, value_enum, value_name = "MIX,...", value_delimiter = ',')]
    pub phases: Vec<Mix>,
    /// async: use a blocking thread for each of the --depth requests instead of one thread with all
    /// in flight, to compare the two. No effect on other workloads
    #[arg(long)]
    pub blocking: bool,
    /// sync, ablation --spandb: number of concurrent durable puts, 1 to 4096: a blocking thread
    /// each, or with --async all in one thread. More of them share a device write, which raises the
    /// rate. The default of ablation --spandb is 64
    #[arg(long, value_name = "N", default_value_t = RequestArgs::default().writers)]
    pub writers: u64,
    /// sync: use one thread with all --writers puts in flight instead of a blocking thread each. No
    /// effect on other workloads
    #[arg(long = "async")]
    pub in_flight: bool,
    /// LavaStore: maximum number of concurrent device writes of the log, 1 to 3, or 0 to adapt it.
    /// More than one is used only where measurements favor it: with many durable writers on a
    /// device that gains from more
    #[arg(long, value_name = "N", default_value_t = RequestArgs::default().loggers)]
    pub loggers: u64,
    /// LavaStore: maximum age of a buffered log page in milliseconds, 0 to 3600000; 0: off. A page
    /// whose memtable is flushed sooner is never written to the log device; a power failure loses
    /// younger pages. The memory grows by the waiting pages [default: 10000]
    #[arg(long, value_name = "MS")]
    pub buffered_age: Option<u64>,
    /// LavaStore, RocksDB: directory on a second disk for the log, so that its writes do not wait
    /// for others. Only with async, sync, overwrite, ycsb and ablation --spandb [default: in the
    /// store's directory]
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// LavaStore: maximum bytes of hot (often overwritten) values on the disk of --log-dir: a plain
    /// number, at most 1 PiB; 0: none. Other values go to the first disk. Above 0 it needs
    /// --log-dir
    #[arg(long = "fast-tier-values", alias = "speed-values", value_name = "BYTES", default_value_t = RequestArgs::default().speed_values)]
    pub speed_values: u64,
    /// LavaStore: write all flushed values, not only hot ones, to the disk of --log-dir first.
    /// Values that survive a garbage collection move to the first disk. Needs --fast-tier-values
    /// above 0 bytes, which bounds them
    #[arg(long = "fast-tier-flushed", alias = "speed-fresh", default_value_t = RequestArgs::default().speed_fresh)]
    pub speed_fresh: bool,
    /// LavaStore: number of levels, from level 0 on, with tables on the disk of --log-dir: 0 (only
    /// the log) to 7, or `moving` (adaptive). More levels need more space there. Above 0 it needs
    /// --log-dir
    #[arg(long = "fast-tier-levels", alias = "speed-levels", value_name = "N|moving", default_value_t = RequestArgs::default().speed_levels)]
    pub speed_levels: SpeedLevels,
    /// ablation: measure each part of the durable write path, with the workload sync, instead of
    /// the mechanisms of Scavenger+. With --log-dir it measures a second disk for log and tables
    /// too. Not with `--policy` (without a name) or --mechanisms
    #[arg(long)]
    pub spandb: bool,
}

/// Number of levels with tables on the second disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum SpeedLevels {
    /// A fixed number.
    Fixed(u64),
    /// An adaptive number.
    Moving,
}

/// Representation in reports: a number or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Levels(u64),
    Word(String),
}

impl From<SpeedLevels> for Written {
    fn from(levels: SpeedLevels) -> Written {
        match levels {
            SpeedLevels::Fixed(levels) => Written::Levels(levels),
            SpeedLevels::Moving => Written::Word(levels.to_string()),
        }
    }
}

impl TryFrom<Written> for SpeedLevels {
    type Error = std::num::ParseIntError;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        match written {
            Written::Levels(levels) => Ok(SpeedLevels::Fixed(levels)),
            Written::Word(word) => word.parse(),
        }
    }
}

impl SpeedLevels {
    /// Returns the maximum number.
    pub fn most(self) -> u64 {
        match self {
            SpeedLevels::Fixed(levels) => levels,
            SpeedLevels::Moving => 7,
        }
    }
}

impl Default for SpeedLevels {
    fn default() -> Self {
        SpeedLevels::Fixed(0)
    }
}

impl std::fmt::Display for SpeedLevels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpeedLevels::Fixed(levels) => levels.fmt(f),
            SpeedLevels::Moving => f.write_str("moving"),
        }
    }
}

impl std::str::FromStr for SpeedLevels {
    type Err = std::num::ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "moving" => Ok(SpeedLevels::Moving),
            levels => levels.parse().map(SpeedLevels::Fixed),
        }
    }
}

impl Default for RequestArgs {
    fn default() -> Self {
        RequestArgs {
            depth: 64,
            mix: None,
            phases: Vec::new(),
            blocking: false,
            writers: 1,
            in_flight: false,
            loggers: 1,
            buffered_age: None,
            log_dir: None,
            speed_levels: SpeedLevels::default(),
            speed_values: 0,
            speed_fresh: false,
            spandb: false,
        }
    }
}

impl RequestArgs {
    /// Returns the first invalid combination.
    pub(super) fn complaint(&self, all: &BenchArgs) -> Option<&'static str> {
        let own = matches!(all.workload, Workload::Async | Workload::Sync);
        let writes = matches!(all.workload, Workload::Overwrite | Workload::Ycsb);
        if self.depth == 0 || self.depth > DEPTH_MAX || self.writers == 0 || self.writers > DEPTH_MAX {
            Some("--depth (requests in flight) and --writers (concurrent writes) must be 1 to 4096 each")
        } else if own && (all.threads.is_some() || all.rate.is_some() || all.batch != 1) {
            Some(
                "the workloads async and sync take their concurrency from --depth or --writers: omit --threads, --rate and --batch",
            )
        } else if self.mix.is_some_and(|mix| mix.is_of_ycsb() != (all.workload == Workload::Ycsb)) {
            Some(
                "--workload must be read, write, mixed or scan for async, or a to f for ycsb; other workloads take none",
            )
        } else if let Some(complaint) = self.complaint_of_phases(all) {
            Some(complaint)
        } else if all.workload == Workload::Ycsb && all.batch != 1 {
            Some("the workload ycsb runs single operations: omit --batch")
        } else if self.loggers > 3 {
            Some("--loggers must be 0 to 3 concurrent device writes (0: adaptive)")
        } else if self.buffered_age > Some(3_600_000) {
            Some("--buffered-age must be 0 to 3600000 ms")
        } else if self.spandb && (all.workload != Workload::Ablation || all.compares_policies()) {
            Some("--spandb works only with the workload ablation, without --policy")
        } else if self.log_dir.is_some() && !(self.spandb || own || writes) {
            Some("--log-dir works only with async, sync, overwrite, ycsb and ablation --spandb")
        } else if self.speed_levels.most() > 7 || (self.speed_levels.most() > 0 && self.log_dir.is_none()) {
            Some("--fast-tier-levels must be 0 to 7 levels or `moving`; above 0 it needs --log-dir")
        } else if self.speed_values > 0 && self.log_dir.is_none() {
            Some("--fast-tier-values needs --log-dir, a directory on the second disk")
        } else if self.speed_fresh && self.speed_values == 0 {
            Some("--fast-tier-flushed needs --fast-tier-values above 0 bytes")
        } else {
            None
        }
    }

    /// Returns the first invalid combination of options for phases.
    fn complaint_of_phases(&self, all: &BenchArgs) -> Option<&'static str> {
        if self.phases.is_empty() {
            None
        } else if all.workload != Workload::Ycsb || self.mix.is_some() || all.seconds.is_none() {
            Some(
                "--phases works only with the workload ycsb: pass --seconds (per phase), and omit --workload",
            )
        } else if all.rate.is_some() {
            Some("--phases runs each phase as a closed loop: omit --rate")
        } else if self.phases.iter().any(|mix| mix.inserts()) {
            Some("--phases takes no mix d or e, because they insert keys")
        } else {
            None
        }
    }
}

impl BenchArgs {
    /// Returns the number of requests in flight of one thread; `None` for threads with blocking
    /// calls.
    pub fn in_flight(&self) -> Option<u64> {
        let requests = &self.requests;
        match self.workload {
            Workload::Async => (!requests.blocking).then_some(requests.depth),
            Workload::Sync => requests.in_flight.then_some(requests.writers),
            _ => None,
        }
    }

    /// Returns the mix of workloads that have one.
    pub fn mix(&self) -> Option<Mix> {
        match self.workload {
            Workload::Async => self.requests.mix.or(Some(Mix::Read)),
            Workload::Ycsb => self.requests.mix.or(Some(Mix::A)),
            _ => None,
        }
    }

    /// Returns the shares of the kinds of operations, for workloads with several.
    pub fn mixture(&self) -> Option<Mixture> {
        self.mix().map(Mixture::of)
    }

    /// Returns true if every write is durable before it is acknowledged.
    pub fn is_durable(&self) -> bool {
        self.sync || self.workload == Workload::Sync
    }
}
