//! `bench scale-meta`.

use super::told;
use crate::{Result, output};
use bench::scale_meta::{self, ScaleMetaArgs};
use clap::Args;
use std::path::PathBuf;

/// Options of `bench scale-meta`.
#[derive(Args)]
pub struct ScaleMetaCommand {
    #[command(flatten)]
    bench: ScaleMetaArgs,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs the benchmark, entirely in memory.
pub fn bench(args: &ScaleMetaCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench scale-meta: {e}")))?;
    let report = scale_meta::run(&args.bench)?;
    told(args.json.as_deref(), &report, || report.text())
}
