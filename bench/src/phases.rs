//! A changing load on an open store: `ycsb --phases a,write,b`.
//!
//! Each phase runs one mix of operations for `--seconds`, directly after the previous one, in the
//! same store with the same number of clients. The report has a line per phase in addition to the
//! total. Follows SpanDB's figure 10 (half and half, then all writes, then 95 % reads): an engine
//! must adapt while it runs, so there is no reopen and no settling in between.
//!
//! The key sequence of a client restarts with each phase, so hot keys stay hot. Mixes with inserts
//! would insert the same keys in each phase, and are refused.

use crate::args::BenchArgs;
use crate::record::{Recorder, merge};
use crate::report::Latency;
use crate::ycsb::Mix;
use serde::{Deserialize, Serialize};

/// The report of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Its mix.
    pub mix: Mix,
    /// Number of operations.
    pub ops: u64,
    /// Duration.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Median latency of its operations.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
}

impl PhaseReport {
    /// Computes the report from the records of the clients.
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

    /// Formats the report as text.
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
    /// Returns the options of each phase in order; those of the run without phases.
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
