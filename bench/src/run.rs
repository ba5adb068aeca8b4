//! One run, from an empty directory to a report.

use crate::args::{BenchArgs, Workload};
use crate::drive::{OpenLoop, Pace, drive};
use crate::engine::{Engine, EngineSettings, Opener, Phase};
use crate::host::{self, DeviceCounters, ProcessCounters, now_ns};
use crate::record::{Kind, Merged, Recorder, merge};
use crate::report::{Latency, Report};
use crate::workload::{Role, Space, Stream};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long the background may take to become idle.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Puts in one batch while loading.
const LOAD_BATCH: u64 = 64;
/// Between two looks at the space on disk.
const SAMPLE_NS: u64 = 100_000_000;

/// Makes one run in `dir` and returns its report. The directory is the caller's to remove.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<Report> {
    args.check()?;
    let space = Space::new(args);
    let settings = EngineSettings::of(args);
    let load_start_ns = now_ns();
    let mut engine = opener.open(dir, &settings)?;
    if args.workload != Workload::Load && !args.reuse {
        load(args, &space, engine.as_ref())?;
    }
    if matches!(args.workload, Workload::Read | Workload::Readwhilewriting | Workload::Scan) {
        engine.close()?;
        engine = opener.open(dir, &settings)?;
        engine.phase(Phase::Read);
        warm_up(args, &space, engine.as_ref())?;
    }
    let load_ns = now_ns() - load_start_ns;
    let measured = measure(args, &space, engine.as_ref(), dir)?;
    let engine_stats = engine.stats().into_iter().collect();
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    let mut report = measured.report(args, opener.name());
    report.load_seconds = load_ns as f64 / 1e9;
    report.rss_peak_bytes = host::process_counters().rss_peak_bytes;
    report.engine_stats = engine_stats;
    report.engine_settings = engine_settings;
    Ok(report)
}

/// A pace without limits.
fn unpaced(args: &BenchArgs, batch: u64, durable: bool) -> Pace {
    Pace { start_ns: now_ns(), end_ns: u64::MAX, open: None, batch, scan_length: args.scan_length, durable }
}

fn load(args: &BenchArgs, space: &Space, engine: &dyn Engine) -> Result<()> {
    engine.phase(Phase::Load);
    let stream = Stream::new(space, Role::Load, Kind::Put, args.num, 0, 1);
    drive(engine, stream, unpaced(args, LOAD_BATCH, false), &AtomicBool::new(false))?;
    engine.phase(Phase::Settle);
    engine.flush()?;
    engine.settle(SETTLE_MAX)?;
    Ok(())
}

fn warm_up(args: &BenchArgs, space: &Space, engine: &dyn Engine) -> Result<()> {
    let stream = Stream::new(space, Role::Warmup, client_kind(args), args.ops() / 10, 0, 1);
    let pace = Pace { end_ns: now_ns() + 20_000_000_000, ..unpaced(args, 1, false) };
    drive(engine, stream, pace, &AtomicBool::new(false)).map(|_| ())
}

fn client_kind(args: &BenchArgs) -> Kind {
    match args.workload {
        Workload::Load | Workload::Overwrite => Kind::Put,
        Workload::Read | Workload::Readwhilewriting => Kind::Get,
        Workload::Scan => Kind::Scan,
    }
}

/// Everything seen between the first operation and settled.
struct Measured {
    clients: Merged,
    writer: Option<Merged>,
    seconds: f64,
    settle_seconds: f64,
    settled: bool,
    before: Counters,
    after: Counters,
    space_peak_bytes: u64,
    space_end_bytes: u64,
    space_settled_bytes: u64,
}

/// Counters at one moment.
#[derive(Clone, Copy)]
struct Counters {
    process: ProcessCounters,
    device: Option<DeviceCounters>,
    get_reads: Option<u64>,
}

impl Counters {
    fn now(engine: &dyn Engine, dir: &Path) -> Self {
        Counters {
            process: host::process_counters(),
            device: host::device_counters(dir),
            get_reads: engine.get_device_reads(),
        }
    }
}

