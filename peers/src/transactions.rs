//! Transactions on popular keys, beside RocksDB: alternating runs.

use crate::EngineName;
use crate::pairs::{BenchPairArgs, Comparison, NamedFigure, figures};
use crate::rocks::{Rocks, Shape};
use crate::rocks_transactions::RocksTransactions;
use bench::args::Workload;
use bench::report::human_us;
use bench::transactions::TransactionsReport;
use bench::{BenchArgs, Opener, Result};
use clap::Args;
use std::path::Path;

/// Options of a comparison of transactions.
#[derive(Args)]
pub struct TransactionsCompareArgs {
    /// Engines in order, of lavastore and rocksdb; ratios are those of the first over each other one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lavastore,rocksdb")]
    engines: Vec<EngineName>,
    #[command(flatten)]
    run: BenchPairArgs,
}

const FIGURES: [NamedFigure<TransactionsReport>; 4] = [
    ("transactions_per_s", |r| Some(r.transactions_per_s)),
    ("latency_p50_us", |r| Some(r.latency.p50_us)),
    ("latency_p99_us", |r| Some(r.latency.p99_us)),
    ("repeated", |r| Some(r.repeated as f64)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let opener: Box<dyn Opener> = match engine {
        EngineName::Lavastore => Box::new(bench::lava::Lava),
        EngineName::Rocksdb => {
            let rocks = Rocks { blobs: false, shape: Shape::Tuned, flushes_replayed: true };
            Box::new(RocksTransactions { rocks, locks: args.locks })
        }
        other => {
            return Err(format!("{} has no transactions here: lavastore or rocksdb", other.name()).into());
        }
    };
    let report = bench::transactions::run(&args, opener.as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &TransactionsCompareArgs) -> Result<()> {
    let pairs = args.run.pairs_of(Workload::Transactions)?;
    let comparison = Comparison {
        child: "transactions-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: figures(&FIGURES),
        engine_of: |report: &TransactionsReport| &report.engine,
        text: row,
    };
    comparison.run(&pairs, &BenchArgs { pairs: None, ..args.run.bench.clone() })
}

fn row(r: &TransactionsReport) -> String {
    format!(
        "{:<40} {:>8.0} transactions/s  {:>8} repeated  P50 {} P99 {}",
        r.engine,
        r.transactions_per_s,
        r.repeated,
        human_us(r.latency.p50_us),
        human_us(r.latency.p99_us),
    )
}
