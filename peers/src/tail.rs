//! Latencies under load beside other engines: the rate that RocksDB sustains is found first, then every engine gets the same
//! requests at the same part of it, in alternating runs.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, Figure, NamedFigure, figures};
use bench::args::Workload;
use bench::report::{Latency, human_us};
use bench::tail::bursts::BurstReport;
use bench::tail::{TailArgs, TailReport, TailRuns};
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::Path;

/// Whose rate it is.
const REFERENCE: EngineName = EngineName::Rocksdb;

/// Options of a comparison of latencies under load.
#[derive(Args)]
pub struct TailCompareArgs {
    /// Engines in order; ratios are those of the first over each other one
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "lavastore,rocksdb,rocksdb-io,rocksdb-small,fjall"
    )]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<TailReport>; 19] = [
    ("ops_per_s", |r| Some(r.ops_per_s)),
    ("ops_over_sustained", |r| Some(r.ops_over_sustained)),
    ("write_p50_us", |r| Some(r.write.p50_us)),
    ("write_p90_us", |r| Some(r.write.p90_us)),
    ("write_p99_us", |r| Some(r.write.p99_us)),
    ("write_p999_us", |r| Some(r.write.p999_us)),
    ("write_max_us", |r| Some(r.write.max_us)),
    ("read_p50_us", |r| Some(r.read.p50_us)),
    ("read_p99_us", |r| Some(r.read.p99_us)),
    ("read_p999_us", |r| Some(r.read.p999_us)),
    ("read_max_us", |r| Some(r.read.max_us)),
    ("stall_windows_100ms", |r| Some(r.stall_windows_100ms as f64)),
    ("longest_without_progress_ms", |r| Some(r.longest_without_progress_ms as f64)),
    ("burst_achieved_per_s", |r| of_bursts(r, |burst| burst.achieved_per_s)),
    ("burst_longest_wait_ms", |r| of_bursts(r, |burst| burst.longest_wait_ms)),
    ("process_bytes_per_user_byte", |r| r.process_bytes_per_user_byte),
    ("device_bytes_per_user_byte", |r| r.device_bytes_per_user_byte),
    ("space_peak_ratio", |r| Some(r.costs.space_peak_ratio)),
    ("cpu_us_per_op", |r| Some(r.costs.cpu_us_per_op)),
];

/// The mean of all bursts; nothing if there are none.
fn of_bursts(report: &TailReport, of: fn(&BurstReport) -> f64) -> Option<f64> {
    let count = report.bursts.len();
    (count > 0).then(|| report.bursts.iter().map(of).sum::<f64>() / count as f64)
}

/// The figures of each load; what they are called says which, if there are several.
fn of_each_load(loads: &[f64]) -> Vec<Figure<TailRuns>> {
    let of_load = |(at, load): (usize, &f64)| {
        let (load, is_one) = (*load, loads.len() == 1);
        figures(&FIGURES).into_iter().map(move |Figure { name, of }| Figure {
            name: if is_one { name } else { format!("{name} at {load} %") },
            of: Box::new(move |runs: &TailRuns| of(runs.points.get(at)?)),
        })
    };
    loads.iter().enumerate().flat_map(of_load).collect()
}

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let runs = bench::tail::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&runs)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &TailCompareArgs) -> Result<()> {
    let (pairs, bench) = (args.run.pairs_of(Workload::Tail)?, &args.run.bench);
    let comparison = Comparison {
        child: "tail-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: of_each_load(&bench.tail.loads().iter().collect::<Vec<_>>()),
        engine_of: |runs: &TailRuns| runs.points.first().map_or("", |report| &report.engine),
        text: |runs: &TailRuns| runs.points.iter().map(row).collect::<Vec<_>>().join("\n        "),
    };
    let rate = match bench.rate {
        Some(rate) => rate,
        None => {
            let tail = TailArgs { only_find: true, ..bench.tail.clone() };
            let found =
                comparison.one_run(&pairs, &REFERENCE.name(), &BenchArgs { tail, ..bench.clone() })?;
            let found = found.points.first().ok_or("the run has no report")?;
            println!("{} sustains {:.0} operations a second", found.engine, found.sustained_per_s);
            found.sustained_per_s
        }
    };
    comparison.run(&pairs, &BenchArgs { rate: Some(rate), ..bench.clone() })
}

fn row(r: &TailReport) -> String {
    let times = |l: &Latency| match l.count {
        0 => "none".to_owned(),
        _ => format!(
            "P50 {} P99 {} P99.9 {} max {}",
            human_us(l.p50_us),
            human_us(l.p99_us),
            human_us(l.p999_us),
            human_us(l.max_us)
        ),
    };
    let ratio = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
    let device = r.device_write.as_ref().map_or("-".to_owned(), |l| human_us(l.max_us));
    let synced = r.device_sync.as_ref().map_or("-".to_owned(), |l| human_us(l.max_us));
    let bursts: Vec<String> =
        r.bursts.iter().map(|burst| format!("\n        burst: {}", burst.text())).collect();
    let load = match r.load_percent() {
        0.0 => format!("{:.2} of what is sustained", r.ops_over_sustained),
        load => format!("at {load} %"),
    };
    format!(
        "{:<30} {load}: {:.0}/s due, {:.0}/s done{}  writes {}  reads {}  longest pause {} ms, {} windows  bytes {} (device {})  space {:.2}  \
         device's longest write {device}, synced {synced}  waits {}{}",
        r.engine,
        r.rate_per_s,
        r.ops_per_s,
        if r.kept_up { "" } else { ", FELL BEHIND" },
        times(&r.write),
        times(&r.read),
        r.longest_without_progress_ms,
        r.stall_windows_100ms,
        ratio(r.process_bytes_per_user_byte),
        ratio(r.device_bytes_per_user_byte),
        r.costs.space_peak_ratio,
        r.waits(),
        bursts.concat(),
    )
}
