//! The options of the workload `tail` ([`crate::tail`]) that no other has.

use super::{BenchArgs, Workload};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Most families.
const FAMILIES_MAX: u64 = 1024;

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
    /// tail: what is due, in percent of the rate that the store sustains
    #[arg(long, value_name = "PERCENT", default_value_t = TailArgs::default().load)]
    pub load: f64,
    /// tail: families that the keys are spread over, and the memory of memtables
    #[arg(long, value_name = "N", default_value_t = TailArgs::default().families)]
    pub families: u64,
    /// tail: the part of the operations that are point reads, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = TailArgs::default().read_share)]
    pub read_share: f64,
    /// tail: one queue for all threads, or reads and writes apart
    #[arg(long, value_enum, default_value_t = Clients::Shared)]
    pub clients: Clients,
    /// tail: 10 s at three times the rate, then 20 s of nothing, again and again
    #[arg(long)]
    pub burst: bool,
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
            load: 80.0,
            families: 1,
            read_share: 0.1,
            clients: Clients::Shared,
            burst: false,
            find_seconds: 20.0,
            only_find: false,
        }
    }
}

impl TailArgs {
    /// What makes no sense.
    pub(crate) fn complaint(&self, all: &BenchArgs) -> Option<&'static str> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let is_tail = all.workload == Workload::Tail;
        let complaint = if !positive(self.load) || self.load > 1000.0 {
            "--load must be above 0, and at most 1000 percent"
        } else if self.families == 0 || self.families > FAMILIES_MAX {
            "--families must be 1 to 1024"
        } else if self.families > 1 && !is_tail {
            "--families is of tail alone"
        } else if self.families > all.keys() {
            "each family has at least one key: --families at most --num"
        } else if !(0.0..=1.0).contains(&self.read_share) {
            "--read-share must be 0 to 1"
        } else if self.clients == Clients::Separate && all.threads() < 2 {
            "--clients separate needs --threads of at least 2"
        } else if !positive(self.find_seconds) {
            "--find-seconds must be above 0"
        } else if is_tail && !all.seconds.is_none_or(positive) {
            "--seconds must be above 0"
        } else if is_tail && all.batch > 1 {
            "tail has no batches"
        } else {
            return None;
        };
        Some(complaint)
    }
}
