//! The report of a `tail` run: JSON for programs, a table for people.

use super::bursts::BurstReport;
use super::engine::EngineTimes;
use super::{Done, SECONDS, Sustained, TailMeasurements};
use crate::args::{BenchArgs, name};
use crate::costs::Costs;
use crate::host;
use crate::record::{Merged, Recorder, SLOT_NS, Stalls, merge, stalls};
use crate::report::{Latency, human_bytes, human_count, human_us};
use crate::space::Space;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A store keeps up if the last request completes this soon after its due time, relative to the
/// measured phase.
const KEPT_UP_PART: f64 = 0.01;
/// The same in seconds: a pause at the very end is no backlog.
const KEPT_UP_SECONDS: f64 = 0.5;

/// Latencies of a second in microseconds, with two digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// Number of completed operations.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum latency.
    pub max_us: f64,
}

impl Brief {
    fn of(histogram: Option<&Histogram<u32>>) -> Self {
        let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else {
            return Brief::default();
        };
        let us = |ns: u64| ns as f64 / 1e3;
        Brief {
            count: histogram.len(),
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            max_us: us(histogram.max()),
        }
    }
}

/// A second of the measured phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Number of the second, from 0.
    pub second: u64,
    /// Number of completed operations.
    pub ops: u64,
    /// Latencies of the writes.
    pub write: Brief,
    /// Latencies of the reads.
    pub read: Brief,
    /// Waits of writers by cause in milliseconds, without zeros.
    pub waits_ms: BTreeMap<String, f64>,
    /// Size of the files.
    pub space_bytes: u64,
    /// Longest write of the device probe in microseconds; `None` without a probe.
    pub device_write_max_us: Option<f64>,
    /// The same for synced writes.
    #[serde(default)]
    pub device_sync_max_us: Option<f64>,
}

/// The report of a run. [`crate::Report`] explains the terms.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TailReport {
    /// Engine and version.
    pub engine: String,
    /// Workload.
    pub workload: String,
    /// Sustained operations per second, measured or given.
    pub sustained_per_s: f64,
    /// Operations of each second of that measurement; empty for a given rate.
    pub found_by_second: Vec<u64>,
    /// Operations per second due; with bursts the multiplied rate; 0 in a closed loop.
    pub rate_per_s: f64,
    /// Completed operations.
    pub ops: u64,
    /// Due operations not begun 10 s after the end; latencies include their age.
    pub ops_left: u64,
    /// Time from the first operation to the completion of the last one.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// The same relative to the sustained rate.
    #[serde(default)]
    pub ops_over_sustained: f64,
    /// True without a backlog at the end.
    pub kept_up: bool,
    /// Latencies of writes from their due times.
    pub write: Latency,
    /// Latencies of reads from their due times.
    pub read: Latency,
    /// Windows of 100 ms without progress: an operation waited throughout and none completed.
    pub stall_windows_100ms: u64,
    /// Longest time without progress, to 10 ms.
    pub longest_without_progress_ms: u64,
    /// Windows of 100 ms in which a write waited and none completed.
    pub write_stall_windows_100ms: u64,
    /// Longest time in which a write waited and none completed.
    pub longest_without_write_ms: u64,
    /// Total wait of writers in seconds, as reported by the engine.
    pub wait_seconds: Option<f64>,
    /// The same by cause.
    pub waits_seconds: BTreeMap<String, f64>,
    /// Number of waits of writers by cause, if the engine counts them.
    pub waits_counted: BTreeMap<String, u64>,
    /// Engine histograms of the measured phase; `None` if it has none.
    #[serde(default)]
    pub engine_times: Option<EngineTimes>,
    /// Operations with total waits over the budget, as reported by the engine.
    #[serde(default)]
    pub ops_over_budget: Option<u64>,
    /// Reports of the bursts.
    #[serde(default)]
    pub bursts: Vec<BurstReport>,
    /// Writes of a page by the device probe, bypassing the page cache; `None` if not possible.
    pub device_write: Option<Latency>,
    /// The same with a sync of each.
    #[serde(default)]
    pub device_sync: Option<Latency>,
    /// Costs of the run.
    #[serde(flatten)]
    pub costs: Costs,
    /// Process writes per user byte.
    pub process_bytes_per_user_byte: Option<f64>,
    /// Device writes per user byte.
    pub device_bytes_per_user_byte: Option<f64>,
    /// Measurements by second.
    pub timeline: Vec<Second>,
    /// Duration of everything before the measured phase: load, fill, finding the rate, rest.
    pub load_seconds: f64,
    /// False if the background was still busy 120 s after that, at the start of the measured phase.
    pub rested: bool,
    /// Cores, memory, kernel.
    pub machine: String,
    /// Options of the run.
    pub options: Option<BenchArgs>,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
}

