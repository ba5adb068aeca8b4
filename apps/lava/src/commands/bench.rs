//! `bench`.

use super::place::{Place, make_volume, open_volume, volume_of};
use crate::{Result, output};
use bench::fs::Ground;
use bench::host::WorkDir;
use bench::lava::{Lava, LavaIn};
use bench::{BenchArgs, Workload, ablation, contract};
use clap::Args;
use lavastore::io::kernel::device::{self, DeviceOptions};
use lavastore::{Env, lavafs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a store is made when the user names no directory.
const FRESH_PARENT: &str = "bench-data";
/// Where `bench fs` makes its files on a volume.
const VOLUME_DIR: &str = "/bench";

/// Options of `bench fs`.
#[derive(Args)]
pub struct BenchFsCommand {
    #[command(flatten)]
    fs: bench::fs::FsArgs,
    /// Bytes of each file: a number with K, M or G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = super::fs::size)]
    file_size: u64,
    /// On a bare device, `--db device:PATH`: destroy what it holds
    #[arg(long)]
    force: bool,
    /// Write the report to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures appends, writes in place or reads in a directory, on a LavaFS volume, or on a bare device.
pub fn bench_fs(db: Option<PathBuf>, args: &BenchFsCommand) -> Result<()> {
    let db = super::directory(db)?;
    let report = if let Some(path) = device_of(&db) {
        let device = device::open(path, &DeviceOptions::default())?;
        if let Some(occupant) = lavafs::occupant(&*device)?.filter(|_| !args.force) {
            let name = path.display();
            return output::usage(format!("{name} holds {occupant}, which --force would destroy"));
        }
        bench::fs::run(&Ground::Device(&*device), path, &args.fs, args.file_size)?
    } else if let Some(path) = volume_of(&db) {
        make_volume(path)?;
        let volume = Arc::new(open_volume(path, false)?);
        let env = bench::fs::env_of(&volume);
        let dir = Path::new(VOLUME_DIR);
        let ground = Ground::Directory { env: &env, dir, volume: Some(&volume) };
        let report = bench::fs::run(&ground, path, &args.fs, args.file_size)?;
        volume.unmount()?;
        report
    } else {
        let ground = Ground::Directory { env: &Env::kernel(), dir: &db, volume: None };
        bench::fs::run(&ground, &db, &args.fs, args.file_size)?
    };
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
    if let Some(path) = db.as_deref().and_then(volume_of) {
        return bench_on_volume(path, args);
    }
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

/// One run in a store on a LavaFS volume.
fn bench_on_volume(path: &Path, args: &BenchCommand) -> Result<()> {
    if matches!(args.bench.workload, Workload::Contract | Workload::Ablation) {
        return output::usage("contract and ablation make many stores: name a directory");
    }
    let db = PathBuf::from(format!("lavafs:{}", path.display()));
    let place = Place::to_write(&db, true)?;
    if !args.bench.reuse && place.env.fs.exists(&place.dir)? && !place.env.fs.list(&place.dir)?.is_empty() {
        let name = path.display();
        return output::usage(format!("there is a store on {name}: make the volume anew, or pass --reuse"));
    }
    let opener = LavaIn { env: place.env, counted: path.to_owned() };
    let report = bench::run(&args.bench, &opener, &place.dir)?;
    write_json(args.json.as_deref(), &report)?;
    output::report(false, &serde_json::Value::Null, || report.table())
}

/// The bare device of `device:PATH`.
fn device_of(db: &Path) -> Option<&Path> {
    db.to_str()?.strip_prefix("device:").map(Path::new)
}

fn write_json(file: Option<&Path>, report: &impl serde::Serialize) -> Result<()> {
    match file {
        Some(file) => output::write_file(file, &(serde_json::to_string_pretty(report)? + "\n")),
        None => Ok(()),
    }
}
