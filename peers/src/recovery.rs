//! Engines that open what a killed process left in a long log: one run, or alternating pairs.

use crate::pairs::{Comparison, NamedFigure, PairArgs, figures};
use crate::rocks::{Rocks, Shape};
use bench::args::name;
use bench::recovery::{RecoveryArgs, RecoveryReport};
use bench::report::human_bytes;
use bench::{Opener, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum RecoveryEngineName {
    /// LavaStore, which keeps in memory what it replayed, where there is room.
    Lavastore,
    /// RocksDB that does the same (`avoid_flush_during_recovery`).
    Rocksdb,
    /// RocksDB as it is by default: all that was in the log is in tables when it is open.
    RocksdbFlush,
}

impl RecoveryEngineName {
    fn opener(self) -> Box<dyn Opener> {
        let rocks = |flushes_replayed| -> Box<dyn Opener> {
            Box::new(Rocks { blobs: false, shape: Shape::Tuned, flushes_replayed })
        };
        match self {
            RecoveryEngineName::Lavastore => Box::new(bench::lava::Lava),
            RecoveryEngineName::Rocksdb => rocks(false),
            RecoveryEngineName::RocksdbFlush => rocks(true),
        }
    }
}

/// Options of a comparison of recoveries.
#[derive(Args)]
pub struct RecoveryCompareArgs {
    /// Engines in order; ratios are those of the first over each other one [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<RecoveryEngineName>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    bench: RecoveryArgs,
}

const FIGURES: [NamedFigure<RecoveryReport>; 7] = [
    ("open_ms", |r| Some(r.open_ms)),
    ("mb_per_s", |r| Some(r.mb_per_s)),
    ("cpu_seconds", |r| Some(r.cpu_seconds)),
    ("rss_peak", |r| Some(r.rss_peak_bytes as f64)),
    ("bytes_read", |r| Some(r.bytes_read as f64)),
    ("bytes_written", |r| Some(r.bytes_written as f64)),
    ("log_bytes", |r| Some(r.log_bytes as f64)),
];

/// One run: this process opens what another one, which it kills, has written.
pub fn child(engine: RecoveryEngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let mut filler = Command::new(std::env::current_exe()?);
    filler.arg("recovery-fill").arg(name(engine)).arg(dir).arg(args);
    let args: RecoveryArgs = serde_json::from_str(args)?;
    let report = bench::recovery::run(&args, &mut filler, &*engine.opener(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Fills a store and waits to be killed.
pub fn fill(engine: RecoveryEngineName, dir: &Path, args: &str) -> Result<()> {
    bench::recovery::fill(&serde_json::from_str(args)?, &*engine.opener(), dir)
}

/// Runs the comparison and prints it.
pub fn compare(args: &RecoveryCompareArgs) -> Result<()> {
    args.bench.check()?;
    let engines = match args.engines.is_empty() {
        true => RecoveryEngineName::value_variants(),
        false => &args.engines,
    };
    let comparison = Comparison {
        child: "recovery-child",
        engines: engines.iter().map(|engine| name(*engine)).collect(),
        figures: figures(&FIGURES),
        engine_of: |r: &RecoveryReport| &r.engine,
        text: row,
    };
    comparison.run(&args.pairs, &args.bench)
}

fn row(r: &RecoveryReport) -> String {
    format!(
        "{:<44} {} of logs opened in {:>7.0} ms, {:>5.0} MB/s  {} threads  {:.2} s of processor  read {}  written {}  memory {}  tables {} \
         before, {} after  (filled in {:.1} s)",
        r.engine,
        human_bytes(r.log_bytes),
        r.open_ms,
        r.mb_per_s,
        r.threads_max,
        r.cpu_seconds,
        human_bytes(r.bytes_read),
        human_bytes(r.bytes_written),
        human_bytes(r.rss_peak_bytes),
        human_bytes(r.table_bytes_before),
        human_bytes(r.table_bytes),
        r.fill_seconds,
    )
}
