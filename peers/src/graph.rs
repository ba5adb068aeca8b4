//! A social graph with the mix of LinkBench, beside RocksDB: alternating runs.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, NamedFigure, figures};
use bench::args::Workload;
use bench::graph::GraphReport;
use bench::report::human_us;
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::Path;

/// Options of a comparison of graphs.
#[derive(Args)]
pub struct GraphCompareArgs {
    /// Engines in order, of lavastore and rocksdb; ratios are those of the first over each other one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lavastore,rocksdb")]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<GraphReport>; 5] = [
    ("operations_per_s", |r| Some(r.operations_per_s)),
    ("latency_p50_us", |r| Some(r.latency.p50_us)),
    ("latency_p99_us", |r| Some(r.latency.p99_us)),
    ("list_p50_us", |r| Some(r.list_latency.p50_us)),
    ("list_p99_us", |r| Some(r.list_latency.p99_us)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::graph::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &GraphCompareArgs) -> Result<()> {
    let pairs = args.run.pairs_of(Workload::Graph)?;
    let comparison = Comparison {
        child: "graph-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: figures(&FIGURES),
        engine_of: |report: &GraphReport| &report.engine,
        text: row,
    };
    comparison.run(&pairs, &BenchArgs { pairs: None, ..args.run.bench.clone() })
}

fn row(r: &GraphReport) -> String {
    format!(
        "{:<30} {:>8.0} operations/s  P50 {} P99 {}  list P50 {} P99 {}",
        r.engine,
        r.operations_per_s,
        human_us(r.latency.p50_us),
        human_us(r.latency.p99_us),
        human_us(r.list_latency.p50_us),
        human_us(r.list_latency.p99_us),
    )
}
