//! `bench rest`.

use super::{FRESH_PARENT, told};
use crate::{Result, output};
use bench::host::WorkDir;
use bench::rest::{self, RestArgs};
use clap::Args;
use std::path::{Path, PathBuf};

/// Options of `bench rest`.
#[derive(Args)]
pub struct RestCommand {
    #[command(flatten)]
    bench: RestArgs,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs the benchmark. Without `--db` the store is created below `./bench-data` and removed
/// afterwards.
pub fn bench(db: Option<PathBuf>, args: &RestCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench rest: {e}")))?;
    let dir = match db {
        Some(dir) => WorkDir::named(&dir, false)?,
        None => WorkDir::fresh(Path::new(FRESH_PARENT))?,
    };
    let report = rest::run(&args.bench, dir.path())?;
    told(args.json.as_deref(), &report, || report.text())
}
