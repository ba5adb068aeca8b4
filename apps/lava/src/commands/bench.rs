//! `bench`.

use crate::{Result, output};
use bench::host::WorkDir;
use bench::{BenchArgs, Workload, ablation, contract, lava::Lava};
use clap::Args;
use std::path::{Path, PathBuf};

/// Where a store is made when the user names no directory.
const FRESH_PARENT: &str = "bench-data";

/// Options of `bench`.
#[derive(Args)]
pub struct BenchCommand {
    #[command(flatten)]
    bench: BenchArgs,
    /// Write the report to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs one benchmark. Without `--db` the store is made below `./bench-data` and removed afterwards; with it, the directory
/// must be empty and is kept.
pub fn bench(db: Option<PathBuf>, args: &BenchCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(e.to_string()))?;
    let dir = match db {
        Some(dir) => WorkDir::named(&dir, args.bench.reuse)?,
        None => WorkDir::fresh(Path::new(FRESH_PARENT))?,
    };
    if args.bench.workload == Workload::Contract {
        let report = contract::contract(&args.bench, &Lava, dir.path())?;
        write_json(args.json.as_deref(), &report)?;
        return output::report(false, &serde_json::Value::Null, || report.text());
    }
    if args.bench.workload == Workload::Ablation {
        let report = ablation::ablation(&args.bench, &Lava, dir.path(), &|step| eprintln!("lava: {step}"))?;
        write_json(args.json.as_deref(), &report)?;
        return output::report(false, &serde_json::Value::Null, || report.text());
    }
    let report = bench::run(&args.bench, &Lava, dir.path())?;
    write_json(args.json.as_deref(), &report)?;
    output::report(false, &serde_json::Value::Null, || report.table())
}

fn write_json(file: Option<&Path>, report: &impl serde::Serialize) -> Result<()> {
    match file {
        Some(file) => output::write_file(file, &(serde_json::to_string_pretty(report)? + "\n")),
        None => Ok(()),
    }
}
