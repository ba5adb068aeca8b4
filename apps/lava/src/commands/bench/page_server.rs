//! `bench page-server`.

use super::{at_site, told};
use crate::{Result, output};
use bench::pages::lava::LavaPages;
use bench::pages::{PageServerArgs, run};
use clap::Args;
use std::path::{Path, PathBuf};

/// Options of `bench page-server`.
#[derive(Args)]
pub struct PageServerCommand {
    #[command(flatten)]
    bench: PageServerArgs,
    /// Write the report to this file as JSON, too; without a file: to standard output, in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs it. Where the stores are made is as with a benchmark of a key-value store.
pub fn bench(db: Option<PathBuf>, args: &PageServerCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench page-server: {e}")))?;
    let run = |site, dir: &Path| -> Result<()> {
        let report = run(&args.bench, &LavaPages { site }, dir)?;
        told(args.json.as_deref(), &report, || report.text())
    };
    at_site(db, false, run)
}