impl Done {
    /// Merges writes and reads.
    pub(super) fn all(&self) -> Merged {
        // Recorders are large, so the parts needed for merging are not copied.
        let mut all = merge(&self.writes);
        let reads = merge(&self.reads);
        all.ops += reads.ops;
        all.by_second.resize(all.by_second.len().max(reads.by_second.len()), 0);
        all.by_second.iter_mut().zip(reads.by_second).for_each(|(all, reads)| *all += reads);
        all.stalls = stalls(self.writes.iter().chain(&self.reads));
        all
    }
}

/// Returns the report of the measurements; the caller adds the rest.
pub(super) fn of(args: &BenchArgs, sustained: &Sustained, measured: Option<&TailMeasurements>) -> TailReport {
    let report = TailReport {
        workload: "tail".to_owned(),
        sustained_per_s: sustained.per_s,
        found_by_second: sustained.by_second.clone(),
        costs: Costs {
            live_bytes: args.live_bytes(),
            rss_peak_bytes: host::process_counters().rss_peak_bytes,
            ..Costs::default()
        },
        machine: host::machine(),
        options: Some(BenchArgs { seconds: Some(args.seconds.unwrap_or(SECONDS)), ..args.resolved() }),
        ..TailReport::default()
    };
    match measured {
        None => report,
        Some(measured) => measured.waits(measured.speed(args, report)),
    }
}

fn pause_ms(stalls: Stalls) -> u64 {
    stalls.longest_slots * SLOT_NS / 1_000_000
}

impl TailMeasurements {
    fn speed(&self, args: &BenchArgs, report: TailReport) -> TailReport {
        let due_seconds = args.seconds.unwrap_or(SECONDS);
        let done = &self.served.done;
        let (all, writes, reads) = (done.all(), merge(&done.writes), merge(&done.reads));
        let late = done.seconds - due_seconds;
        let ops_per_s = all.ops as f64 / done.seconds.max(due_seconds);
        TailReport {
            rate_per_s: self.rate_per_s,
            ops: all.ops,
            ops_left: self.served.left,
            seconds: done.seconds,
            ops_per_s,
            ops_over_sustained: ops_per_s / report.sustained_per_s,
            kept_up: self.served.left == 0 && late <= (due_seconds * KEPT_UP_PART).max(KEPT_UP_SECONDS),
            write: Latency::of(&writes.latency_ns),
            read: Latency::of(&reads.latency_ns),
            stall_windows_100ms: all.stalls.windows,
            longest_without_progress_ms: pause_ms(all.stalls),
            write_stall_windows_100ms: writes.stalls.windows,
            longest_without_write_ms: pause_ms(writes.stalls),
            bursts: self.bursts(),
            costs: self.around.costs(args, all.ops, writes.bytes),
            timeline: self.timeline(&all, &writes, &reads),
            ..report
        }
    }

    fn bursts(&self) -> Vec<BurstReport> {
        let plan = self.served.plan.as_ref();
        plan.map(|plan| plan.reports(&self.served.seen(), &self.looks)).unwrap_or_default()
    }

    fn waits(&self, report: TailReport) -> TailReport {
        let (before, after) = (&self.around.before.histograms, &self.around.after.histograms);
        let engine_times = before.as_ref().zip(after.as_ref());
        let summary = |record: &Option<Recorder>| record.as_ref().map(|r| Latency::of(&r.latency_ns));
        let costs = &report.costs;
        TailReport {
            wait_seconds: self.around.growth("stall_ns").map(|ns| ns as f64 / 1e9),
            waits_seconds: self.growths("_ns").map(|(cause, ns)| (cause, ns as f64 / 1e9)).collect(),
            waits_counted: self.growths("_count").collect(),
            engine_times: engine_times.map(|(old, now)| EngineTimes::of(old, now, self.stall_budget)),
            ops_over_budget: self.around.growth("stalls_over_budget"),
            device_write: summary(&self.device),
            device_sync: summary(&self.device_syncs),
            process_bytes_per_user_byte: costs.per_user_byte(costs.process_bytes_written),
            device_bytes_per_user_byte: costs
                .device_bytes_written
                .and_then(|bytes| costs.per_user_byte(bytes)),
            ..report
        }
    }

