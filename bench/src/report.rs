//! The report of a run: JSON for programs, a table for people.

use crate::args::BenchArgs;
use crate::costs::Costs;
use crate::kernel_reads::KernelReads;
use crate::limit::{Throttle, Watch};
use crate::phases::PhaseReport;
use crate::record::Kind;
use crate::space::Space;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Latencies of one kind of operation, microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of operations.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    #[serde(default)]
    pub p9999_us: f64,
    /// Maximum latency.
    pub max_us: f64,
}

impl Latency {
    /// Summarizes a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Latency {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: us(histogram.max()),
        }
    }
}

/// Compliance with a space limit, from the first operation until settled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitKept {
    /// Limit.
    pub limit_bytes: u64,
    /// Enforcement: `engine`, or `harness` by making writers wait.
    pub limit_kept_by: String,
    /// Number of samples.
    pub limit_samples: u64,
    /// Number of samples above the limit.
    pub limit_breaches: u64,
    /// Total wait of writers imposed by the harness; `None` if the engine enforces the limit.
    pub limit_wait_seconds: Option<f64>,
    /// True if the run ended early because the space did not shrink.
    pub limit_gave_up: bool,
}

impl LimitKept {
    /// Computes the summary; `throttle` is set if the harness enforced the limit.
    pub fn of(watch: &Watch, throttle: Option<&Throttle>) -> Self {
        LimitKept {
            limit_bytes: watch.limit_bytes,
            limit_kept_by: if throttle.is_some() { "harness" } else { "engine" }.to_owned(),
            limit_samples: watch.samples(),
            limit_breaches: watch.breaches(),
            limit_wait_seconds: throttle.map(|t| t.waited_ns() as f64 / 1e9),
            limit_gave_up: throttle.is_some_and(Throttle::gave_up),
        }
    }
}

impl LimitKept {
    fn text(&self) -> String {
        let waited = self.limit_wait_seconds.map_or(String::new(), |s| format!("; writers waited {s:.2} s"));
        let gave_up = if self.limit_gave_up {
            "; GAVE UP: the space did not come down, the run ended early"
        } else {
            ""
        };
        format!(
            "{}, kept by the {}; above it in {} of {} looks{waited}{gave_up}",
            human_bytes(self.limit_bytes),
            self.limit_kept_by,
            human_count(self.limit_breaches),
            human_count(self.limit_samples)
        )
    }
}

/// Activity of the idle process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Observed time.
    pub idle_seconds: f64,
    /// Bytes written.
    pub idle_bytes_written: u64,
    /// Bytes read from the device.
    pub idle_bytes_read: u64,
    /// CPU time.
    pub idle_cpu_seconds: f64,
}

/// The report of a run. The crate's documentation defines the terms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Engine and version.
    pub engine: String,
    /// Workload.
    pub workload: String,
    /// Operations of the clients.
    pub ops: u64,
    /// Duration of the measured phase without settling.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Keys and values of these operations, 10^6 bytes per second.
    pub mb_per_s: f64,
    /// The same including the time of settling.
    pub mb_per_s_settled: f64,
    /// Median latency of the clients' operations.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum latency.
    pub max_us: f64,
    /// Process writes per user byte; `None` without writes.
    pub write_amplification: Option<f64>,
    /// Device writes per user byte.
    pub device_write_amplification: Option<f64>,
    /// Costs of the run.
    #[serde(flatten)]
    pub costs: Costs,
    /// Space at its maximum.
    pub space_peak: Space,
    /// Space and operations by second.
    pub timeline: Vec<Space>,
    /// Storage reads per get; `None` without gets.
    pub reads_per_get: Option<f64>,
    /// The same by cause, if the engine counts causes.
    pub reads_per_get_causes: BTreeMap<String, f64>,
    /// Kernel counters of reads per get; `None` without gets.
    #[serde(default)]
    pub kernel_reads_per_get: Option<KernelReads>,
    /// Windows of 100 ms without progress: an operation waited throughout and none completed.
    pub stall_windows_100ms: u64,
    /// Longest time without progress, wherever it began, to 10 ms.
    pub longest_without_progress_ms: u64,
    /// Total wait of writers, as reported by the engine.
    pub seconds_stalled: Option<f64>,
    /// Compliance with the space limit, if any.
    #[serde(flatten)]
    pub limit: Option<LimitKept>,
    /// Activity during `--idle-seconds`.
    #[serde(flatten)]
    pub idle: Option<Idle>,
    /// Duration of the load and its settling.
    pub load_seconds: f64,
    /// Hash of the clients' operations: kind, key, value length.
    pub ops_hash: String,
    /// Reports of the phases of a changing load.
    #[serde(default)]
    pub phases: Vec<PhaseReport>,
    /// Latencies by kind of operation; `writer` is the extra writer.
    pub latency: BTreeMap<String, Latency>,
    /// Cores, memory, kernel.
    pub machine: String,
    /// Options of the run.
    pub options: BenchArgs,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
}

