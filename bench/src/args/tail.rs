//! The options of the workload `tail` ([`crate::tail`]) that no other has.

pub mod words;

use super::{BenchArgs, Workload};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use words::{Burst, Loads, Span};

/// Most families.
const FAMILIES_MAX: u64 = 1024;
/// Most clients of a closed loop.
const CLIENTS_MAX: u64 = 1024;
/// What is due, in percent of what is sustained.
const LOAD: f64 = 80.0;
/// The same within bursts, of so many times the rate.
const LOAD_OF_BURSTS: f64 = 100.0;
/// Between two bursts.
const IDLE_SECONDS: f64 = 20.0;

/// Who does what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clients {
    /// All threads take reads and writes from one queue.
    #[default]
    Shared,
    /// Some threads take reads from one queue, the others writes from another.
    Separate,
}

/// Options of `tail` alone.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct TailArgs {
    /// tail: what is due, in percent of the rate that the store sustains; several one after the other in one store
    /// [default: 80; with --burst 100]
    #[arg(long, value_name = "PERCENT,...")]
    pub load: Option<Loads>,
    /// tail: families that the keys are spread over, and the memory of memtables
    #[arg(long, value_name = "N", default_value_t = TailArgs::default().families)]
    pub families: u64,
    /// tail: the part of the operations that are point reads, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = TailArgs::default().read_share)]
    pub read_share: f64,
    /// tail: one queue for all threads, or reads and writes apart
    #[arg(long, value_enum, default_value_t = Clients::Shared)]
    pub clients: Clients,
    /// tail: so many times the rate for so long, then nothing, again and again
    #[arg(long, value_name = "TIMESxSECONDS", num_args = 0..=1, default_missing_value = "3x10s")]
    pub burst: Option<Burst>,
    /// tail: how long there is nothing between two bursts [default: 20s]
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<Span>,
    /// tail: so many clients, each as fast as it can, in place of a rate
    #[arg(long, value_name = "CLIENTS")]
    pub closed: Option<u64>,
    /// tail: how long the store is driven to find the rate that it sustains
    #[arg(long, value_name = "SECONDS", default_value_t = TailArgs::default().find_seconds)]
    pub find_seconds: f64,
    /// Ends when the rate is found.
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
    /// What is due, in percent of the rate that is sustained, one after the other.
    pub fn loads(&self) -> Loads {
        let default = if self.burst.is_some() { LOAD_OF_BURSTS } else { LOAD };
        self.load.clone().unwrap_or_else(|| Loads::one(default))
    }

    /// How long there is nothing between two bursts.
    pub fn idle_seconds(&self) -> f64 {
        self.idle.map_or(IDLE_SECONDS, |idle| idle.seconds)
    }

    /// The same with one load.
    pub fn at(&self, load: f64) -> TailArgs {
        TailArgs { load: Some(Loads::one(load)), ..self.clone() }
    }

    /// What makes no sense.
    pub(crate) fn complaint(&self, all: &BenchArgs) -> Option<&'static str> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let complaint = if !self.loads().all(|load| positive(load) && load <= 1000.0) {
            "--load must be above 0, and at most 1000 percent"
        } else if self.families == 0 || self.families > FAMILIES_MAX {
            "--families must be 1 to 1024"
        } else if self.families > 1 && !all.is_tail() {
            "--families is of tail alone"
        } else if self.families > all.keys() {
            "each family has at least one key: --families at most --num"
        } else if !(0.0..=1.0).contains(&self.read_share) {
            "--read-share must be 0 to 1"
        } else if self.clients == Clients::Separate && all.threads() < 2 {
            "--clients separate needs --threads of at least 2"
        } else if !positive(self.find_seconds) {
            "--find-seconds must be above 0"
        } else if all.is_tail() && !all.seconds.is_none_or(positive) {
            "--seconds must be above 0"
        } else if all.is_tail() && all.batch > 1 {
            "tail has no batches"
        } else {
            return self.complaint_of_bursts(all).or_else(|| self.complaint_of_closed(all));
        };
        Some(complaint)
    }

    fn complaint_of_bursts(&self, all: &BenchArgs) -> Option<&'static str> {
        let complaint = match (self.burst, self.idle) {
            (None, Some(_)) => "--idle is what lies between bursts: it needs --burst",
            (Some(burst), _) if !burst.is_possible() => {
                "--burst must be above 0 times the rate, at most 1000, and above 0 seconds"
            }
            (_, Some(idle)) if !(idle.seconds >= 0.0 && idle.seconds.is_finite()) => {
                "--idle must not be negative"
            }
            (Some(_), _) if all.workload != Workload::Tail => "--burst is of tail alone",
            _ => return None,
        };
        Some(complaint)
    }

    fn complaint_of_closed(&self, all: &BenchArgs) -> Option<&'static str> {
        let clients = self.closed?;
        let complaint = if clients == 0 || clients > CLIENTS_MAX {
            "--closed must be 1 to 1024 clients"
        } else if all.workload != Workload::Tail {
            "--closed is of tail alone"
        } else if self.load.is_some() || self.burst.is_some() {
            "--closed has no rate: neither --load nor --burst"
        } else if self.clients == Clients::Separate {
            "--closed has one queue: no --clients separate"
        } else {
            return None;
        };
        Some(complaint)
    }
}
