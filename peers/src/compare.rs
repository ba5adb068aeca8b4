//! Alternating runs of several engines: A B A B …, each in a fresh directory and a process of its own.

use crate::EngineName;
use bench::host::WorkDir;
use bench::report::{human_bytes, human_us};
use bench::{BenchArgs, Report, Result};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// From so many pairs on a figure may be called a claim.
const CLAIM_PAIRS: usize = 3;

/// Options of a comparison.
#[derive(Args)]
pub struct CompareArgs {
    /// Runs of each engine
    #[arg(long, default_value_t = CLAIM_PAIRS)]
    pairs: usize,
    /// Engines in order; ratios are against the last one
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [EngineName::Lavastore, EngineName::Rocksdb])]
    engines: Vec<EngineName>,
    /// Where the stores are made, one at a time, and removed again
    #[arg(long, default_value = "bench-data")]
    dir: PathBuf,
    /// Write all reports and the summary to this file
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    bench: BenchArgs,
}

/// How a figure is printed.
type Show = fn(f64) -> String;

/// A figure of the summary: name, how to get it, how to show it.
type Figure = (&'static str, fn(&Report) -> Option<f64>, Show);

/// The figures of the summary.
fn figures() -> Vec<Figure> {
    let plain: Show = |x| if x >= 100.0 { format!("{x:.0}") } else { format!("{x:.2}") };
    let time: Show = human_us;
    let bytes: Show = |x| human_bytes(x as u64);
    vec![
        ("ops_per_s", |r| Some(r.ops_per_s), plain),
        ("mb_per_s", |r| Some(r.mb_per_s), plain),
        ("mb_per_s_settled", |r| Some(r.mb_per_s_settled), plain),
        ("p50", |r| Some(r.p50_us), time),
        ("p99", |r| Some(r.p99_us), time),
        ("p99.9", |r| Some(r.p999_us), time),
        ("max", |r| Some(r.max_us), time),
        ("write_amplification", |r| r.write_amplification, plain),
        ("device_write_amplification", |r| r.device_write_amplification, plain),
        ("space_peak_ratio", |r| Some(r.space_peak_ratio), plain),
        ("space_end_ratio", |r| Some(r.space_end_ratio), plain),
        ("space_settled_ratio", |r| Some(r.space_settled_ratio), plain),
        ("reads_per_get", |r| r.reads_per_get, plain),
        ("stall_windows_100ms", |r| Some(r.stall_windows_100ms as f64), plain),
        ("cpu_seconds", |r| Some(r.cpu_seconds), plain),
        ("rss_peak", |r| Some(r.rss_peak_bytes as f64), bytes),
    ]
}

/// Runs the comparison and prints it.
pub fn compare(args: &CompareArgs) -> Result<()> {
    args.bench.check()?;
    if args.pairs == 0 || args.engines.is_empty() {
        return Err("a comparison needs at least one pair and one engine".into());
    }
    println!("options: {}", serde_json::to_string(&args.bench)?);
    println!("machine: {}", bench::host::machine());
    let mut reports: Vec<Vec<Report>> = vec![Vec::new(); args.engines.len()];
    for pair in 0..args.pairs {
        for (engine, reports) in args.engines.iter().zip(&mut reports) {
            let report = one_run(args, *engine)?;
            print_run(pair + 1, &report);
            reports.push(report);
        }
    }
    check_same_work(args, &reports)?;
    println!();
    for report in reports.iter().filter_map(|r| r.first()) {
        let settings: Vec<String> = report.engine_settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        println!("settings of {}: {}", report.engine, settings.join(", "));
    }
    println!();
    let summary = summarize(args, &reports);
    if args.pairs < CLAIM_PAIRS {
        println!("smoke run: fewer than {CLAIM_PAIRS} pairs are not a claim");
    }
    let Some(file) = &args.json else { return Ok(()) };
    let all = json!({ "options": args.bench, "pairs": args.pairs, "summary": summary, "runs": reports });
    let text = serde_json::to_string_pretty(&all)? + "\n";
    std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()).into())
}