/// Formats a number of bytes: `1.50 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.2} TiB")
}

/// Formats a number of things: `1 file`, `1,234 entries`.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    let count = human_count(count);
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Formats a count: `1,234,567`.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a duration in microseconds: `12.3 us`, `4.56 ms`.
pub fn human_us(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.1} us")
    } else if us < 1_000_000.0 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

impl Report {
    /// Formats the report as a table.
    pub fn table(&self) -> String {
        let mut rows: Vec<(&str, String)> = Vec::new();
        self.speed_rows(&mut rows);
        self.cost_rows(&mut rows);
        rows.push(("operations", format!("hash {} (seed {})", self.ops_hash, self.options.seed)));
        rows.push(("machine", self.machine.clone()));
        let settings: Vec<String> = self.engine_settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        rows.push(("settings", settings.join(" ")));
        let mut out = String::new();
        for (name, value) in rows {
            let _ = writeln!(out, "{name:<20} {value}");
        }
        out
    }

    fn speed_rows(&self, rows: &mut Vec<(&str, String)>) {
        rows.push(("engine", self.engine.clone()));
        let o = &self.options;
        let threads =
            if o.threads() == 1 { "1 thread".to_owned() } else { format!("{} threads", o.threads()) };
        let sync = if o.is_durable() { ", every write durable" } else { "" };
        let keys = human_count(o.keys());
        let scan = if o.client_kind() == Kind::Scan {
            format!(", {} entries each", o.scan_length)
        } else {
            "".into()
        };
        let mix = match (o.requests.phases.is_empty(), o.mix()) {
            (true, Some(mix)) => format!(" {}", mix.name()),
            _ => String::new(),
        };
        let what = format!(
            "{}{mix}: {keys} keys of {} B, values {} B, {threads}{sync}{scan}",
            self.workload,
            o.key_size,
            o.sizes()
        );
        rows.push(("workload", what));
        let speed = format!(
            "{} in {:.2} s: {}/s, {:.1} MB/s",
            human_count(self.ops),
            self.seconds,
            human_count(self.ops_per_s as u64),
            self.mb_per_s
        );
        rows.push(("operations", speed));
        rows.extend(self.phases.iter().map(|phase| ("phase", phase.text())));
        let done = if self.costs.settled { "settled" } else { "NOT settled" };
        rows.push((
            "with settling",
            format!("{:.1} MB/s ({done} after {:.2} s)", self.mb_per_s_settled, self.costs.settle_seconds),
        ));
        for (kind, l) in &self.latency {
            let text = format!(
                "P50 {}   P99 {}   P99.9 {}   max {}",
                human_us(l.p50_us),
                human_us(l.p99_us),
                human_us(l.p999_us),
                human_us(l.max_us)
            );
            rows.push((
                if kind == "writer" { "latency of writer" } else { "latency" },
                format!("{kind:<6} {text}"),
            ));
        }
        if self.costs.suspended_seconds > 0.0 {
            let text =
                format!("the process was stopped for {:.1} s: times are void", self.costs.suspended_seconds);
            rows.push(("NOT VALID", text));
        }
        let stalled = self.seconds_stalled.map_or(String::new(), |s| {
            format!("; the engine made writers wait {s:.2} s ({:.0} %)", 100.0 * s / self.seconds.max(1e-9))
        });
        rows.push((
            "without progress",
            format!(
                "longest {} ms, {} windows of 100 ms{stalled}",
                self.longest_without_progress_ms, self.stall_windows_100ms
            ),
        ));
    }