    /// Returns the growth of the engine counters `stall_CAUSE` with this suffix.
    fn growths<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (String, u64)> + 'a {
        self.around.after.engine.keys().filter_map(move |name| {
            let cause = name.strip_prefix("stall_")?.strip_suffix(end)?;
            Some((cause.to_owned(), self.around.growth(name)?))
        })
    }

    fn timeline(&self, all: &Merged, writes: &Merged, reads: &Merged) -> Vec<Second> {
        let [device, syncs] = [&self.device, &self.device_syncs]
            .map(|probe| probe.as_ref().map(|record| merge(std::slice::from_ref(record)).latency_by_second));
        let longest_us = |probe: &Option<Vec<Histogram<u32>>>, at: usize| {
            Some(probe.as_ref()?.get(at)?.max() as f64 / 1e3)
        };
        let mut timeline: Vec<Second> = all
            .by_second
            .iter()
            .enumerate()
            .map(|(at, ops)| Second {
                second: at as u64,
                ops: *ops,
                write: Brief::of(writes.latency_by_second.get(at)),
                read: Brief::of(reads.latency_by_second.get(at)),
                device_write_max_us: longest_us(&device, at),
                device_sync_max_us: longest_us(&syncs, at),
                ..Second::default()
            })
            .collect();
        seen(&self.around.space.timeline, &mut timeline);
        timeline
    }
}

/// Adds the samples of each second; a wait counts for the second of its sample.
fn seen(samples: &[Space], timeline: &mut [Second]) {
    for (at, sample) in samples.iter().enumerate() {
        let Some(second) = timeline.get_mut(sample.seconds as usize) else { continue };
        second.space_bytes = second.space_bytes.max(sample.bytes);
        let Some(next) = samples.get(at + 1) else { continue };
        for (cause, ns) in &next.waits_ns {
            let waited_ns = ns.saturating_sub(sample.waits_ns.get(cause).copied().unwrap_or(0));
            if waited_ns > 0 {
                *second.waits_ms.entry(cause.clone()).or_default() += waited_ns as f64 / 1e6;
            }
        }
    }
}

impl TailReport {
    /// Formats the common rows of several loads.
    pub(super) fn heading(&self) -> String {
        let mut rows = self.first_rows();
        rows.extend(self.last_rows());
        text(rows)
    }