/// One run in a child process. What earlier runs left dirty is written back first.
fn one_run(args: &CompareArgs, engine: EngineName) -> Result<Report> {
    let dir = WorkDir::fresh(&args.dir)?;
    let store = dir.path().join("store");
    let out = dir.path().join("report.json");
    std::fs::create_dir(&store).map_err(|e| format!("cannot create {}: {e}", store.display()))?;
    rustix::fs::sync();
    let status = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(engine.name())
        .args([&store, &out])
        .arg(serde_json::to_string(&args.bench)?)
        .status()?;
    if !status.success() {
        return Err(format!("the run of {} failed ({status})", engine.name()).into());
    }
    Ok(serde_json::from_str(&read(&out)?)?)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()).into())
}

fn print_run(pair: usize, r: &Report) {
    let wa = r.write_amplification.map_or("-".to_owned(), |x| format!("{x:.2}"));
    println!(
        "pair {pair}  {:<22} {:>9.0} ops/s {:>7.1} MB/s  P50 {:>9}  P99 {:>9}  WA {wa}  space {:.2}/{:.2}/{:.2}  stalls {}",
        r.engine,
        r.ops_per_s,
        r.mb_per_s,
        human_us(r.p50_us),
        human_us(r.p99_us),
        r.space_peak_ratio,
        r.space_end_ratio,
        r.space_settled_ratio,
        r.stall_windows_100ms,
    );
}

/// All runs must have done the same operations, unless time cut them short.
fn check_same_work(args: &CompareArgs, reports: &[Vec<Report>]) -> Result<()> {
    let mut hashes: Vec<&str> = reports.iter().flatten().map(|r| r.ops_hash.as_str()).collect();
    hashes.dedup();
    match hashes.as_slice() {
        [hash] => println!("every run did the same operations (hash {hash})"),
        _ if args.bench.seconds.is_some() => {
            println!("runs were cut by time, so their operations differ in number")
        }
        _ => return Err("the runs did different operations".into()),
    }
    Ok(())
}

/// Median, smallest and largest.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    Some((median, first, last))
}

/// Prints the medians and ratios, and returns them.
fn summarize(args: &CompareArgs, reports: &[Vec<Report>]) -> Value {
    let names: Vec<String> = args.engines.iter().map(|e| e.name()).collect();
    let baseline = names.last().cloned().unwrap_or_default();
    println!("median [min .. max] of {} runs; x: the median over that of {baseline}", args.pairs);
    let heads: Vec<String> = names.iter().map(|n| format!("{n:<40}")).collect();
    println!("{:<27} {}", "", heads.join(" "));
    let mut summary = serde_json::Map::new();
    for (figure, get, show) in figures() {
        let spreads: Vec<_> = reports.iter().map(|r| spread(r.iter().filter_map(get).collect())).collect();
        let base = spreads.last().copied().flatten().map(|s| s.0);
        let mut cells = Vec::new();
        let mut values = serde_json::Map::new();
        for (name, spread) in names.iter().zip(&spreads) {
            let Some((median, min, max)) = spread else {
                cells.push(format!("{:<40}", "-"));
                continue;
            };
            let ratio = base.filter(|b| *b > 0.0).map(|b| median / b);
            let shown = ratio.filter(|_| *name != baseline).map_or(String::new(), |r| format!("  x{r:.2}"));
            cells.push(format!(
                "{:<40}",
                format!("{} [{} .. {}]{shown}", show(*median), show(*min), show(*max))
            ));
            values.insert(name.clone(), json!({ "median": median, "min": min, "max": max, "ratio": ratio }));
        }
        println!("{figure:<27} {}", cells.join(" "));
        summary.insert(figure.to_owned(), values.into());
    }
    summary.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
    }
}
