//! Alternating runs of several engines: A B A B …, each in a process of its own and, if it writes, in a fresh directory.
//! Runs that only read share one store for each engine, which the first of them loads.

mod summary;

use crate::EngineName;
use crate::pairs::{BenchPairArgs, CLAIM_PAIRS};
use bench::host::WorkDir;
use bench::report::{human_bytes, human_us};
use bench::{BenchArgs, Report, Result};
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Options of a comparison.
#[derive(Args)]
pub struct CompareArgs {
    /// Engines in order; ratios are those of the first over each other one [default: all; without blobdb and fjall, which
    /// are here for separated values, if values are shorter than --min-blob-size]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

/// How a figure is printed.
type Show = fn(f64) -> String;

/// A figure of the summary: name, how to get it, how to show it.
type Figure = (&'static str, fn(&Report) -> Option<f64>, Show);

/// The figures of the summary.
fn figures() -> Vec<Figure> {
    let plain: Show = |x| if x >= 100.0 { format!("{x:.0}") } else { format!("{x:.2}") };
    let time: Show = human_us;
    let bytes: Show = |x| human_bytes(x as u64);
    vec![
        ("ops_per_s", |r| Some(r.ops_per_s), plain),
        ("mb_per_s", |r| Some(r.mb_per_s), plain),
        ("mb_per_s_settled", |r| Some(r.mb_per_s_settled), plain),
        ("p50", |r| Some(r.p50_us), time),
        ("p99", |r| Some(r.p99_us), time),
        ("p99.9", |r| Some(r.p999_us), time),
        ("max", |r| Some(r.max_us), time),
        ("write_amplification", |r| r.write_amplification, plain),
        ("device_write_amplification", |r| r.device_write_amplification, plain),
        ("space_peak_ratio", |r| Some(r.costs.space_peak_ratio), plain),
        ("space_end_ratio", |r| Some(r.costs.space_end_ratio), plain),
        ("space_settled_ratio", |r| Some(r.costs.space_settled_ratio), plain),
        ("reads_per_get", |r| r.reads_per_get, plain),
        ("stall_windows_100ms", |r| Some(r.stall_windows_100ms as f64), plain),
        ("longest_without_progress", |r| Some(r.longest_without_progress_ms as f64 * 1e3), time),
        ("seconds_stalled", |r| r.seconds_stalled, plain),
        ("process_bytes_read", |r| Some(r.costs.process_bytes_read as f64), bytes),
        ("settle_seconds", |r| Some(r.costs.settle_seconds), plain),
        ("writer_p99", |r| r.latency.get("writer").map(|l| l.p99_us), time),
        ("limit_wait_seconds", |r| r.limit.as_ref()?.limit_wait_seconds, plain),
        ("limit_breaches", |r| Some(r.limit.as_ref()?.limit_breaches as f64), plain),
        ("idle_bytes_written", |r| Some(r.idle.as_ref()?.idle_bytes_written as f64), bytes),
        ("idle_bytes_read", |r| Some(r.idle.as_ref()?.idle_bytes_read as f64), bytes),
        ("cpu_seconds", |r| Some(r.costs.cpu_seconds), plain),
        ("cpu_per_op", |r| Some(r.costs.cpu_us_per_op), time),
        ("rss_peak", |r| Some(r.costs.rss_peak_bytes as f64), bytes),
    ]
}

impl CompareArgs {
    fn engines(&self) -> Vec<EngineName> {
        use EngineName::{Blobdb, Fjall, Lavastore, Rocksdb};
        let separated =
            self.run.bench.min_blob_size > 0 && self.run.bench.sizes().max() >= self.run.bench.min_blob_size;
        match (self.engines.is_empty(), separated) {
            (false, _) => self.engines.clone(),
            (true, true) => vec![Lavastore, Rocksdb, Blobdb, Fjall],
            (true, false) => vec![Lavastore, Rocksdb],
        }
    }
}

/// What was found of one engine.
struct Runs {
    engine: EngineName,
    reports: Vec<Report>,
    /// The store that runs share if they only read.
    shared: Option<Place>,
}

/// Where a store is.
struct Place {
    store: WorkDir,
    /// Where its log is, on a second disk.
    log: Option<WorkDir>,
}

impl Place {
    fn fresh(args: &CompareArgs) -> Result<Place> {
        let log = args.run.bench.requests.log_dir.as_deref().map(WorkDir::fresh).transpose()?;
        Ok(Place { store: WorkDir::fresh(&args.run.dir)?, log })
    }
}

/// Runs the comparison and prints it.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let all = measure(args)?;
    let Some(file) = &args.run.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&all)? + "\n";
    std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()).into())
}

