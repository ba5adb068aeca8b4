//! A run, from an empty directory to a report.

use crate::args::{BenchArgs, Workload};
use crate::costs::{Around, Counters, SETTLE_MAX};
use crate::drive::{OpenLoop, Pace, drive};
use crate::engine::{Engine, EngineSettings, Opener, Phase};
use crate::flight;
use crate::host::{self, StopOnDrop, now_ns, wait_until};
use crate::kernel_reads::KernelReads;
use crate::limit::{Throttle, Watch};
use crate::phases::PhaseReport;
use crate::record::{Kind, Merged, OfKind, Recorder, SLOT_NS, merge};
use crate::report::{Idle, Latency, LimitKept, Report};
use crate::space;
use crate::workload::{KeySpace, Role, Stream};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts per batch of the load.
pub(crate) const LOAD_BATCH: u64 = 64;

/// Makes a run in `dir` and returns its report. The caller removes the directory.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<Report> {
    args.check()?;
    if matches!(
        args.workload,
        Workload::Contract
            | Workload::Ablation
            | Workload::Tail
            | Workload::MultiGet
            | Workload::Queue
            | Workload::Graph
            | Workload::Counters
            | Workload::Transactions
    ) {
        return Err("the workloads contract, ablation, tail, multi-get, queue, graph, counters and transactions run only by \
                    `lava bench`"
            .into());
    }
    let space = KeySpace::new(args);
    let settings = EngineSettings::of(args)?;
    let load_start_ns = now_ns();
    let mut engine = opener.open(dir, &settings)?;
    if args.workload != Workload::Load && !args.reuse {
        load(args, &space, engine.as_ref())?;
    }
    if args.client_kind() != Kind::Put || args.workload == Workload::Ycsb {
        engine = reopened(args, &space, opener, &settings, engine, dir)?;
    }
    let load_ns = now_ns() - load_start_ns;
    let measured = measure(args, &space, engine.as_ref(), dir)?;
    let idle = (args.idle_seconds > 0.0).then(|| idle(args.idle_seconds));
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    let mut report = measured.report(args, opener.name());
    report.load_seconds = load_ns as f64 / 1e9;
    report.engine_settings = engine_settings;
    report.idle = idle;
    Ok(report)
}

/// Waits without any sampling of the space, and returns the activity of the process, which is the
/// engine's own.
fn idle(seconds: f64) -> Idle {
    let before = host::process_counters();
    wait_until(now_ns() + (seconds * 1e9) as u64);
    let after = host::process_counters();
    Idle {
        idle_seconds: seconds,
        idle_bytes_written: after.write_bytes - before.write_bytes,
        idle_bytes_read: after.read_bytes - before.read_bytes,
        idle_cpu_seconds: (after.cpu_ns - before.cpu_ns) as f64 / 1e9,
    }
}

/// Reopens the store, so that only reads warm its caches.
fn reopened(
    args: &BenchArgs,
    space: &KeySpace,
    opener: &dyn Opener,
    settings: &EngineSettings,
    engine: Box<dyn Engine>,
    dir: &Path,
) -> Result<Box<dyn Engine>> {
    engine.close()?;
    let engine = opener.open(dir, settings)?;
    engine.phase(Phase::Read);
    warm_up(args, space, engine.as_ref())?;
    Ok(engine)
}

/// Loads the store, unless an existing one is reused, and reopens and warms it up.
pub(crate) fn loaded(
    args: &BenchArgs,
    space: &KeySpace,
    opener: &dyn Opener,
    dir: &Path,
) -> Result<Box<dyn Engine>> {
    let settings = EngineSettings::of(args)?;
    let engine = opener.open(dir, &settings)?;
    if !args.reuse {
        load(args, space, engine.as_ref())?;
    }
    reopened(args, space, opener, &settings, engine, dir)
}

/// Returns a schedule without limits.
pub(crate) fn unpaced(args: &BenchArgs, batch: u64, durable: bool) -> Pace {
    Pace { start_ns: now_ns(), end_ns: u64::MAX, open: None, batch, scan_length: args.scan_length, durable }
}

fn load(args: &BenchArgs, space: &KeySpace, engine: &dyn Engine) -> Result<()> {
    engine.phase(Phase::Load);
    let stream = Stream::new(space, Role::Load, Kind::Put, args.keys(), 0, 1);
    drive(engine, stream, unpaced(args, LOAD_BATCH, false), None, &AtomicBool::new(false))?;
    engine.phase(Phase::Settle);
    engine.flush()?;
    engine.settle(SETTLE_MAX)?;
    Ok(())
}

fn warm_up(args: &BenchArgs, space: &KeySpace, engine: &dyn Engine) -> Result<()> {
    let (ops, seconds) = args.warm_up();
    let kind = if args.client_kind() == Kind::Scan { Kind::Scan } else { Kind::Get };
    let stream = Stream::new(space, Role::Warmup, kind, ops, 0, 1);
    let end_ns = now_ns().saturating_add((seconds * 1e9) as u64);
    let pace = Pace { end_ns, ..unpaced(args, 1, false) };
    drive(engine, stream, pace, None, &AtomicBool::new(false)).map(|_| ())
}

