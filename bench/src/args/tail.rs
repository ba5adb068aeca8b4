//! Options only of the workload `tail` ([`crate::tail`]).

pub mod words;

use super::{BenchArgs, Workload};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use words::{Burst, Loads, Span};

/// Maximum number of families.
const FAMILIES_MAX: u64 = 1024;
/// Maximum number of clients in a closed loop.
const CLIENTS_MAX: u64 = 1024;
/// Default load in percent of the sustained rate.
const LOAD: f64 = 80.0;
/// Default load with bursts, which multiply it.
const LOAD_OF_BURSTS: f64 = 100.0;
/// Default pause between two bursts in seconds.
const IDLE_SECONDS: f64 = 20.0;

/// Assignment of operations to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clients {
    /// All threads take reads and writes from one queue.
    #[default]
    Shared,
    /// Some threads take reads from one queue, the others writes from another.
    Separate,
}

/// Options of `tail`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct TailArgs {
    /// tail: loads in percent of the sustained rate, above 0 to 1000, separated by commas, run
    /// consecutively in one store. Above 100 requests queue up. `ablation --policy` takes one load.
    /// Not with --closed [default: 80; with --burst 100]
    #[arg(long, value_name = "PERCENT,...")]
    pub load: Option<Loads>,
    /// tail: number of column families that share the keys and the memtable memory, 1 to 1024, at
    /// most --num. More of them mean smaller memtables (not below 1 MiB). Only with tail and
    /// ablation --policy
    #[arg(long, value_name = "N", default_value_t = TailArgs::default().families)]
    pub families: u64,
    /// tail: share of gets in the operations, 0 (only updates) to 1 (only gets). No effect on other
    /// workloads than tail and ablation --policy
    #[arg(long, value_name = "RATIO", default_value_t = TailArgs::default().read_share)]
    pub read_share: f64,
    /// tail: one queue for all threads, so that a read waits behind a delayed write, or separate
    /// ones for reads and writes. `separate` needs at least 2 --threads. Not with --closed
    #[arg(long, value_enum, default_value_t = Clients::Shared)]
    pub clients: Clients,
    /// tail: multiply the rate for some seconds, then send nothing for --idle, repeatedly during
    /// --seconds; above 0, at most 1000 times. Without a value: 3x10s. Not with --closed [default:
    /// a steady rate]
    #[arg(long, value_name = "TIMESxSECONDS", num_args = 0..=1, default_missing_value = "3x10s")]
    pub burst: Option<Burst>,
    /// tail: pause between two bursts: seconds, such as 20s, 500ms or 20, at least 0. Background
    /// work catches up in a longer one. Needs --burst [default: 20s]
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<Span>,
    /// tail: number of clients in a closed loop, 1 to 1024, instead of a rate. Each begins its next
    /// operation when the last one is done. More clients demand more than the device sustains. Not
    /// with --load, --burst or --clients separate [default: a rate]
    #[arg(long, value_name = "CLIENTS")]
    pub closed: Option<u64>,
    /// tail: seconds, above 0, to measure the sustained rate before the loads. More give a steadier
    /// figure and a longer run. No effect with --rate
    #[arg(long, value_name = "SECONDS", default_value_t = TailArgs::default().find_seconds)]
    pub find_seconds: f64,
    /// Ends the run once the rate is measured.
    #[arg(skip)]
    pub only_find: bool,
}

impl Default for TailArgs {
    fn default() -> Self {
        TailArgs {
            load: None,
            families: 1,
            read_share: 0.1,
            clients: Clients::Shared,
            burst: None,
            idle: None,
            closed: None,
            find_seconds: 20.0,
            only_find: false,
        }
    }
}

impl TailArgs {
    /// Returns the loads in percent of the sustained rate, in order.
    pub fn loads(&self) -> Loads {
        let default = if self.burst.is_some() { LOAD_OF_BURSTS } else { LOAD };
        self.load.clone().unwrap_or_else(|| Loads::one(default))
    }

    /// Returns the pause between two bursts.
    pub fn idle_seconds(&self) -> f64 {
        self.idle.map_or(IDLE_SECONDS, |idle| idle.seconds)
    }

    /// Returns the options with a single load.
    pub fn at(&self, load: f64) -> TailArgs {
        TailArgs { load: Some(Loads::one(load)), ..self.clone() }
    }

    /// Returns the first invalid combination.
    pub(crate) fn complaint(&self, all: &BenchArgs) -> Option<&'static str> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let complaint = if !self.loads().all(|load| positive(load) && load <= 1000.0) {
            "--load must be above 0 and at most 1000 percent of the sustained rate"
        } else if self.families == 0 || self.families > FAMILIES_MAX {
            "--families must be 1 to 1024 column families"
        } else if self.families > 1 && !all.is_tail() {
            "--families works only with the workload tail and with ablation --policy"
        } else if self.families > all.keys() {
            "--families must be at most --num: each column family needs at least one key"
        } else if !(0.0..=1.0).contains(&self.read_share) {
            "--read-share must be a share from 0 to 1"
        } else if self.clients == Clients::Separate && all.threads() < 2 {
            "--clients separate needs at least 2 threads (--threads)"
        } else if !positive(self.find_seconds) {
            "--find-seconds must be above 0 seconds"
        } else if all.is_tail() && !all.seconds.is_none_or(positive) {
            "--seconds must be above 0 seconds"
        } else if all.is_tail() && all.batch > 1 {
            "the workload tail runs single operations: omit --batch"
        } else {
            return self.complaint_of_bursts(all).or_else(|| self.complaint_of_closed(all));
        };
        Some(complaint)
    }

    fn complaint_of_bursts(&self, all: &BenchArgs) -> Option<&'static str> {
        let complaint = match (self.burst, self.idle) {
            (None, Some(_)) => "--idle is the pause between two bursts: it needs --burst",
            (Some(burst), _) if !burst.is_possible() => {
                "--burst must be above 0 and at most 1000 times the rate, for more than 0 seconds"
            }
            (_, Some(idle)) if !(idle.seconds >= 0.0 && idle.seconds.is_finite()) => {
                "--idle must be at least 0 seconds"
            }
            (Some(_), _) if all.workload != Workload::Tail => "--burst works only with the workload tail",
            _ => return None,
        };
        Some(complaint)
    }

    fn complaint_of_closed(&self, all: &BenchArgs) -> Option<&'static str> {
        let clients = self.closed?;
        let complaint = if clients == 0 || clients > CLIENTS_MAX {
            "--closed must be 1 to 1024 clients"
        } else if all.workload != Workload::Tail {
            "--closed works only with the workload tail"
        } else if self.load.is_some() || self.burst.is_some() {
            "--closed runs without a fixed rate: omit --load and --burst"
        } else if self.clients == Clients::Separate {
            "--closed has one queue for all clients: omit --clients separate"
        } else {
            return None;
        };
        Some(complaint)
    }
}
