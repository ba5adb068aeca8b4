//! `checkpoint`: a consistent copy of the store.
//!
//! On the same file system a checkpoint shares files with the store; elsewhere it is a copy of all
//! bytes. For a store in a directory it is a directory. For a store on a LavaFS volume it is
//! another directory of that volume, `lavafs:PATH:/DIR`, which `--db` also accepts.
//!
//! If another process has the store open, that process makes the checkpoint: this command writes a
//! request into the store's directory (docs/format/requests.md). A volume that another process has
//! open takes no requests, since only that process can access its directories.

use super::create::check_parent_of_copy;
use super::place::{OnVolume, StoreLocation, on_volume};
use super::{directory, open_in};
use crate::status::{self, Status};
use crate::{Error, Result, interrupt, output, progress};
use bench::host::now_ns;
use clap::Args;
use lavastore::{CheckpointOptions, CheckpointRequest, Db, Env, ErrorKind, Options};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `checkpoint`.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Directory of the copy, missing or empty; for a store on a LavaFS volume, lavafs:PATH:/DIR on
    /// the same volume. On the file system of the store hard links share the files; elsewhere all
    /// bytes are copied
    pub target: PathBuf,
    /// Longest wait in whole seconds until the process that has the store open accepts the request,
    /// then the command fails. The copy itself has no time limit. No effect if no process has the
    /// store open
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    wait: u64,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Makes a copy. The store is opened for writing, because the memtables are flushed first.
pub fn checkpoint(db: Option<PathBuf>, args: &CheckpointArgs) -> Result<()> {
    let open = |place| open_in(place, Options { create_if_missing: false, ..Options::default() });
    take(db, args, open, |store, target| {
        let options = CheckpointOptions { cancel: Some(interrupt::cancel()) };
        interrupt::or_kept(store.checkpoint_with(target, &options), interrupt::NO_COPY)?;
        Ok(store.close()?)
    })
}

/// Makes a copy of the store opened by `open`, or asks the process that has it open.
pub fn take<S>(
    db: Option<PathBuf>,
    args: &CheckpointArgs,
    open: impl Fn(StoreLocation) -> Result<S>,
    make: impl Fn(S, &Path) -> Result<()>,
) -> Result<()> {
    let start_ns = now_ns();
    let db = directory(db)?;
    let target = target_beside(&db, &args.target)?;
    let opened = || {
        let place = StoreLocation::to_write(&db)?;
        check_parent_of_copy(&StoreLocation { env: place.env.clone(), dir: target.clone() })?;
        open(place)
    };
    let is_requested = match opened() {
        Ok(store) => make(store, &target).map(|()| false)?,
        Err(e) if is_locked(&e) && on_volume(&db).is_some() => {
            return Err(status::about(
                "another process has the volume open and takes no requests: call Db::checkpoint in it, or end it; nothing was copied",
                e,
            ));
        }
        Err(e) if is_locked(&e) => match requested(&db, &target, args) {
            // That process ended meanwhile.
            Err(e) if is_closed(&e) => make(opened()?, &target).map(|()| false)?,
            requested => requested.map(|()| true)?,
        },
        Err(e) => return Err(e),
    };
    report(args, start_ns, is_requested)
}

fn is_locked(error: &Error) -> bool {
    status::of(error.as_ref()) == Status::InUse
}

fn is_closed(error: &Error) -> bool {
    error.downcast_ref::<lavastore::Error>().is_some_and(|e| e.kind() == ErrorKind::Closed)
}

/// Asks the process that has the store open for the copy.
fn requested(db: &Path, target: &Path, args: &CheckpointArgs) -> Result<()> {
    let target = absolute(target)?;
    let is_taken = AtomicBool::new(false);
    let text = |passed: Duration| {
        let action = match is_taken.load(Ordering::Relaxed) {
            true => "is made by the process that has the store open",
            false => "waits for the process that has the store open",
        };
        format!("checkpoint: {action}, {} s", passed.as_secs())
    };
    let tell = &mut |state| is_taken.store(state == CheckpointRequest::Taken, Ordering::Relaxed);
    let wait = Duration::from_secs(args.wait);
    progress::shown(text, || Db::request_checkpoint_in(&Env::kernel(), db, &target, wait, tell))?;
    Ok(())
}

/// Returns the absolute path of a new directory, valid for another process.
fn absolute(target: &Path) -> Result<PathBuf> {
    let target = std::path::absolute(target)?;
    match (target.parent(), target.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(target),
    }
}

fn report(args: &CheckpointArgs, start_ns: u64, is_requested: bool) -> Result<()> {
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let target = args.target.display().to_string();
    let made = json!({ "target": target, "seconds": seconds, "requested": is_requested });
    output::report(args.json, &made, || {
        let by = if is_requested { " by the process that has the store open" } else { "" };
        format!("checkpoint in {target}, made in {seconds:.2} s{by}\n")
    })
}

/// Returns the target directory within the file system of the store.
fn target_beside(db: &Path, target: &Path) -> Result<PathBuf> {
    match (on_volume(db), on_volume(target)) {
        (None, None) => Ok(target.to_owned()),
        (Some(store), Some(OnVolume { path, dir: Some(dir) })) if is_same(store.path, path) => Ok(dir),
        (Some(store), _) => {
            let path = store.path.display();
            output::usage(format!(
                "the checkpoint of a store on a LavaFS volume must be on the same volume: name it lavafs:{path}:/NAME"
            ))
        }
        (None, Some(_)) => output::usage(
            "the checkpoint of a store in a directory cannot be on a LavaFS volume: name a directory, or copy the store with lava repair --into lavafs:PATH",
        ),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
