//! What a measured phase costs: counters before it and after the background came to rest, and the space meanwhile.
//!
//! Every kind of run reports the same of it ([`Costs`], whose fields stand among those of the report), from the same counters.

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

/// How long the background may take to become idle.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(120);

/// What the measured phase and settling came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Keys and values written in the measured phase, by all clients.
    pub user_bytes: u64,
    /// Bytes that this process wrote (or dirtied), settling included.
    pub process_bytes_written: u64,
    /// Of these: dropped again before they reached the device, because their file was removed.
    #[serde(default)]
    pub process_bytes_cancelled: u64,
    /// Bytes that this process read from the device.
    #[serde(default)]
    pub process_bytes_read: u64,
    /// Bytes that the device wrote, settling included, whoever caused them; nothing if it has no counters.
    pub device_bytes_written: Option<u64>,
    /// Bytes that the device read.
    #[serde(default)]
    pub device_bytes_read: Option<u64>,
    /// Raw bytes of all live keys and values.
    pub live_bytes: u64,
    /// Largest space over live bytes, from the first operation to settled.
    pub space_peak_ratio: f64,
    /// Space over live bytes when the last operation was done.
    pub space_end_ratio: f64,
    /// Space over live bytes when settled.
    pub space_settled_ratio: f64,
    /// How long the whole process did not run because somebody stopped it, or its machine; if this is not 0, times and
    /// rates of the run mean nothing.
    #[serde(default)]
    pub suspended_seconds: f64,
    /// CPU time of the process, measured phase and settling.
    pub cpu_seconds: f64,
    /// The same for each operation of the clients, microseconds; what the benchmark itself needs is in it.
    #[serde(default)]
    pub cpu_us_per_op: f64,
    /// The most memory that the process had resident, loading included.
    pub rss_peak_bytes: u64,
    /// Time of settling after the measured phase.
    pub settle_seconds: f64,
    /// False if the background was still busy after 120 s.
    pub settled: bool,
    /// The engine's own counters when the measured phase began.
    pub engine_stats_before: BTreeMap<String, Value>,
    /// The same when it had settled.
    pub engine_stats: BTreeMap<String, Value>,
}

impl Costs {
    /// So many bytes over user bytes; nothing if nothing was written.
    pub fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        (self.user_bytes > 0).then(|| bytes as f64 / self.user_bytes as f64)
    }

    /// How much a counter of the engine grew, if it has it.
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

/// Everything seen around a measured phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub before: Counters,
    pub after: Counters,
    /// From the first operation to settled.
    pub space: Samples,
    pub space_end_bytes: u64,
    pub space_settled_bytes: u64,
    pub settle_seconds: f64,
    pub settled: bool,
}

impl Around {
    /// The operations are done: the background comes to rest, unless there is nothing to wait for. The counters before and the
    /// space meanwhile are the caller's to fill in.
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

    /// How much a counter of the engine grew, if it has it.
    pub fn growth(&self, name: &str) -> Option<u64> {
        growth(&self.after.engine, &self.before.engine, name)
    }

    /// What that means for clients that did so many operations and wrote so much.
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
    fn costs_are_what_grew() {
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