/// Measurements from the first operation until settled.
struct RunMeasurements {
    clients: Merged,
    /// Reports of the phases of a changing load.
    phases: Vec<PhaseReport>,
    writer: Option<Merged>,
    seconds: f64,
    around: Around,
    limit: Option<LimitKept>,
}

fn measure(args: &BenchArgs, space: &KeySpace, engine: &dyn Engine, dir: &Path) -> Result<RunMeasurements> {
    engine.phase(if args.client_kind() == Kind::Put { Phase::Write } else { Phase::Read });
    let before = Counters::now(engine, dir);
    let watch = args.limit_bytes().map(Watch::new);
    // Takes the first sample here, since a writer must not start before it.
    watch.iter().for_each(|watch| watch.note(engine.allocated(dir).bytes));
    let throttled = watch.as_ref().filter(|_| !engine.keeps_space_limit());
    let throttle = throttled.map(|watch| Throttle::new(watch, (args.limit_patience * 1e9) as u64));
    let sampler_stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Scoped threads may borrow the engine; the benchmark never runs in simulation.
        let sampler = scope.spawn(|| space::sample(dir, engine, watch.as_ref(), &sampler_stop));
        let stop = StopOnDrop(&sampler_stop);
        let outcome = measure_phases(args, space, engine, throttle.as_ref(), dir);
        drop(stop);
        let samples = sampler
            .join()
            .map_err(|_| "the thread that samples the disk space panicked: the run has no result")?;
        let limit = watch.as_ref().map(|watch| LimitKept::of(watch, throttle.as_ref()));
        let measured = outcome?;
        Ok(RunMeasurements {
            around: Around { before, space: samples, ..measured.around },
            limit,
            ..measured
        })
    })
}

/// Runs the operations and settles. The caller fills in the counters before and the space samples.
fn measure_phases(
    args: &BenchArgs,
    space: &KeySpace,
    engine: &dyn Engine,
    throttle: Option<&Throttle>,
    dir: &Path,
) -> Result<RunMeasurements> {
    let start_ns = now_ns();
    let (mut all, mut phases, mut writer) = (Vec::new(), Vec::new(), None);
    for args in args.phases() {
        let begun_ns = if all.is_empty() { start_ns } else { now_ns() };
        let (clients, beside) = operate(&args, space, engine, throttle, (start_ns, begun_ns))?;
        if let Some(mix) = args.mix() {
            phases.push(PhaseReport::of(mix, (now_ns() - begun_ns) as f64 / 1e9, &clients));
        }
        all.extend(clients);
        writer = beside;
    }
    let clients = merge(&all);
    if args.requests.phases.is_empty() {
        phases.clear();
    }
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let around = Around::settled(engine, dir, !args.only_reads() && !args.no_settle)?;
    Ok(RunMeasurements { clients, phases, writer, seconds, around, limit: None })
}

