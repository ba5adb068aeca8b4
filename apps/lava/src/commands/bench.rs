//! `bench`.

use super::place::{Place, volume_of};
use crate::{Result, output};
use bench::host::WorkDir;
use bench::{BenchArgs, Workload, ablation, contract, lava::Lava};
use clap::Args;
use std::path::{Path, PathBuf};

/// Where a store is made when the user names no directory.
const FRESH_PARENT: &str = "bench-data";

/// Options of `bench fs`.
#[derive(Args)]
pub struct BenchFsCommand {
    #[command(flatten)]
    fs: bench::fs::FsArgs,
    /// Bytes of each file: a number with K, M or G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = super::fs::size)]
    file_size: u64,
    /// Write the report to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures appends in a directory, or on a LavaFS volume.
pub fn bench_fs(db: Option<PathBuf>, args: &BenchFsCommand) -> Result<()> {
    if args.fs.io_size == 0 || args.fs.threads == 0 || args.file_size < args.fs.io_size as u64 {
        return output::usage(
            "a file holds at least one append of at least one byte, by at least one thread",
        );
    }
    let db = super::directory(db)?;
    let place = Place::to_write(&db, true)?;
    place.env.fs.create_dir_all(&place.dir)?;
    let counted = volume_of(&db).unwrap_or(&place.dir);
    let report = bench::fs::run(&place.env, &place.dir, counted, &args.fs, args.file_size)?;
    write_json(args.json.as_deref(), &report)?;
    output::report(false, &serde_json::Value::Null, || report.text())
}

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
