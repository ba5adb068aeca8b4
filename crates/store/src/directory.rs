//! The directory of a store, and the durability of its name.
//!
//! A store's files are lost if the name of their directory is lost. So the name is durable before
//! anything in the directory is acknowledged: before `CURRENT`, which makes a directory a store.

use crate::names;
use base::{Error, ErrorKind, Result};
use io::{Env, FileLock};
use std::path::Path;

/// Creates a directory and its missing parents, durably.
///
/// A name whose sync failed may be lost later although it is visible now, and a later sync does not
/// report that. So a failed sync removes the new directories, innermost first, and a retry makes
/// new ones.
///
/// # Errors
/// File system errors.
pub fn make(env: &Env, dir: &Path) -> Result<()> {
    let is_missing = |d: &&Path| env.fs.metadata(d).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let made: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    env.fs.create_dir_all(dir)?;
    sync_name(env, dir).inspect_err(|_| made.iter().for_each(|d| drop(env.fs.remove_dir(d))))
}

/// Returns true if a directory holds a store: `CURRENT`, or its copy.
///
/// # Errors
/// File system errors.
pub fn has_store(env: &Env, dir: &Path) -> Result<bool> {
    let is_there = |name: &str| env.fs.exists(&io::fs::join(dir, name));
    Ok(is_there(names::CURRENT)? || is_there(names::CURRENT_COPY)?)
}

/// Takes the lock of a store. The lock file names the process, for the error of a later attempt.
///
/// # Errors
/// `Locked`, with the holder; file system errors.
pub fn lock(env: &Env, dir: &Path) -> Result<Box<dyn FileLock>> {
    env.fs.lock(&io::fs::join(dir, names::LOCK), &holder(env))
}

/// Returns the name of this process in a lock file.
pub(crate) fn holder(env: &Env) -> String {
    if env.is_simulated() { "simulation".into() } else { format!("process {}", std::process::id()) }
}

/// Makes the name of a store's directory durable, before `CURRENT` exists. A process killed in
/// between leaves no store, so nothing is acknowledged in a directory whose name may still be lost.
///
/// # Errors
/// File system errors, unless a directory above belongs to another user.
pub fn sync_name(env: &Env, dir: &Path) -> Result<()> {
    for (nth, ancestor) in dir.ancestors().skip(1).enumerate() {
        // Any of them may be new, made by this process or by one that was killed since.
        let synced = env.fs.sync_dir(ancestor);
        synced.or_else(|e| if nth > 0 && is_not_ours(&e) { Ok(()) } else { Err(e) })?;
    }
    Ok(())
}

/// Returns true if a directory could not be synced because it belongs to another user, who made it.
fn is_not_ours(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    let denied = cause.is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    denied || matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ReadOnly)
}
