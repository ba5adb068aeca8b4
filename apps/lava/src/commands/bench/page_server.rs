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
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs the benchmark, in the same place as a benchmark of a key-value store.
pub fn bench(db: Option<PathBuf>, args: &PageServerCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench page-server: {e}")))?;
    let run = |site, dir: &Path| -> Result<()> {
        let report = run(&args.bench, &LavaPages { site }, dir)?;
        told(args.json.as_deref(), &report, || report.text())
    };
    at_site(db, false, run)
}