    fn first_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("engine", self.engine.clone())];
        rows.extend(self.options.as_ref().map(|options| ("workload", work(options))));
        rows
    }

    fn last_rows(&self) -> [(&'static str, String); 2] {
        let settings: Vec<String> = self.engine_settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        [("machine", self.machine.clone()), ("settings", settings.join(" "))]
    }

    /// Formats the report as a table.
    pub fn table(&self) -> String {
        let mut rows = self.first_rows();
        rows.push(("load", self.load()));
        for (name, latency) in [("latency of writes", &self.write), ("latency of reads", &self.read)] {
            rows.extend((latency.count > 0).then(|| (name, times(latency))));
        }
        if self.costs.suspended_seconds > 0.0 {
            let seconds = self.costs.suspended_seconds;
            rows.push(("NOT VALID", format!("the process was stopped for {seconds:.1} s: times are void")));
        }
        rows.push(("without progress", self.pauses()));
        rows.extend(self.bursts.iter().map(|burst| ("burst", burst.text())));
        rows.push(("waits", self.waits()));
        rows.extend(self.engine_times.iter().flat_map(EngineTimes::rows));
        rows.extend(self.over_budget().map(|text| ("over the budget", text)));
        rows.extend(self.device_write.as_ref().map(|device| ("write beside it", times(device))));
        rows.extend(self.device_sync.as_ref().map(|device| ("synced write", times(device))));
        self.cost_rows(&mut rows);
        rows.extend(self.last_rows());
        text(rows)
    }

    fn over_budget(&self) -> Option<String> {
        let budget_us = self.engine_times.as_ref()?.stall_budget_us?;
        let ops = human_count(self.ops_over_budget?);
        Some(format!("{ops} operations waited longer than {}, all in all", human_us(budget_us)))
    }

    /// Describes the load relative to the sustained rate.
    fn load(&self) -> String {
        let rate = |per_s: f64| human_count(per_s.round() as u64);
        let how = if self.found_by_second.is_empty() { "told" } else { "found" };
        let verdict = match (self.kept_up, self.ops_left) {
            (true, _) => "kept up".to_owned(),
            (false, 0) => format!("FELL BEHIND: the last was done after {:.1} s", self.seconds),
            (false, left) => format!("FELL BEHIND: {} never begun", human_count(left)),
        };
        let tail = self.options.as_ref().map(|options| &options.tail);
        if let Some(clients) = tail.and_then(|tail| tail.closed) {
            return format!(
                "{clients} clients, each as fast as it can: {}/s done in {:.1} s, {:.2} times the {}/s that are sustained ({how})",
                rate(self.ops_per_s),
                self.seconds,
                self.ops_over_sustained,
                rate(self.sustained_per_s),
            );
        }
        let load = tail.map_or("0".to_owned(), |tail| tail.loads().to_string());
        format!(
            "{load} % of {}/s ({how}): {}/s due, {}/s done in {:.1} s; {verdict}",
            rate(self.sustained_per_s),
            rate(self.rate_per_s),
            rate(self.ops_per_s),
            self.seconds,
        )
    }

    fn pauses(&self) -> String {
        format!(
            "longest {} ms, {} windows of 100 ms; without a write {} ms, {} windows",
            self.longest_without_progress_ms,
            self.stall_windows_100ms,
            self.longest_without_write_ms,
            self.write_stall_windows_100ms
        )
    }

    /// Formats the waits imposed by the engine by cause.
    pub fn waits(&self) -> String {
        let Some(all) = self.wait_seconds else { return "the engine does not say".to_owned() };
        let seconds = self.waits_seconds.iter().filter(|(_, s)| **s > 0.0);
        let seconds = seconds.map(|(cause, s)| format!("{cause} {s:.3} s"));
        let counted = self.waits_counted.iter().filter(|(_, n)| **n > 0);
        let counted = counted.map(|(cause, n)| format!("{cause} {n} times"));
        let causes: Vec<String> = seconds.chain(counted).collect();
        let causes = if causes.is_empty() { String::new() } else { format!(": {}", causes.join(", ")) };
        format!("{all:.3} s of all writers together{causes}")
    }

    fn cost_rows(&self, rows: &mut Vec<(&'static str, String)>) {
        let ratio = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
        rows.push((
            "bytes per user byte",
            format!(
                "{} (process), {} (device, whoever wrote); user {}",
                ratio(self.process_bytes_per_user_byte),
                ratio(self.device_bytes_per_user_byte),
                human_bytes(self.costs.user_bytes)
            ),
        ));
        let settled = if self.costs.settled { "settled" } else { "NOT settled" };
        rows.push((
            "space / live data",
            format!(
                "peak {:.2}, end {:.2}, {settled} {:.2} after {:.1} s (live {})",
                self.costs.space_peak_ratio,
                self.costs.space_end_ratio,
                self.costs.space_settled_ratio,
                self.costs.settle_seconds,
                human_bytes(self.costs.live_bytes)
            ),
        ));
        rows.push((
            "cpu, memory",
            format!(
                "{:.2} s ({} for each operation), peak {}",
                self.costs.cpu_seconds,
                human_us(self.costs.cpu_us_per_op),
                human_bytes(self.costs.rss_peak_bytes)
            ),
        ));
    }
}

fn text(rows: Vec<(&str, String)>) -> String {
    let mut out = String::new();
    for (name, value) in rows {
        let _ = writeln!(out, "{name:<20} {value}");
    }
    out
}

fn times(l: &Latency) -> String {
    format!(
        "P50 {}   P90 {}   P99 {}   P99.9 {}   max {}",
        human_us(l.p50_us),
        human_us(l.p90_us),
        human_us(l.p99_us),
        human_us(l.p999_us),
        human_us(l.max_us)
    )
}

fn work(o: &BenchArgs) -> String {
    let tail = &o.tail;
    let families =
        if tail.families == 1 { "1 family".to_owned() } else { format!("{} families", tail.families) };
    format!(
        "{} keys of {} B in {families}, values {} B, {}, {} % reads, {} clients, {}{}{}",
        human_count(o.keys()),
        o.key_size,
        o.sizes(),
        name(o.distribution),
        (tail.read_share * 1000.0).round() / 10.0,
        o.threads(),
        name(tail.clients),
        tail.burst.map_or(String::new(), |burst| format!(
            ", in bursts of {burst} with {} s between them",
            tail.idle_seconds()
        )),
        if o.sync { ", every write durable" } else { "" },
    )
}

#[cfg(test)]
mod tests;