fn measure(args: &BenchArgs, space: &Space, engine: &dyn Engine, dir: &Path) -> Result<Measured> {
    let reading = client_kind(args) != Kind::Put;
    engine.phase(if reading { Phase::Read } else { Phase::Write });
    let before = Counters::now(engine, dir);
    let sampler_stop = AtomicBool::new(false);
    let peak = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Threads of a scope may borrow the engine; the benchmark never runs in simulation.
        let sampler = scope.spawn(|| sample_space(dir, &peak, &sampler_stop));
        let outcome = measure_phases(args, space, engine, dir);
        sampler_stop.store(true, Ordering::Relaxed);
        let _ = sampler.join();
        let phases = outcome?;
        let peak = peak.load(Ordering::Relaxed).max(phases.space_end_bytes).max(phases.space_settled_bytes);
        Ok(Measured { before, space_peak_bytes: peak, ..phases })
    })
}

fn sample_space(dir: &Path, peak: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        peak.fetch_max(host::allocated_bytes(dir), Ordering::Relaxed);
        host::wait_until(now_ns() + SAMPLE_NS);
    }
}

/// The operations, then settling. `before` and the peak are filled in by the caller.
fn measure_phases(args: &BenchArgs, space: &Space, engine: &dyn Engine, dir: &Path) -> Result<Measured> {
    let start_ns = now_ns();
    let (clients, writer) = operate(args, space, engine, start_ns)?;
    let end_ns = now_ns();
    let space_end_bytes = host::allocated_bytes(dir);
    let at_end = Counters::now(engine, dir);
    engine.phase(Phase::Settle);
    let wrote = client_kind(args) == Kind::Put || writer.is_some();
    let settled = if wrote && !args.no_settle { engine.settle(SETTLE_MAX)? } else { true };
    let settle_seconds = (now_ns() - end_ns) as f64 / 1e9;
    let mut after = Counters::now(engine, dir);
    // Settling reads for compaction; the calls that gets made are those until the last operation.
    after.process.read_calls = at_end.process.read_calls;
    Ok(Measured {
        clients,
        writer,
        seconds: (end_ns - start_ns) as f64 / 1e9,
        settle_seconds,
        settled,
        before: at_end,
        after,
        space_peak_bytes: 0,
        space_end_bytes,
        space_settled_bytes: host::allocated_bytes(dir),
    })
}

