//! Costs of a measured phase: counters before it and after the background work, and the space
//! meanwhile.
//!
//! All kinds of runs report the same [`Costs`] from the same counters, embedded in their reports.

use crate::Result;
use crate::args::BenchArgs;
use crate::engine::{Engine, Phase};
use crate::host::{self, DeviceCounters, ProcessCounters, now_ns};
use crate::space::Samples;
use lavastore::Histograms;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Timeout of the background work.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(120);

/// Costs of the measured phase with settling.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Bytes of keys and values written by all clients in the measured phase.
    pub user_bytes: u64,
    /// Bytes written or dirtied by this process, including settling.
    pub process_bytes_written: u64,
    /// Of these, bytes dropped before they reached the device, because their file was removed.
    #[serde(default)]
    pub process_bytes_cancelled: u64,
    /// Bytes read from the device by this process.
    #[serde(default)]
    pub process_bytes_read: u64,
    /// Bytes written by the device for all processes, including settling; `None` without counters.
    pub device_bytes_written: Option<u64>,
    /// Bytes read by the device.
    #[serde(default)]
    pub device_bytes_read: Option<u64>,
    /// Raw bytes of all live keys and values.
    pub live_bytes: u64,
    /// Maximum ratio of space to live bytes, until settled.
    pub space_peak_ratio: f64,
    /// Ratio of space to live bytes after the last operation.
    pub space_end_ratio: f64,
    /// Ratio of space to live bytes when settled.
    pub space_settled_ratio: f64,
    /// Time during which the process or its machine was suspended; if it is not 0, times and rates
    /// of the run are void.
    #[serde(default)]
    pub suspended_seconds: f64,
    /// CPU time of the process in the measured phase and settling.
    pub cpu_seconds: f64,
    /// The same per client operation in microseconds, including the benchmark's own work.
    #[serde(default)]
    pub cpu_us_per_op: f64,
    /// Peak resident memory of the process, including the load.
    pub rss_peak_bytes: u64,
    /// Duration of settling after the measured phase.
    pub settle_seconds: f64,
    /// False if the background was still busy after 120 s.
    pub settled: bool,
    /// Counters of the engine before the measured phase.
    pub engine_stats_before: BTreeMap<String, Value>,
    /// Counters of the engine when settled.
    pub engine_stats: BTreeMap<String, Value>,
}

impl Costs {
    /// Returns bytes per user byte; `None` without writes.
    pub fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        (self.user_bytes > 0).then(|| bytes as f64 / self.user_bytes as f64)
    }

    /// Returns the growth of an engine counter, if it exists.
    pub fn growth(&self, name: &str) -> Option<u64> {
        growth(&self.engine_stats, &self.engine_stats_before, name)
    }
}

fn growth(now: &BTreeMap<String, Value>, before: &BTreeMap<String, Value>, name: &str) -> Option<u64> {
    let old = before.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(now.get(name)?.as_u64()?.saturating_sub(old))
}

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub process: ProcessCounters,
    pub device: Option<DeviceCounters>,
    pub engine: BTreeMap<String, Value>,
    pub histograms: Option<Histograms>,
}

impl Counters {
    pub fn now(engine: &dyn Engine, dir: &Path) -> Self {
        Counters {
            process: host::process_counters(),
            device: engine.device_counters(dir),
            engine: engine.stats().into_iter().collect(),
            histograms: engine.histograms(),
        }
    }
}

/// Observations around a measured phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub before: Counters,
    pub after: Counters,
    /// Samples from the first operation until settled.
    pub space: Samples,
    pub space_end_bytes: u64,
    pub space_settled_bytes: u64,
    pub settle_seconds: f64,
    pub settled: bool,
}

impl Around {
    /// Waits for the background work after the operations, if `waits` is set. The caller fills in
    /// the counters before and the space samples.
    pub fn settled(engine: &dyn Engine, dir: &Path, waits: bool) -> Result<Around> {
        let end_ns = now_ns();
        let space_end_bytes = engine.allocated(dir).bytes;
        engine.phase(Phase::Settle);
        let settled = !waits || engine.settle(SETTLE_MAX)?;
        Ok(Around {
            before: Counters::default(),
            after: Counters::now(engine, dir),
            space: Samples::default(),
            space_end_bytes,
            space_settled_bytes: engine.allocated(dir).bytes,
            settle_seconds: (now_ns() - end_ns) as f64 / 1e9,
            settled,
        })
    }

    /// Returns the growth of an engine counter, if it exists.
    pub fn growth(&self, name: &str) -> Option<u64> {
        growth(&self.after.engine, &self.before.engine, name)
    }

    /// Computes the costs for the given operations and bytes of the clients.
    pub fn costs(&self, args: &BenchArgs, ops: u64, user_bytes: u64) -> Costs {
        let (process, old) = (self.after.process, self.before.process);
        let device = self.after.device.zip(self.before.device);
        let live_bytes = args.live_bytes();
        let ratio = |bytes: u64| bytes as f64 / live_bytes as f64;
        let peak = self.space.peak.bytes.max(self.space_end_bytes).max(self.space_settled_bytes);
        let cpu_ns = process.cpu_ns - old.cpu_ns;
        Costs {
            user_bytes,
            process_bytes_written: process.write_bytes - old.write_bytes,
            process_bytes_cancelled: process.cancelled_write_bytes - old.cancelled_write_bytes,
            process_bytes_read: process.read_bytes - old.read_bytes,
            device_bytes_written: device.map(|(new, old)| new.write_bytes.saturating_sub(old.write_bytes)),
            device_bytes_read: device.map(|(new, old)| new.read_bytes.saturating_sub(old.read_bytes)),
            live_bytes,
            space_peak_ratio: ratio(peak),
            space_end_ratio: ratio(self.space_end_bytes),
            space_settled_ratio: ratio(self.space_settled_bytes),
            suspended_seconds: self.space.suspended_ns as f64 / 1e9,
            cpu_seconds: cpu_ns as f64 / 1e9,
            cpu_us_per_op: cpu_ns as f64 / 1e3 / (ops as f64).max(1.0),
            rss_peak_bytes: process.rss_peak_bytes,
            settle_seconds: self.settle_seconds,
            settled: self.settled,
            engine_stats_before: self.before.engine.clone(),
            engine_stats: self.after.engine.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_counter_differences() {
        let counters = |bytes: u64, stalls: u64| Counters {
            process: ProcessCounters {
                write_bytes: bytes,
                cpu_ns: bytes * 1000,
                ..ProcessCounters::default()
            },
            device: Some(DeviceCounters { write_bytes: 2 * bytes, ..DeviceCounters::default() }),
            engine: BTreeMap::from([("stalls".to_owned(), stalls.into())]),
            histograms: None,
        };
        let around = Around {
            before: counters(100, 1),
            after: counters(350, 4),
            space_end_bytes: 70,
            space_settled_bytes: 50,
            ..Around::default()
        };
        assert_eq!((around.growth("stalls"), around.growth("waits")), (Some(3), None));
        let args = crate::args::tests::args("tail --num 1 --value-size 76");
        let costs = around.costs(&args, 10, 50);
        assert_eq!(costs.growth("stalls"), Some(3));
        assert_eq!((costs.process_bytes_written, costs.device_bytes_written), (250, Some(500)));
        assert_eq!((costs.per_user_byte(250), costs.cpu_us_per_op), (Some(5.0), 25.0));
        assert_eq!((costs.space_peak_ratio, costs.space_settled_ratio), (0.7, 0.5));
        assert_eq!(Costs::default().per_user_byte(1), None);
    }
}
