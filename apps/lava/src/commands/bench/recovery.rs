//! `bench recovery`.

use super::{FRESH_PARENT, to_new_store, told};
use crate::commands::place::{StoreLocation, parts, volume_of};
use crate::{Result, output};
use bench::host::WorkDir;
use bench::lava::{Lava, LavaIn};
use bench::recovery::{self, RecoveryArgs};
use bench::space::allocated_in;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `bench recovery`.
#[derive(Args)]
pub struct RecoveryCommand {
    #[command(flatten)]
    bench: RecoveryArgs,
    /// Fill the store with these options and wait to be killed
    #[arg(long, value_name = "OPTIONS", hide = true)]
    fill: Option<String>,
    /// Also write the report as JSON to this file, which is replaced; without a file name, print
    /// JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Runs the benchmark. Without `--db` the store is created below `./bench-data` and removed
/// afterwards.
pub fn bench(db: Option<PathBuf>, args: &RecoveryCommand) -> Result<()> {
    args.bench.check().or_else(|e| output::usage(format!("bench recovery: {e}")))?;
    if let Some(options) = &args.fill {
        return fill(&crate::commands::directory(db)?, &serde_json::from_str(options)?);
    }
    let report = match db {
        Some(db) if volume_of(&db).is_some() => on_volume(&db, &args.bench)?,
        Some(db) => {
            let dir = WorkDir::named(&db, false)?;
            recovery::run(&args.bench, &mut filler(dir.path(), &args.bench)?, &Lava, dir.path())?
        }
        None => {
            let dir = WorkDir::fresh(Path::new(FRESH_PARENT))?;
            let store = dir.path().join("store");
            recovery::run(&args.bench, &mut filler(&store, &args.bench)?, &Lava, &store)?
        }
    };
    told(args.json.as_deref(), &report, || report.text())
}

/// Returns the command of the process that fills the store and is killed.
fn filler(db: &Path, args: &RecoveryArgs) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--db").arg(db).args(["bench", "recovery", "--fill"]).arg(serde_json::to_string(args)?);
    Ok(command)
}

fn fill(db: &Path, args: &RecoveryArgs) -> Result<()> {
    let Some(device) = volume_of(db) else { return recovery::fill(args, &Lava, db) };
    let place = to_new_store(db, "")?;
    recovery::fill(args, &LavaIn { env: place.env, counted: device.to_owned() }, &place.dir)
}

/// Runs the benchmark on a volume. The filling process mounts it first, then this process; mount
/// times do not count as open times.
fn on_volume(db: &Path, args: &RecoveryArgs) -> Result<recovery::RecoveryReport> {
    let device = volume_of(db).unwrap_or(db);
    // This process reports a bad volume.
    drop(to_new_store(db, "")?);
    let filled = recovery::fill_and_kill(&mut filler(db, args)?)?;
    if !args.warm {
        parts(device).into_iter().try_for_each(io::kernel::page_cache::forget)?;
    }
    let StoreLocation { env, dir } = StoreLocation::to_write(db)?;
    let opener = LavaIn { env: env.clone(), counted: device.to_owned() };
    recovery::recover(args, &filled, &opener, &dir, &|| allocated_in(&env, &dir))
}
