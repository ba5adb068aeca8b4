//! Counters by merge operands, beside RocksDB: alternating runs.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, NamedFigure, figures};
use bench::args::Workload;
use bench::counters::CountersReport;
use bench::report::human_us;
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::Path;

/// Options of a comparison of counters.
#[derive(Args)]
pub struct CountersCompareArgs {
    /// Engines in order, of lavastore and rocksdb; ratios are those of the first over each other one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lavastore,rocksdb")]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<CountersReport>; 4] = [
    ("operations_per_s", |r| Some(r.operations_per_s)),
    ("increment_p50_us", |r| Some(r.increment.p50_us)),
    ("increment_p99_us", |r| Some(r.increment.p99_us)),
    ("read_p50_us", |r| Some(r.read.p50_us)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::counters::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &CountersCompareArgs) -> Result<()> {
    let pairs = args.run.pairs_of(Workload::Counters)?;
    let comparison = Comparison {
        child: "counters-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: figures(&FIGURES),
        engine_of: |report: &CountersReport| &report.engine,
        text: row,
    };
    comparison.run(&pairs, &BenchArgs { pairs: None, ..args.run.bench.clone() })
}

fn row(r: &CountersReport) -> String {
    format!(
        "{:<30} {:>8.0} operations/s  increment P50 {} P99 {}  read P50 {}  scan {:.2} s",
        r.engine,
        r.operations_per_s,
        human_us(r.increment.p50_us),
        human_us(r.increment.p99_us),
        human_us(r.read.p50_us),
        r.scan_s,
    )
}
