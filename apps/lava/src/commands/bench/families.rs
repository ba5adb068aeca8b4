//! `bench families`.

use super::{FRESH_PARENT, told};
use crate::{Result, output};
use bench::families::{self, FamiliesArgs};
use bench::host::WorkDir;
use clap::Args;
use std::path::{Path, PathBuf};

/// Options of `bench families`.
#[derive(Args)]
pub struct FamiliesCommand {
    #[command(flatten)]
    bench: FamiliesArgs,
    /// Write the report to this file as JSON, too; without a file: to standard output, in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs it. Without `--db` the stores are made below `./bench-data`; they are removed in any case.
pub fn bench(db: Option<PathBuf>, args: &FamiliesCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench families: {e}")))?;
    let dir = match db {
        Some(dir) => WorkDir::named(&dir, false)?,
        None => WorkDir::fresh(Path::new(FRESH_PARENT))?,
    };
    let report = families::run(&args.bench, dir.path())?;
    told(args.json.as_deref(), &report, || report.text())
}