    fn cost_rows(&self, rows: &mut Vec<(&str, String)>) {
        let two = |x: f64| format!("{x:.2}");
        let wa = or_dash(self.write_amplification, two);
        let device_wa = or_dash(self.device_write_amplification, two);
        rows.push(("write amplification", format!("{wa} (process), {device_wa} (device, whoever wrote)")));
        rows.push((
            "bytes",
            format!(
                "user {}, process wrote {} and read {}, device wrote {} and read {}",
                human_bytes(self.costs.user_bytes),
                human_bytes(self.costs.process_bytes_written),
                human_bytes(self.costs.process_bytes_read),
                or_dash(self.costs.device_bytes_written, human_bytes),
                or_dash(self.costs.device_bytes_read, human_bytes),
            ),
        ));
        rows.push((
            "space / live data",
            format!(
                "peak {:.2}, end {:.2}, settled {:.2} (live {})",
                self.costs.space_peak_ratio,
                self.costs.space_end_ratio,
                self.costs.space_settled_ratio,
                human_bytes(self.costs.live_bytes)
            ),
        ));
        if self.space_peak.bytes > 0 {
            let mut kinds: Vec<_> = self.space_peak.kinds.iter().collect();
            kinds.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
            let kinds: Vec<String> =
                kinds.iter().map(|(k, bytes)| format!("{k} {}", human_bytes(**bytes))).collect();
            rows.push((
                "peak consists of",
                format!("{} (after {:.1} s)", kinds.join(", "), self.space_peak.seconds),
            ));
        }
        rows.extend(self.limit.as_ref().map(|limit| ("space limit", limit.text())));
        if let Some(reads) = self.reads_per_get {
            let causes = self.reads_per_get_causes.iter().filter(|(_, reads)| **reads > 0.0);
            let causes: Vec<String> = causes.map(|(cause, reads)| format!("{cause} {reads:.3}")).collect();
            let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
            rows.push(("reads per get", format!("{reads:.3}{causes}")));
        }
        rows.extend(self.kernel_reads_per_get.map(|reads| ("the kernel, per get", reads.text())));
        rows.push((
            "cpu, memory",
            format!(
                "{:.2} s ({} for each operation), peak {}",
                self.costs.cpu_seconds,
                human_us(self.costs.cpu_us_per_op),
                human_bytes(self.costs.rss_peak_bytes)
            ),
        ));
        if let Some(idle) = &self.idle {
            let text = format!(
                "in {:.0} s: wrote {}, read {}, {:.2} s of processor time",
                idle.idle_seconds,
                human_bytes(idle.idle_bytes_written),
                human_bytes(idle.idle_bytes_read),
                idle.idle_cpu_seconds
            );
            rows.push(("idle", text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(3 << 19), "1.50 MiB");
        assert_eq!(
            (human_bytes(256 << 20), human_bytes(1 << 50)),
            ("256.00 MiB".into(), "1024.00 TiB".into())
        );
        for (count, noun, text) in [(1, "file", "1 file"), (0, "file", "0 files"), (2, "entry", "2 entries")]
        {
            assert_eq!(counted(count, noun), text);
        }
        assert_eq!(
            (&counted(2000, "batch")[..], &counted(2, "index")[..], &counted(2, "key")[..]),
            ("2,000 batches", "2 indexes", "2 keys")
        );
        assert_eq!(human_count(1_234_567), "1,234,567");
        assert_eq!(human_count(12), "12");
        assert_eq!(human_us(1500.0), "1.50 ms");
    }
}
