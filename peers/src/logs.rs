//! Engines under the benchmark of logs: one run, or alternating pairs.

pub mod raft;
pub mod rocks;

use bench::Result;
use bench::host::WorkDir;
use bench::logs::{LogArgs, LogOpener, LogReport, LogSite, OwnEngine};
use bench::report::human_us;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From so many pairs on a figure may be called a claim.
const CLAIM_PAIRS: usize = 3;

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
            LogEngineName::Lavalog => OwnEngine::Lavalog.opener(LogSite::machine()),
            LogEngineName::Lavakv => OwnEngine::Lavakv.opener(LogSite::machine()),
            LogEngineName::RaftEngine => Box::new(raft::Raft { keep: args.keep }),
            LogEngineName::Rocksdb => Box::new(rocks::Rocks),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

/// Options of a comparison of logs.
#[derive(Args)]
pub struct LogCompareArgs {
    /// Runs of each engine
    #[arg(long, default_value_t = CLAIM_PAIRS)]
    pairs: usize,
    /// Engines in order; ratios are those of the first over each other one [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<LogEngineName>,
    /// Where the stores are made, one at a time, and removed again
    #[arg(long, default_value = "bench-data")]
    dir: PathBuf,
    /// Write all reports and the ratios to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    bench: LogArgs,
}

/// A figure: name, how to get it.
type Figure = (&'static str, fn(&LogReport) -> Option<f64>);

const FIGURES: [Figure; 8] = [
    ("appends_per_s", |r| Some(r.appends_per_s)),
    ("appends_per_in_place_write", |r| r.appends_per_in_place_write),
    ("p50_us", |r| Some(r.latency.p50_us)),
    ("p99_us", |r| Some(r.latency.p99_us)),
    ("p999_us", |r| Some(r.latency.p999_us)),
    ("device_bytes_per_user_byte", |r| r.device_bytes_per_user_byte),
    ("longest_without_progress_ms", |r| Some(r.longest_without_progress_ms as f64)),
    ("recovery_ms", |r| Some(r.recovery_ms)),
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
    println!("options: {}", serde_json::to_string(&args.bench)?);
    println!("machine: {}", bench::host::machine());
    let mut all: Vec<Vec<LogReport>> = engines.iter().map(|_| Vec::new()).collect();
    for pair in 1..=args.pairs {
        for (&engine, reports) in engines.iter().zip(&mut all) {
            let report = one_run(args, engine)?;
            print_run(pair, &report);
            reports.push(report);
        }
    }
    println!();
    let summary = summarize(&all);
    if args.pairs < CLAIM_PAIRS {
        println!("smoke run: fewer than {CLAIM_PAIRS} pairs are not a claim");
    }
    let Some(file) = &args.json else { return Ok(()) };
    let found = json!({ "options": args.bench, "pairs": args.pairs, "summary": summary, "runs": all });
    Ok(std::fs::write(file, serde_json::to_string_pretty(&found)? + "\n")?)
}

/// One run in a child process. What earlier runs left dirty is written back first.
fn one_run(args: &LogCompareArgs, engine: LogEngineName) -> Result<LogReport> {
    let dir = WorkDir::fresh(&args.dir)?;
    let (store, out) = (dir.path().join("store"), dir.path().join("report.json"));
    std::fs::create_dir_all(&store).map_err(|e| format!("cannot create {}: {e}", store.display()))?;
    rustix::fs::sync();
    let status = Command::new(std::env::current_exe()?)
        .args(["log-child", &engine.name()])
        .args([&store, &out])
        .arg(serde_json::to_string(&args.bench)?)
        .status()?;
    if !status.success() {
        return Err(format!("the run of {} failed ({status})", engine.name()).into());
    }
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}

fn print_run(pair: usize, r: &LogReport) {
    let bytes = r.device_bytes_per_user_byte.map_or("-".to_owned(), |x| format!("{x:.3}"));
    println!(
        "pair {pair}  {:<34} {:>8.0} appends/s  P50 {:>8}  P99 {:>8}  P99.9 {:>8}  {} writes in place  device bytes {bytes}  \
         longest pause {} ms  opened in {:.0} ms",
        r.engine,
        r.appends_per_s,
        human_us(r.latency.p50_us),
        human_us(r.latency.p99_us),
        human_us(r.latency.p999_us),
        r.appends_per_in_place_write.map_or("-".to_owned(), |x| format!("{x:.3}")),
        r.longest_without_progress_ms,
        r.recovery_ms,
    );
}

/// The ratios of the first engine over each other one, pair by pair: median, min and max.
fn summarize(all: &[Vec<LogReport>]) -> serde_json::Value {
    let Some((ours, others)) = all.split_first() else { return json!({}) };
    let mut rows = Vec::new();
    for other in others {
        for (name, of) in FIGURES {
            let pairs = ours.iter().zip(other);
            let mut ratios: Vec<f64> =
                pairs.filter_map(|(a, b)| Some(of(a)? / of(b)?)).filter(|ratio| ratio.is_finite()).collect();
            ratios.sort_by(f64::total_cmp);
            let (Some(min), Some(max)) = (ratios.first(), ratios.last()) else { continue };
            let median = ratios[ratios.len() / 2];
            println!(
                "{} over {}: {name} {median:.2} ({min:.2} to {max:.2})",
                ours[0].engine, other[0].engine
            );
            rows.push(json!({ "over": other[0].engine, "figure": name, "median": median, "min": min, "max": max }));
        }
    }
    rows.into()
}
