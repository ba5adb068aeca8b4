//! Engine histograms of the measured phase: waits by cause, operation times, and widths and chain
//! lengths of compactions.

use crate::report::{human_bytes, human_count, human_us};
use lavastore::{Distribution, Histograms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Durations by the engine's clock, with a resolution of a sixteenth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of durations.
    pub count: u64,
    /// Sum in seconds.
    pub seconds: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum duration.
    pub max_us: f64,
}

impl Times {
    fn of(times: &Distribution) -> Times {
        let us = |ns: u64| ns as f64 / 1e3;
        Times {
            count: times.count(),
            seconds: times.sum() as f64 / 1e9,
            p50_us: us(times.quantile(0.5)),
            p99_us: us(times.quantile(0.99)),
            max_us: us(times.max()),
        }
    }
}

/// Waits by one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Durations.
    #[serde(flatten)]
    pub times: Times,
    /// Waits longer than the budget, or at most a sixteenth shorter; `None` without a budget.
    pub over_budget: Option<u64>,
}

/// Compactions of the measured phase and settling, without trivial moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compactions {
    /// Number of compactions.
    pub count: u64,
    /// Mean width: bytes read by a compaction.
    pub width_mean_bytes: u64,
    /// 99th percentile of the width.
    pub width_p99_bytes: u64,
    /// Maximum width.
    pub width_max_bytes: u64,
    /// Mean chain: compactions due in a row at the start of one, including itself.
    pub chain_mean: f64,
    /// 99th percentile of the chain.
    pub chain_p99: u64,
    /// Maximum chain.
    pub chain_max: u64,
}

/// The engine's measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineTimes {
    /// Stall budget in microseconds; `None` without a promise.
    pub stall_budget_us: Option<f64>,
    /// Waits by cause, including causes without waits.
    pub waits: BTreeMap<String, Wait>,
    /// Operations by kind.
    pub operations: BTreeMap<String, Times>,
    /// Compactions.
    pub compactions: Compactions,
}

type Named = [(&'static str, Distribution)];

fn grown(now: &Named, before: &Named) -> BTreeMap<String, Distribution> {
    let old = |name: &str| before.iter().find(|(of, _)| *of == name).map(|(_, times)| times);
    let since = |(name, times): &(&'static str, Distribution)| {
        ((*name).to_owned(), old(name).map_or_else(|| times.clone(), |old| times.since(old)))
    };
    now.iter().map(since).collect()
}

impl EngineTimes {
    /// Computes the differences between two moments.
    pub fn of(before: &Histograms, after: &Histograms, budget: Option<Duration>) -> EngineTimes {
        let budget_ns = budget.map(|budget| u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX));
        let wait = |(cause, times): (String, Distribution)| {
            let over_budget = budget_ns.map(|budget_ns| times.count() - times.at_most(budget_ns));
            (cause, Wait { times: Times::of(&times), over_budget })
        };
        let operations = grown(&after.operations, &before.operations).into_iter();
        let width = after.compaction_width.since(&before.compaction_width);
        let chain = after.compaction_chain.since(&before.compaction_chain);
        EngineTimes {
            stall_budget_us: budget_ns.map(|ns| ns as f64 / 1e3),
            waits: grown(&after.waits, &before.waits).into_iter().map(wait).collect(),
            operations: operations.map(|(name, times)| (name, Times::of(&times))).collect(),
            compactions: Compactions {
                count: width.count(),
                width_mean_bytes: width.mean(),
                width_p99_bytes: width.quantile(0.99),
                width_max_bytes: width.max(),
                chain_mean: chain.sum() as f64 / (chain.count() as f64).max(1.0),
                chain_p99: chain.quantile(0.99),
                chain_max: chain.max(),
            },
        }
    }

    /// Returns the longest wait in microseconds.
    pub fn longest_wait_us(&self) -> f64 {
        self.waits.values().map(|wait| wait.times.max_us).fold(0.0, f64::max)
    }

    /// Returns the number of waits over the budget, for all causes.
    pub fn over_budget(&self) -> Option<u64> {
        self.waits.values().map(|wait| wait.over_budget).sum()
    }

    /// Returns table rows: each cause with waits, and compactions.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let waited = self.waits.iter().filter(|(_, wait)| wait.times.count > 0);
        let row = |(cause, wait): (&String, &Wait)| {
            let Times { count, p50_us, p99_us, max_us, .. } = &wait.times;
            let budget = self.stall_budget_us.zip(wait.over_budget);
            let over = budget.map_or(String::new(), |(budget_us, over)| {
                format!("; {} over the budget of {}", human_count(over), human_us(budget_us))
            });
            let times = [p50_us, p99_us, max_us].map(|us| human_us(*us));
            let [p50, p99, max] = times;
            format!("{cause}: {} times, P50 {p50}   P99 {p99}   max {max}{over}", human_count(*count))
        };
        let mut rows: Vec<_> = waited.map(|wait| ("waits for", row(wait))).collect();
        let c = &self.compactions;
        if c.count > 0 {
            let text = format!(
                "{}, each reads {} (P99 {}, max {}); {:.2} in a row (P99 {}, max {})",
                human_count(c.count),
                human_bytes(c.width_mean_bytes),
                human_bytes(c.width_p99_bytes),
                human_bytes(c.width_max_bytes),
                c.chain_mean,
                c.chain_p99,
                c.chain_max
            );
            rows.push(("compactions", text));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let histogram = io::timing::Timing::each(&io::Env::kernel());
        values.iter().for_each(|value| histogram.record_ns(*value));
        histogram.read()
    }

    #[test]
    fn waits_since_the_start_are_compared_with_the_budget() {
        let before = Histograms { waits: vec![("l0", of(&[90_000_000]))], ..Histograms::default() };
        let l0 = of(&[90_000_000, 1_000_000, 2_000_000, 30_000_000]);
        let after = Histograms {
            waits: vec![("l0", l0), ("log", of(&[]))],
            operations: vec![("flush", of(&[5_000_000]))],
            compaction_width: of(&[1 << 20, 3 << 20]),
            compaction_chain: of(&[1, 2]),
        };
        let told = EngineTimes::of(&before, &after, Some(Duration::from_millis(10)));
        let l0 = &told.waits["l0"];
        assert_eq!((l0.times.count, l0.over_budget, l0.times.seconds), (3, Some(1), 0.033));
        assert!((30_000.0..32_000.0).contains(&l0.times.max_us) && told.longest_wait_us() == l0.times.max_us);
        assert_eq!((told.waits["log"].times.count, told.over_budget()), (0, Some(1)));
        assert_eq!(told.operations["flush"].max_us, 5000.0);
        let c = &told.compactions;
        assert_eq!((c.count, c.width_mean_bytes, c.chain_mean, c.chain_max), (2, 2 << 20, 1.5, 2));
        let rows: Vec<String> =
            told.rows().into_iter().map(|(name, text)| format!("{name} {text}")).collect();
        assert!(rows[0].starts_with("waits for l0: 3 times, P50"), "{rows:?}");
        assert!(
            rows[0].ends_with("; 1 over the budget of 10.00 ms") && rows[1].starts_with("compactions 2, ")
        );
        assert_eq!(EngineTimes::of(&before, &after, None).over_budget(), None);
    }
}
