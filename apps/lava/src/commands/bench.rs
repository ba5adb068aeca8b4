//! `bench`.

mod families;
mod page_server;
mod pauses;
mod recovery;
mod rest;
mod scale_meta;

use super::place::{StoreLocation, open_volume, volume_of};
use crate::status::{Status, failure};
use crate::{Result, output, progress};
use bench::fs::Ground;
use bench::host::WorkDir;
use bench::lava::{Lava, LavaIn};
use bench::logs::{LogArgs, LogSite, OwnEngine};
use bench::report::{counted, human_bytes, human_count};
use bench::{
    BenchArgs, Opener, Workload, ablation, contract, counters, graph, multi_get, queue, tail, transactions,
};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use io::kernel::device::{self, DeviceOptions};
use lavastore::{Env, lavafs};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Parent directory of stores if the user names none.
const FRESH_PARENT: &str = "bench-data";
/// Directory of `bench fs` on a volume.
const VOLUME_DIR: &str = "/bench";

/// Options of `bench fs`.
#[derive(Args)]
pub struct BenchFsCommand {
    #[command(flatten)]
    fs: bench::fs::FsArgs,
    /// Size of each file in bytes: a number, alone or with K, M, G or T (powers of 1024), at least
    /// --io-size. The files of all threads are removed at the end
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = super::fs::size)]
    file_size: u64,
    /// Destroy the contents of the bare device of `--db device:PATH`. Without it a device with
    /// known data is refused. No effect on directories and volumes
    #[arg(long)]
    force: bool,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Measures appends, in-place writes or reads in a directory, on a LavaFS volume, or on a bare
/// device.
pub fn bench_fs(db: Option<PathBuf>, args: &BenchFsCommand) -> Result<()> {
    let db = super::directory(db)?;
    let report = if let Some(path) = device_of(&db) {
        let device = device::open(path, &DeviceOptions::default())?;
        if let Some(occupant) = lavafs::occupant(&*device)?.filter(|_| !args.force) {
            let name = path.display();
            return output::usage(format!(
                "the device {name} has {occupant}, which the benchmark destroys: pass --force to overwrite it"
            ));
        }
        bench::fs::run(&Ground::Device(&*device), path, &args.fs, args.file_size)?
    } else if let Some(path) = volume_of(&db) {
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
    told(args.json.as_deref(), &report, || report.text())
}

/// Options of `bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchCommand {
    #[command(subcommand)]
    other: Option<OtherBench>,
    #[command(flatten)]
    store: MaybeStore,
}

/// The options of a store benchmark, absent with a subcommand. clap has no optional group with
/// nested groups.
struct MaybeStore(Option<BenchStore>);

impl Args for MaybeStore {
    fn augment_args(command: Command) -> Command {
        BenchStore::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        BenchStore::augment_args_for_update(command)
    }
}

