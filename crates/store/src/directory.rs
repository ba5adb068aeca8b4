//! The directory of a store, and its name.
//!
//! A store's files are worth nothing if the name of their directory is lost. So the name is durable before anything in it
//! is promised: before `CURRENT`, which makes a directory a store.

use crate::names;
use base::{Error, ErrorKind, Result};
use io::{Env, FileLock};
use std::path::Path;

/// Makes a directory that is not there, and what is missing above it, durably.
///
/// A name whose sync failed may be lost although it is there to see, and no later sync of it tells: then the directories
/// made here go again, the innermost first, so that who tries again makes new ones.
///
/// # Errors
/// Those of the file system.
pub fn make(env: &Env, dir: &Path) -> Result<()> {
    let is_missing = |d: &&Path| env.fs.metadata(d).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let made: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    env.fs.create_dir_all(dir)?;
    sync_name(env, dir).inspect_err(|_| made.iter().for_each(|d| drop(env.fs.remove_dir(d))))
}

/// True if there is a store in a directory: `CURRENT`, or its copy.
///
/// # Errors
/// Those of the file system.
pub fn has_store(env: &Env, dir: &Path) -> Result<bool> {
    let is_there = |name: &str| env.fs.exists(&io::fs::join(dir, name));
    Ok(is_there(names::CURRENT)? || is_there(names::CURRENT_COPY)?)
}

/// Takes the lock of a store. Its file names the process, for those who find it taken.
///
/// # Errors
/// `Locked`, with who has it; those of the file system.
pub fn lock(env: &Env, dir: &Path) -> Result<Box<dyn FileLock>> {
    env.fs.lock(&io::fs::join(dir, names::LOCK), &holder(env))
}

/// What a lock file says of this process.
pub(crate) fn holder(env: &Env) -> String {
    if env.is_simulated() { "simulation".into() } else { format!("process {}", std::process::id()) }
}

/// Makes the name of a store's directory durable. This comes before `CURRENT`: a process that is killed between the
/// two leaves no store, so nobody acknowledges anything in a directory whose name may still be lost.
///
/// # Errors
/// Those of the file system, unless a directory above belongs to others.
pub fn sync_name(env: &Env, dir: &Path) -> Result<()> {
    for (nth, ancestor) in dir.ancestors().skip(1).enumerate() {
        // Any of them may have been made a moment ago, by this process or one that was killed since.
        let synced = env.fs.sync_dir(ancestor);
        synced.or_else(|e| if nth > 0 && is_not_ours(&e) { Ok(()) } else { Err(e) })?;
    }
    Ok(())
}

/// True if a directory could not be synced because it belongs to others: whoever made it was somebody else, who could.
fn is_not_ours(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    let denied = cause.is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    denied || matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ReadOnly)
}