/// Runs the clients, and the extra writer as long as they run. Records count from the first of the
/// two moments; the time limit counts from the second.
fn operate(
    args: &BenchArgs,
    space: &KeySpace,
    engine: &dyn Engine,
    throttle: Option<&Throttle>,
    (start_ns, begun_ns): (u64, u64),
) -> Result<(Vec<Recorder>, Option<Merged>)> {
    let kind = args.client_kind();
    let role = if args.workload == Workload::Load { Role::Load } else { Role::Client };
    let end_ns = args.seconds.map_or(u64::MAX, |s| begun_ns + (s * 1e9) as u64);
    let stop = AtomicBool::new(false);
    let writer_stop = AtomicBool::new(false);
    let stream_of = |thread| {
        let stream = Stream::new(space, role, kind, args.ops(), thread, args.threads());
        match args.mixture() {
            Some(mixture) => stream.mixed(mixture),
            None => stream,
        }
    };
    if let Some(depth) = args.in_flight() {
        let pace = Pace { start_ns, end_ns, ..unpaced(args, 1, true) };
        return Ok((vec![flight::drive(engine, stream_of(0), pace, depth, &stop)?], None));
    }
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..args.threads())
            .map(|thread| {
                let stream = stream_of(thread);
                let open = args.rate.map(|rate| OpenLoop::share(rate, thread, args.threads()));
                let pace = Pace { start_ns, end_ns, open, ..unpaced(args, args.batch, true) };
                let stop = &stop;
                // A failing client stops the others.
                scope.spawn(move || {
                    drive(engine, stream, pace, throttle, stop)
                        .inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let writer = (args.writer_mb_per_s() > 0.0).then(|| {
            let stream = Stream::new(space, Role::Writer, Kind::Put, u64::MAX, 0, 1);
            let bytes = space.sizes.mean() + args.key_size as f64;
            let open = Some(OpenLoop::share(args.writer_mb_per_s() * 1e6 / bytes, 0, 1));
            let pace = Pace { start_ns, open, ..unpaced(args, 1, true) };
            let writer_stop = &writer_stop;
            scope.spawn(move || drive(engine, stream, pace, throttle, writer_stop))
        });
        let clients: Vec<Result<Recorder>> = clients.into_iter().map(|c| join(c.join())).collect();
        writer_stop.store(true, Ordering::Relaxed);
        let writer = writer.map(|w| join(w.join())).transpose()?;
        let clients: Vec<Recorder> = clients.into_iter().collect::<Result<_>>()?;
        Ok((clients, writer.map(|w| merge(&[w]))))
    })
}

pub(crate) fn join<T>(outcome: std::thread::Result<Result<T>>) -> Result<T> {
    outcome
        .unwrap_or_else(|_| Err(Error::from("a client thread panicked, so the run has no result: report it")))
}

impl RunMeasurements {
    /// Returns the storage reads per get in total and by cause.
    fn reads_per_get(&self, args: &BenchArgs) -> (Option<f64>, BTreeMap<String, f64>) {
        if args.client_kind() != Kind::Get || self.clients.ops == 0 {
            return (None, BTreeMap::new());
        }
        let per_get = |reads: u64| reads as f64 / self.clients.ops as f64;
        let growth = |name: &str| self.around.growth(name);
        let cause = |name: &str| Some(name.strip_prefix("get_")?.strip_suffix("_reads")?.to_owned());
        let causes = self.around.after.engine.keys().filter(|name| *name != "get_device_reads");
        let causes = causes.filter_map(|name| Some((cause(name)?, per_get(growth(name)?)))).collect();
        let counted = growth("get_device_reads").unwrap_or(self.clients.read_calls);
        (Some(per_get(counted)), causes)
    }

    /// Returns the kernel counters of reads per get.
    fn kernel_reads(&self) -> KernelReads {
        let Around { before, after, .. } = &self.around;
        KernelReads::between(before, after, self.clients.ops, self.clients.read_calls)
    }

    /// Returns the bytes written by the clients and the extra writer.
    fn user_bytes(&self) -> u64 {
        let written =
            self.clients.kinds.iter().filter(|(kind, _)| kind.puts()).map(|(_, of_kind)| of_kind.bytes);
        written.sum::<u64>() + self.writer.as_ref().map_or(0, |w| w.bytes)
    }

    fn latencies(&self) -> BTreeMap<String, Latency> {
        let of_kind = |(kind, own): (&Kind, &OfKind)| (kind.name().to_owned(), Latency::of(&own.latency_ns));
        let mut all: BTreeMap<_, _> = self.clients.kinds.iter().map(of_kind).collect();
        if let Some(writer) = &self.writer {
            all.insert("writer".to_owned(), Latency::of(&writer.latency_ns));
        }
        all
    }

    /// Returns the space over time, each entry with the operations until the next one.
    fn timeline(&self) -> Vec<space::Space> {
        let mut timeline = self.around.space.timeline.clone();
        for (second, ops) in self.clients.by_second.iter().enumerate() {
            let next = timeline.partition_point(|space| space.seconds as usize <= second);
            if let Some(entry) = next.checked_sub(1).and_then(|at| timeline.get_mut(at)) {
                entry.ops += ops;
            }
        }
        timeline
    }

    fn report(&self, args: &BenchArgs, engine: String) -> Report {
        let costs = self.around.costs(args, self.clients.ops, self.user_bytes());
        let main = Latency::of(&self.clients.latency_ns);
        let (reads_per_get, reads_per_get_causes) = self.reads_per_get(args);
        let name = serde_json::to_value(args.workload).ok();
        Report {
            engine,
            workload: name.and_then(|w| w.as_str().map(str::to_owned)).unwrap_or_default(),
            ops: self.clients.ops,
            seconds: self.seconds,
            ops_per_s: self.clients.ops as f64 / self.seconds,
            mb_per_s: self.clients.bytes as f64 / 1e6 / self.seconds,
            mb_per_s_settled: self.clients.bytes as f64 / 1e6 / (self.seconds + costs.settle_seconds),
            p50_us: main.p50_us,
            p99_us: main.p99_us,
            p999_us: main.p999_us,
            max_us: main.max_us,
            write_amplification: costs.per_user_byte(costs.process_bytes_written),
            device_write_amplification: costs
                .device_bytes_written
                .and_then(|bytes| costs.per_user_byte(bytes)),
            costs,
            space_peak: self.around.space.peak.clone(),
            timeline: self.timeline(),
            reads_per_get,
            reads_per_get_causes,
            kernel_reads_per_get: reads_per_get.map(|_| self.kernel_reads()),
            stall_windows_100ms: self.clients.stalls.windows,
            longest_without_progress_ms: self.clients.stalls.longest_slots * SLOT_NS / 1_000_000,
            seconds_stalled: self.around.growth("stall_ns").map(|ns| ns as f64 / 1e9),
            limit: self.limit.clone(),
            idle: None,
            load_seconds: 0.0,
            ops_hash: format!("{:016x}", self.clients.hash),
            phases: self.phases.clone(),
            latency: self.latencies(),
            machine: host::machine(),
            options: args.resolved(),
            engine_settings: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests;