/// Runs the clients, and the extra writer as long as they run.
fn operate(
    args: &BenchArgs,
    space: &Space,
    engine: &dyn Engine,
    start_ns: u64,
) -> Result<(Merged, Option<Merged>)> {
    let kind = client_kind(args);
    let role = if args.workload == Workload::Load { Role::Load } else { Role::Client };
    let end_ns = args.seconds.map_or(u64::MAX, |s| start_ns + (s * 1e9) as u64);
    let stop = AtomicBool::new(false);
    let writer_stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..args.threads)
            .map(|thread| {
                let stream = Stream::new(space, role, kind, args.ops(), thread, args.threads);
                let open = args.rate.map(|rate| OpenLoop::share(rate, thread, args.threads));
                let pace = Pace { start_ns, end_ns, open, ..unpaced(args, args.batch, true) };
                let stop = &stop;
                // A client that fails stops the others.
                scope.spawn(move || {
                    drive(engine, stream, pace, stop).inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let writer = (args.writer_mb_per_s() > 0.0).then(|| {
            let stream = Stream::new(space, Role::Writer, Kind::Put, u64::MAX, 0, 1);
            let bytes = space.sizes.mean() + args.key_size as f64;
            let open = Some(OpenLoop::share(args.writer_mb_per_s() * 1e6 / bytes, 0, 1));
            let pace = Pace { start_ns, open, ..unpaced(args, 1, true) };
            let writer_stop = &writer_stop;
            scope.spawn(move || drive(engine, stream, pace, writer_stop))
        });
        let clients: Vec<Result<Recorder>> = clients.into_iter().map(|c| join(c.join())).collect();
        writer_stop.store(true, Ordering::Relaxed);
        let writer = writer.map(|w| join(w.join())).transpose()?;
        let clients: Vec<Recorder> = clients.into_iter().collect::<Result<_>>()?;
        Ok((merge(&clients), writer.map(|w| merge(&[w]))))
    })
}

fn join(outcome: std::thread::Result<Result<Recorder>>) -> Result<Recorder> {
    outcome.unwrap_or_else(|_| Err(Error::from("a client thread panicked")))
}

impl Measured {
    fn reads_per_get(&self, args: &BenchArgs) -> Option<f64> {
        if client_kind(args) != Kind::Get || self.clients.ops == 0 {
            return None;
        }
        let counted = match (self.before.get_reads, self.after.get_reads) {
            (Some(before), Some(after)) => after - before,
            // Without a counter of the engine: all reads of the process, as long as nothing else reads.
            _ if args.workload == Workload::Read => {
                self.after.process.read_calls - self.before.process.read_calls
            }
            _ => return None,
        };
        Some(counted as f64 / self.clients.ops as f64)
    }

    fn user_bytes(&self, args: &BenchArgs) -> u64 {
        let clients = if client_kind(args) == Kind::Put { self.clients.bytes } else { 0 };
        clients + self.writer.as_ref().map_or(0, |w| w.bytes)
    }

    fn report(&self, args: &BenchArgs, engine: String) -> Report {
        let (process, old) = (self.after.process, self.before.process);
        let device = self.after.device.zip(self.before.device);
        let device_bytes_written = device.map(|(new, old)| new.write_bytes - old.write_bytes);
        let process_bytes_written = process.write_bytes - old.write_bytes;
        let user_bytes = self.user_bytes(args);
        let amplification = |bytes: u64| (user_bytes > 0).then(|| bytes as f64 / user_bytes as f64);
        let live_bytes = args.live_bytes();
        let ratio = |bytes: u64| bytes as f64 / live_bytes as f64;
        let main = Latency::of(&self.clients.latency_ns);
        let mut latency = BTreeMap::from([(client_kind(args).name().to_owned(), main.clone())]);
        if let Some(writer) = &self.writer {
            latency.insert("writer".to_owned(), Latency::of(&writer.latency_ns));
        }
        Report {
            engine,
            workload: serde_json::to_value(args.workload)
                .ok()
                .and_then(|w| w.as_str().map(str::to_owned))
                .unwrap_or_default(),
            ops: self.clients.ops,
            seconds: self.seconds,
            ops_per_s: self.clients.ops as f64 / self.seconds,
            mb_per_s: self.clients.bytes as f64 / 1e6 / self.seconds,
            mb_per_s_settled: self.clients.bytes as f64 / 1e6 / (self.seconds + self.settle_seconds),
            p50_us: main.p50_us,
            p99_us: main.p99_us,
            p999_us: main.p999_us,
            max_us: main.max_us,
            user_bytes,
            process_bytes_written,
            process_bytes_cancelled: process.cancelled_write_bytes - old.cancelled_write_bytes,
            process_bytes_read: process.read_bytes - old.read_bytes,
            device_bytes_written,
            device_bytes_read: device.map(|(new, old)| new.read_bytes - old.read_bytes),
            write_amplification: amplification(process_bytes_written),
            device_write_amplification: device_bytes_written.and_then(amplification),
            live_bytes,
            space_peak_ratio: ratio(self.space_peak_bytes),
            space_end_ratio: ratio(self.space_end_bytes),
            space_settled_ratio: ratio(self.space_settled_bytes),
            reads_per_get: self.reads_per_get(args),
            stall_windows_100ms: self.clients.stalls.windows,
            stall_longest_windows: self.clients.stalls.longest,
            cpu_seconds: (process.cpu_ns - old.cpu_ns) as f64 / 1e9,
            rss_peak_bytes: 0,
            load_seconds: 0.0,
            settle_seconds: self.settle_seconds,
            settled: self.settled,
            ops_hash: format!("{:016x}", self.clients.hash),
            latency,
            machine: host::machine(),
            options: args.clone(),
            engine_settings: BTreeMap::new(),
            engine_stats: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests;
