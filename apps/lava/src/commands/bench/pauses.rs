//! `bench pauses`.

use super::{FRESH_PARENT, told};
use crate::{Result, output};
use bench::host::WorkDir;
use bench::pauses::{self, PausesArgs};
use clap::Args;
use std::path::{Path, PathBuf};

/// Options of `bench pauses`.
#[derive(Args)]
pub struct PausesCommand {
    #[command(flatten)]
    bench: PausesArgs,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs the benchmark. Without `--db` the stores are created below `./bench-data`; they are always
/// removed.
pub fn bench(db: Option<PathBuf>, args: &PausesCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench pauses: {e}")))?;
    let dir = match db {
        Some(dir) => WorkDir::named(&dir, false)?,
        None => WorkDir::fresh(Path::new(FRESH_PARENT))?,
    };
    let report = pauses::run(&args.bench, dir.path())?;
    told(args.json.as_deref(), &report, || report.text())
}