/// Runs the comparison, prints it, and returns all that was found.
pub fn measure(args: &CompareArgs) -> Result<serde_json::Value> {
    args.run.bench.check()?;
    let pairs = args.run.bench.pairs.map_or(CLAIM_PAIRS, |pairs| pairs as usize);
    println!("options: {}", serde_json::to_string(&args.run.bench.resolved())?);
    println!("machine: {}", bench::host::machine());
    let runs = |engine| Runs { engine, reports: Vec::new(), shared: None };
    let mut all: Vec<Runs> = args.engines().into_iter().map(runs).collect();
    for pair in 1..=pairs {
        for runs in &mut all {
            let report = one_run(args, runs)?;
            print_run(pair, &report);
            runs.reports.push(report);
        }
    }
    check_same_work(args, &all)?;
    println!();
    for report in all.iter().filter_map(|r| r.reports.first()) {
        let settings: Vec<String> = report.engine_settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        println!("settings of {}: {}", report.engine, settings.join(", "));
    }
    println!();
    let summary = summary::summarize(&all, &figures());
    if pairs < CLAIM_PAIRS {
        println!("smoke run: fewer than {CLAIM_PAIRS} pairs are not a claim");
    }
    let runs: Vec<&Vec<Report>> = all.iter().map(|r| &r.reports).collect();
    Ok(json!({ "options": args.run.bench.resolved(), "pairs": pairs, "summary": summary, "runs": runs }))
}

/// One run in a child process. What earlier runs left dirty is written back first.
fn one_run(args: &CompareArgs, runs: &mut Runs) -> Result<Report> {
    let fresh;
    let reuse = runs.shared.is_some();
    let dir = if args.run.bench.only_reads() {
        match runs.shared.take() {
            Some(dir) => runs.shared.insert(dir),
            None => runs.shared.insert(Place::fresh(args)?),
        }
    } else {
        fresh = Place::fresh(args)?;
        &fresh
    };
    let store = dir.store.path().join("store");
    let out = dir.store.path().join("report.json");
    std::fs::create_dir_all(&store).map_err(|e| format!("cannot create {}: {e}", store.display()))?;
    rustix::fs::sync();
    let mut bench = BenchArgs { reuse, ..args.run.bench.clone() };
    bench.requests.log_dir = dir.log.as_ref().map(|log| log.path().join("log"));
    let status = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(runs.engine.name())
        .args([&store, &out])
        .arg(serde_json::to_string(&bench)?)
        .status()?;
    if !status.success() {
        return Err(format!("the run of {} failed ({status})", runs.engine.name()).into());
    }
    Ok(serde_json::from_str(&read(&out)?)?)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()).into())
}

fn print_run(pair: usize, r: &Report) {
    let wa = r.write_amplification.map_or("-".to_owned(), |x| format!("{x:.2}"));
    let reads = r.reads_per_get.map_or(String::new(), |x| format!("  {x:.2} reads/get"));
    println!(
        "pair {pair}  {:<22} {:>8.0} ops/s {:>7.1} MB/s  P50 {:>8}  P99 {:>8}  P99.9 {:>8}  WA {wa}  space {:.2}/{:.2}/{:.2}{reads}  \
         longest pause {} ms  ({:.0} s load, {:.0} s run, {:.0} s settle{})",
        r.engine,
        r.ops_per_s,
        r.mb_per_s,
        human_us(r.p50_us),
        human_us(r.p99_us),
        human_us(r.p999_us),
        r.costs.space_peak_ratio,
        r.costs.space_end_ratio,
        r.costs.space_settled_ratio,
        r.longest_without_progress_ms,
        r.load_seconds,
        r.seconds,
        r.costs.settle_seconds,
        if r.costs.settled { "" } else { ", NOT settled" },
    );
    if let Some(limit) = r.limit.as_ref().filter(|limit| limit.limit_gave_up) {
        println!(
            "        GAVE UP after {} operations: the space did not come down below its limit of {}",
            r.ops,
            human_bytes(limit.limit_bytes)
        );
    }
    if r.costs.suspended_seconds > 0.0 {
        println!(
            "        the process was stopped for {:.1} s: its times are void",
            r.costs.suspended_seconds
        );
    }
}

/// All runs must have done the same operations, unless time cut them short, or a limit that they could not keep.
fn check_same_work(args: &CompareArgs, all: &[Runs]) -> Result<()> {
    let whole = |r: &&Report| r.limit.as_ref().is_none_or(|limit| !limit.limit_gave_up);
    let reports = all.iter().flat_map(|r| &r.reports).filter(whole);
    let mut hashes: Vec<&str> = reports.map(|r| r.ops_hash.as_str()).collect();
    hashes.dedup();
    match hashes.as_slice() {
        [] => println!("no run did all of its operations"),
        [hash] => println!("every run did the same operations (hash {hash})"),
        _ if args.run.bench.seconds.is_some() => {
            println!("runs were cut by time, so their operations differ in number")
        }
        _ => return Err("the runs did different operations".into()),
    }
    Ok(())
}
