//! Engines under the benchmark of logs: one run, or alternating pairs.

pub mod raft;
pub mod rocks;

use crate::pairs::{Comparison, NamedFigure, PairArgs, figures};
use bench::Result;
use bench::args::name;
use bench::logs::{LogArgs, LogOpener, LogReport, LogSite, OwnEngine};
use bench::report::human_us;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::Path;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum LogEngineName {
    /// LavaLog.
    Lavalog,
    /// LavaKV with a key a record.
    Lavakv,
    /// raft-engine.
    RaftEngine,
    /// RocksDB with a key a record and recycled logs.
    Rocksdb,
}

impl LogEngineName {
    fn opener(self, args: &LogArgs) -> Box<dyn LogOpener> {
        match self {
            LogEngineName::Lavalog => OwnEngine::Lavalog.opener(LogSite::machine(), args),
            LogEngineName::Lavakv => OwnEngine::Lavakv.opener(LogSite::machine(), args),
            LogEngineName::RaftEngine => Box::new(raft::Raft { keep: args.keep }),
            LogEngineName::Rocksdb => Box::new(rocks::Rocks),
        }
    }
}

/// Options of a comparison of logs.
#[derive(Args)]
pub struct LogCompareArgs {
    /// Engines in order; ratios are those of the first over each other one [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<LogEngineName>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    bench: LogArgs,
}

const FIGURES: [NamedFigure<LogReport>; 8] = [
    ("appends_per_s", |r| Some(r.appends_per_s)),
    ("appends_per_in_place_write", |r| r.appends_per_in_place_write),
    ("p50_us", |r| Some(r.latency.p50_us)),
    ("p99_us", |r| Some(r.latency.p99_us)),
    ("p999_us", |r| Some(r.latency.p999_us)),
    ("device_bytes_per_user_byte", |r| r.device_bytes_per_user_byte),
    ("longest_without_progress_ms", |r| Some(r.longest_without_progress_ms as f64)),
    ("recovery_ms", |r| r.recovery_ms),
];

/// One run, in this process.
pub fn child(engine: LogEngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: LogArgs = serde_json::from_str(args)?;
    let report = bench::logs::run(&args, &*engine.opener(&args), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &LogCompareArgs) -> Result<()> {
    args.bench.check()?;
    let engines = match args.engines.is_empty() {
        true => LogEngineName::value_variants(),
        false => &args.engines,
    };
    let comparison = Comparison {
        child: "log-child",
        engines: engines.iter().map(|engine| name(*engine)).collect(),
        figures: figures(&FIGURES),
        engine_of: |r: &LogReport| &r.engine,
        text: row,
    };
    comparison.run(&args.pairs, &args.bench)
}

fn row(r: &LogReport) -> String {
    let bytes = r.device_bytes_per_user_byte.map_or("-".to_owned(), |x| format!("{x:.3}"));
    format!(
        "{:<34} {:>8.0} appends/s  P50 {:>8}  P99 {:>8}  P99.9 {:>8}  {} writes in place  device bytes {bytes}  \
         longest pause {} ms  opened in {}",
        r.engine,
        r.appends_per_s,
        human_us(r.latency.p50_us),
        human_us(r.latency.p99_us),
        human_us(r.latency.p999_us),
        r.appends_per_in_place_write.map_or("-".to_owned(), |x| format!("{x:.3}")),
        r.longest_without_progress_ms,
        r.recovery_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms")),
    )
}
