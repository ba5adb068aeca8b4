//! A queue on keys in the order of arrival, beside other engines: alternating runs.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, NamedFigure, figures};
use bench::args::Workload;
use bench::queue::QueueReport;
use bench::report::human_us;
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::Path;

/// Options of a comparison of queues.
#[derive(Args)]
pub struct QueueCompareArgs {
    /// Engines in order; ratios are those of the first over each other one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lavastore,rocksdb,fjall")]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<QueueReport>; 5] = [
    ("pops_per_s", |r| Some(r.pops_per_s)),
    ("pops_per_s_min", |r| Some(r.pops_per_s_min)),
    ("first_p50_us", |r| Some(r.first.p50_us)),
    ("first_p99_us", |r| Some(r.first.p99_us)),
    ("file_bytes", |r| Some(r.file_bytes as f64)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::queue::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &QueueCompareArgs) -> Result<()> {
    let pairs = args.run.pairs_of(Workload::Queue)?;
    let comparison = Comparison {
        child: "queue-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: figures(&FIGURES),
        engine_of: |report: &QueueReport| &report.engine,
        text: row,
    };
    comparison.run(&pairs, &BenchArgs { pairs: None, ..args.run.bench.clone() })
}

fn row(r: &QueueReport) -> String {
    format!(
        "{:<30} {:>8.0} elements/s (a second: {:.0} to {:.0})  first element P50 {} P99 {}  {:.1} MB",
        r.engine,
        r.pops_per_s,
        r.pops_per_s_min,
        r.pops_per_s_max,
        human_us(r.first.p50_us),
        human_us(r.first.p99_us),
        r.file_bytes as f64 / 1e6,
    )
}