impl FromArgMatches for MaybeStore {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_one = matches.contains_id("workload");
        Ok(MaybeStore(is_one.then(|| BenchStore::from_arg_matches(matches)).transpose()?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Benchmarks with their own subcommand.
#[derive(Subcommand)]
enum OtherBench {
    /// Measure appends, in-place writes or reads in a directory, on a LavaFS volume, or on a bare
    /// device
    Fs(BenchFsCommand),
    /// Measure the cost of a store by its number of column families
    Families(families::FamiliesCommand),
    /// Measure durable appends to many logs by several writers, with trims
    Log(BenchLogCommand),
    /// Measure a page server: redo records in (WriteLog), pages of 16 KiB out (ReadPage)
    PageServer(page_server::PageServerCommand),
    /// Measure the device writes that pauses between phases of work cost
    Pauses(pauses::PausesCommand),
    /// Measure the open of a store that was killed with a long log
    Recovery(recovery::RecoveryCommand),
    /// Measure the space that a store frees without a call after deletes, and the time it takes
    Rest(rest::RestCommand),
    /// Measure the bookkeeping cost of values in a store of terabytes, without its data
    ScaleMeta(scale_meta::ScaleMetaCommand),
}

/// Options of `bench log`.
#[derive(Args)]
pub struct BenchLogCommand {
    #[command(flatten)]
    logs: LogArgs,
    /// Engine to measure: `lavalog`, or for comparison `lavakv` with a key per record.
    /// --group-bytes, --space-limit and --put-size have no effect on `lavakv`
    #[arg(long, value_enum, default_value = "lavalog")]
    engine: OwnEngine,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Measures a store of logs, in the same place as a benchmark of a key-value store.
fn bench_log(db: Option<PathBuf>, args: &BenchLogCommand) -> Result<()> {
    args.logs.check().or_else(|e| output::usage(format!("bench log: {e}")))?;
    let run = |site, dir: &Path| -> Result<()> {
        let report = bench::logs::run(&args.logs, &*args.engine.opener(site, &args.logs), dir)?;
        told(args.json.as_deref(), &report, || report.text())
    };
    at_site(db, args.logs.recover.is_some(), run)
}

/// Calls `run` with a place for new stores of several engines, or for existing ones if `reuse` is
/// set.
fn at_site(db: Option<PathBuf>, reuse: bool, run: impl FnOnce(LogSite, &Path) -> Result<()>) -> Result<()> {
    match db {
        Some(db) if volume_of(&db).is_some() => {
            let place = if reuse { StoreLocation::to_write(&db)? } else { to_new_store(&db, "")? };
            let device = volume_of(&db).map(Path::to_owned);
            run(LogSite { env: place.env, device }, &place.dir)
        }
        Some(dir) => run(LogSite::machine(), WorkDir::named(&dir, reuse)?.path()),
        None => run(LogSite::machine(), WorkDir::fresh(Path::new(FRESH_PARENT))?.path()),
    }
}

/// Options of a benchmark of a store.
#[derive(Args)]
pub struct BenchStore {
    #[command(flatten)]
    bench: BenchArgs,
    /// Confirm a load of 256 MiB or more below ./bench-data, if there is no terminal. Not needed
    /// with --db or --num, and for tail
    #[arg(long)]
    yes: bool,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs one benchmark. Without `--db` the store is created below `./bench-data` and removed
/// afterwards; with it, the directory must be empty and is kept.
pub fn bench(db: Option<PathBuf>, args: BenchCommand) -> Result<()> {
    match (args.other, args.store.0) {
        (Some(OtherBench::Fs(args)), _) => bench_fs(db, &args),
        (Some(OtherBench::Families(args)), _) => families::bench(db, &args),
        (Some(OtherBench::Log(args)), _) => bench_log(db, &args),
        (Some(OtherBench::PageServer(args)), _) => page_server::bench(db, &args),
        (Some(OtherBench::Pauses(args)), _) => pauses::bench(db, &args),
        (Some(OtherBench::Recovery(args)), _) => recovery::bench(db, &args),
        (Some(OtherBench::Rest(args)), _) => rest::bench(db, &args),
        (Some(OtherBench::ScaleMeta(args)), _) => scale_meta::bench(&args),
        (None, Some(args)) => bench_store(db, &args),
        (None, None) => unreachable!("the parser takes neither for an error"),
    }
}

/// Largest load that needs no confirmation.
const LOAD_MAX: u64 = 256 << 20;

/// Announces a large load into the default directory, and asks for `--yes` if there is no terminal.
fn announce(args: &BenchStore) -> Result<()> {
    let bytes = args.bench.live_bytes();
    if bytes < LOAD_MAX {
        return Ok(());
    }
    let (keys, bytes) = (counted(args.bench.keys(), "key"), human_bytes(bytes));
    // `tail` requires a store with levels, and documented commands must run as they are.
    let is_meant = args.bench.num.is_some() || args.bench.is_tail();
    if !args.yes && !is_meant && !std::io::stderr().is_terminal() {
        return output::usage(format!(
            "this loads {keys}, {bytes}, into {FRESH_PARENT}: confirm with --yes, name a directory with --db, or lower --num"
        ));
    }
    output::tell(&format!("loads {keys}, {bytes}, into {FRESH_PARENT}, and removes them at the end"));
    Ok(())
}

fn bench_store(db: Option<PathBuf>, args: &BenchStore) -> Result<()> {
    progress::shown(operations_text, || run_store(db, args))
}

/// Formats the operations so far, including the load.
fn operations_text(passed: Duration) -> String {
    let done = bench::drive::operations_done();
    let rate = done.checked_div(passed.as_secs()).unwrap_or(0);
    format!("bench: {}, {}/s, {} s", counted(done, "operation"), human_count(rate), passed.as_secs())
}

fn run_store(db: Option<PathBuf>, args: &BenchStore) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench: {e}")))?;
    if let Some(db) = db.as_deref().filter(|db| volume_of(db).is_some()) {
        return bench_on_volume(db, args);
    }
    let dir = match db {
        Some(dir) => WorkDir::named(&dir, args.bench.reuse)?,
        None => {
            announce(args)?;
            WorkDir::fresh(Path::new(FRESH_PARENT))?
        }
    };
    if args.bench.workload == Workload::Contract {
        let report = contract::contract(&args.bench, &Lava, dir.path())?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::MultiGet {
        let report = multi_get::run(&args.bench, &Lava, dir.path())?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.compares_policies() {
        let tell = |step: &str| output::tell(step);
        let report = ablation::policy::compare(&args.bench, &Lava, dir.path(), &tell)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.requests.spandb {
        let tell = |step: &str| output::tell(step);
        let report = ablation::spandb::compare(&args.bench, &Lava, dir.path(), &tell)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.mechanisms {
        let tell = |step: &str| output::tell(step);
        let report = ablation::mechanisms::compare(&args.bench, &Lava, dir.path(), &tell)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::Ablation {
        let report = ablation::ablation(&args.bench, &Lava, dir.path(), &|step| output::tell(step))?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    one_run(args, &Lava, dir.path())
}

/// Runs a benchmark in its own store.
fn one_run(args: &BenchStore, opener: &dyn Opener, dir: &Path) -> Result<()> {
    if args.bench.workload == Workload::Queue {
        let report = queue::run(&args.bench, opener, dir)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::Transactions {
        let report = transactions::run(&args.bench, opener, dir)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::Counters {
        let report = counters::run(&args.bench, opener, dir)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::Graph {
        let report = graph::run(&args.bench, opener, dir)?;
        return told(args.json.as_deref(), &report, || report.text());
    }
    if args.bench.workload == Workload::Tail {
        let report = tail::run(&args.bench, opener, dir)?;
        return told(args.json.as_deref(), &report, || report.table());
    }
    let report = bench::run(&args.bench, opener, dir)?;
    told(args.json.as_deref(), &report, || report.table())
}

/// Returns the place of a new store on a volume.
fn to_new_store(db: &Path, or: &str) -> Result<StoreLocation> {
    let place = StoreLocation::to_write(db)?;
    if place.env.fs.exists(&place.dir)? && !place.env.fs.list(&place.dir)?.is_empty() {
        let name = volume_of(db).unwrap_or(db).display();
        let what = format!("{name} has a store already: format the volume again{or}");
        return Err(failure(Status::Exists, what));
    }
    Ok(place)
}

/// Runs a benchmark in a store on a LavaFS volume.
fn bench_on_volume(db: &Path, args: &BenchStore) -> Result<()> {
    if matches!(args.bench.workload, Workload::Contract | Workload::Ablation) {
        return output::usage(
            "the workloads contract and ablation create many stores, which needs a directory: name one with --db",
        );
    }
    if args.bench.workload == Workload::MultiGet {
        return output::usage(
            "the workload multi-get reads the files of the store directly, which needs a directory: name one with --db",
        );
    }
    let path = volume_of(db).unwrap_or(db);
    let place =
        if args.bench.reuse { StoreLocation::to_write(db)? } else { to_new_store(db, ", or pass --reuse")? };
    let opener = LavaIn { env: place.env, counted: path.to_owned() };
    one_run(args, &opener, &place.dir)
}

/// Returns the bare device of `device:PATH`.
fn device_of(db: &Path) -> Option<&Path> {
    db.to_str()?.strip_prefix("device:").map(Path::new)
}

/// Prints a report, or writes it as JSON if requested.
fn told(file: Option<&Path>, report: &impl serde::Serialize, text: impl FnOnce() -> String) -> Result<()> {
    let json = |report| Ok::<_, crate::Error>(serde_json::to_string_pretty(report)? + "\n");
    match file {
        Some(file) if file == Path::new("-") => {
            let all = json(report)?;
            return output::report(false, &serde_json::Value::Null, || all);
        }
        Some(file) => output::write_file(file, json(report)?.as_bytes())?,
        None => {}
    }
    output::report(false, &serde_json::Value::Null, text)
}
