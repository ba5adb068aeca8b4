//! Many keys in one call beside RocksDB's `MultiGet` with `async_io`: alternating runs, each beside the device's own random reads.
//!
//! The RocksDB of `setup` knows no io_uring, so its `async_io` reads as threads do; one that does is linked by putting it in its place.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, NamedFigure, figures};
use bench::args::Workload;
use bench::multi_get::MultiGetReport;
use bench::report::human_us;
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::Path;

/// Options of a comparison of calls with many keys.
#[derive(Args)]
pub struct MultiGetCompareArgs {
    /// Engines in order; ratios are those of the first over each other one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lavastore,rocksdb,blobdb")]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<MultiGetReport>; 5] = [
    ("multi_get_per_s", |r| Some(r.multi_get.median_per_s)),
    ("multi_get_p50_us", |r| Some(r.multi_get.calls.p50_us)),
    ("multi_get_p99_us", |r| Some(r.multi_get.calls.p99_us)),
    ("get_per_s", |r| Some(r.get.median_per_s)),
    ("call_over_device", |r| Some(r.call_over_device)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::multi_get::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &MultiGetCompareArgs) -> Result<()> {
    let pairs = args.run.pairs_of(Workload::MultiGet)?;
    let comparison = Comparison {
        child: "multi-get-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: figures(&FIGURES),
        engine_of: |report: &MultiGetReport| &report.engine,
        text: row,
    };
    // The rounds of a run are as many as the benchmark says.
    comparison.run(&pairs, &BenchArgs { pairs: None, ..args.run.bench.clone() })
}

fn row(r: &MultiGetReport) -> String {
    format!(
        "{:<30} device {:>7.0}/s  calls of {} {:>7.0} keys/s, P50 {} P99 {}, {:.2} of {} over the device's rate  single gets {:>6.0}/s",
        r.engine,
        r.device.median_per_s,
        r.keys_per_call,
        r.multi_get.median_per_s,
        human_us(r.multi_get.calls.p50_us),
        human_us(r.multi_get.calls.p99_us),
        r.call_over_device,
        r.keys_per_call,
        r.get.median_per_s,
    )
}
