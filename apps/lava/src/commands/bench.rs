//! `bench`.

use crate::{Result, output};
use bench::host::WorkDir;
use bench::{BenchArgs, lava::Lava};
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
    let report = bench::run(&args.bench, &Lava, dir.path())?;
    if let Some(file) = &args.json {
        output::write_file(file, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    output::report(false, &serde_json::Value::Null, || report.table())
}
