//! Latencies under load beside other engines: the rate that RocksDB sustains is found first, then every engine gets the same
//! requests at the same part of it, in alternating runs.

use crate::EngineName;
use crate::pairs::{CLAIM_PAIRS, Comparison, Figure, PairArgs};
use bench::args::Workload;
use bench::report::{Latency, human_us};
use bench::tail::{TailArgs, TailReport};
use bench::{BenchArgs, Result};
use clap::Args;
use std::path::{Path, PathBuf};

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
    /// Where the stores are made, one at a time, and removed again
    #[arg(long, default_value = "bench-data")]
    dir: PathBuf,
    /// Write all reports and the ratios to this file
    #[arg(long)]
    json: Option<PathBuf>,
    // How often is `--pairs` of these.
    #[command(flatten)]
    bench: BenchArgs,
}

const FIGURES: [Figure<TailReport>; 15] = [
    ("ops_per_s", |r| Some(r.ops_per_s)),
    ("write_p50_us", |r| Some(r.write.p50_us)),
    ("write_p99_us", |r| Some(r.write.p99_us)),
    ("write_p999_us", |r| Some(r.write.p999_us)),
    ("write_max_us", |r| Some(r.write.max_us)),
    ("read_p50_us", |r| Some(r.read.p50_us)),
    ("read_p99_us", |r| Some(r.read.p99_us)),
    ("read_p999_us", |r| Some(r.read.p999_us)),
    ("read_max_us", |r| Some(r.read.max_us)),
    ("stall_windows_100ms", |r| Some(r.stall_windows_100ms as f64)),
    ("longest_without_progress_ms", |r| Some(r.longest_without_progress_ms as f64)),
    ("process_bytes_per_user_byte", |r| r.process_bytes_per_user_byte),
    ("device_bytes_per_user_byte", |r| r.device_bytes_per_user_byte),
    ("space_peak_ratio", |r| Some(r.space_peak_ratio)),
    ("cpu_us_per_op", |r| Some(r.cpu_us_per_op)),
];

/// One run, in this process.
pub fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::tail::run(&args, engine.opener().as_ref(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &TailCompareArgs) -> Result<()> {
    args.bench.check()?;
    if args.bench.workload != Workload::Tail {
        return Err("this compares the workload tail: see peers compare for others".into());
    }
    let comparison = Comparison {
        child: "tail-child",
        engines: args.engines.iter().map(|engine| engine.name()).collect(),
        figures: &FIGURES,
        engine_of: |r: &TailReport| &r.engine,
        text: row,
    };
    let pairs = args.bench.pairs.map_or(CLAIM_PAIRS, |pairs| pairs as usize);
    let pairs = PairArgs { pairs, dir: args.dir.clone(), json: args.json.clone() };
    let rate = match args.bench.rate {
        Some(rate) => rate,
        None => {
            let tail = TailArgs { only_find: true, ..args.bench.tail.clone() };
            let found =
                comparison.one_run(&pairs, &REFERENCE.name(), &BenchArgs { tail, ..args.bench.clone() })?;
            println!("{} sustains {:.0} operations a second", found.engine, found.sustained_per_s);
            found.sustained_per_s
        }
    };
    comparison.run(&pairs, &BenchArgs { rate: Some(rate), ..args.bench.clone() })
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
    format!(
        "{:<30} {:.0}/s due, {:.0}/s done{}  writes {}  reads {}  longest pause {} ms, {} windows  bytes {} (device {})  space {:.2}  \
         device's longest write {device}  waits {}",
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
        r.space_peak_ratio,
        r.waits(),
    )
}
