//! A load that changes while the store is open: `ycsb --phases a,write,b`.
//!
//! Each phase runs one mix of operations for `--seconds`, right after the one before, in the same store and with the same threads' worth of
//! clients; the report has a line for each beside that of the whole. After SpanDB's figure 10 (half and half, then all writes, then 95 %
//! reads): what an engine adapts, it has to adapt while it is at work, so nothing is reopened and nothing settles in between.
//!
//! The keys that a client asks for begin anew with each phase, so hot keys stay hot. Mixes that insert would insert the same keys in each phase, and are
//! refused.

use crate::args::BenchArgs;
use crate::record::{Recorder, merge};
use crate::report::Latency;
use crate::ycsb::Mix;
use serde::{Deserialize, Serialize};

/// What one phase came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Its mix.
    pub mix: Mix,
    /// Operations.
    pub ops: u64,
    /// Length.
    pub seconds: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Median latency of its operations.
    pub p50_us: f64,
    /// 99 of 100 were not slower.
    pub p99_us: f64,
}

impl PhaseReport {
    /// Of what its clients recorded.
    pub(crate) fn of(mix: Mix, seconds: f64, clients: &[Recorder]) -> PhaseReport {
        let merged = merge(clients);
        let latency = Latency::of(&merged.latency_ns);
        PhaseReport {
            mix,
            ops: merged.ops,
            seconds,
            ops_per_s: merged.ops as f64 / seconds.max(1e-9),
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:<5} {:.0} ops/s   P50 {:.1} us   P99 {:.1} us   ({} in {:.2} s)",
            self.mix.name(),
            self.ops_per_s,
            self.p50_us,
            self.p99_us,
            self.ops,
            self.seconds
        )
    }
}

impl BenchArgs {
    /// The options of each phase, one after the other; those of the run if it has no phases.
    pub(crate) fn phases(&self) -> Vec<BenchArgs> {
        let of = |mix: &Mix| {
            let requests = crate::args::requests::RequestArgs {
                mix: Some(*mix),
                phases: Vec::new(),
                ..self.requests.clone()
            };
            BenchArgs { requests, ..self.clone() }
        };
        match self.requests.phases.as_slice() {
            [] => vec![self.clone()],
            phases => phases.iter().map(of).collect(),
        }
    }
}
