//! Checks the directory against the manifest: a file is deleted exactly when it is unreachable.
//!
//! In an idle store without readers, the directory holds exactly the tables and vSSTs of the
//! manifest. Some table references each of these vSSTs and each alias. With readers, files may
//! exist that only a reader reaches, but none may be missing.
//!
//! Right after an open this holds for every kind of file ([`check_opened`]): the remains of a crash
//! are gone, and the directory occupies exactly the bytes of the space report.

use crate::check::{Check, Doing, ensure};
use crate::machine;
use lavastore::{Db, Env};
use std::path::Path;
use std::time::Duration;

/// Waits until the store is idle, then compares; no job may have failed.
pub(crate) fn check_at_rest(db: &Db, env: &Env, dir: &Path, readers: bool) -> Check {
    check_files_at_rest(db, env, dir, readers)?;
    let failed = db.stats().background_errors;
    ensure!(failed == 0, "{failed} background jobs failed: {:?}", db.flush());
    Ok(())
}

/// With threads, an idle store may be busy again at the check, since time has passed. A real
/// mismatch persists.
const LOOKS_MAX: u32 = 4;

/// Same as [`check_at_rest`], but jobs may have failed before.
pub(crate) fn check_files_at_rest(db: &Db, env: &Env, dir: &Path, readers: bool) -> Check {
    let looks = if env.spawner.is_some() { LOOKS_MAX } else { 1 };
    for _ in 1..looks {
        if look_at_rest(db, env, dir, readers).is_ok() {
            return Ok(());
        }
    }
    look_at_rest(db, env, dir, readers)
}

fn look_at_rest(db: &Db, env: &Env, dir: &Path, readers: bool) -> Check {
    // Simulated time passes by itself.
    let patience = Duration::from_secs(if env.is_simulated() { 60 } else { 120 });
    ensure!(db.wait_idle(patience), "the store does not come to rest: {}", db.describe());
    let listing = env.fs.list(dir).doing(|| "list".into())?;
    let mut found: Vec<String> = listing.into_iter().map(|entry| entry.name).filter(|n| is_data(n)).collect();
    found.sort_unstable();
    let live = db.engine().live_files();
    let stray: Vec<_> = found.iter().filter(|n| live.files.binary_search(n).is_err()).collect();
    let lost: Vec<_> = live.files.iter().filter(|n| found.binary_search(n).is_err()).collect();
    ensure!(lost.is_empty(), "files {lost:?} are in the manifest and not in the directory");
    ensure!(live.unreferenced.is_empty(), "at rest, nothing references {:?}", live.unreferenced);
    ensure!(live.pinned == 0, "at rest, {} names are pinned", live.pinned);
    let sums = live.job_sums;
    ensure!(sums == (0, 0), "at rest, jobs are granted {} B and have written {} B", sums.0, sums.1);
    let space = db.space().doing(|| "space".into())?;
    ensure!(space.job_bytes == 0, "at rest, {} B are outputs of jobs: {stray:?}", space.job_bytes);
    if !readers {
        ensure!(stray.is_empty(), "nobody reads, and files {stray:?} are still there");
        ensure!(space.pinned_bytes == 0, "nobody reads, and {} B are pinned", space.pinned_bytes);
    }
    Ok(())
}

/// Checks a newly opened store before any job has run: the directory holds exactly the known files,
/// and their bytes equal the counted ones.
pub(crate) fn check_opened(db: &Db, env: &Env, dir: &Path) -> Check {
    let listing = env.fs.list(dir).doing(|| "list".into())?;
    let live = db.engine().live_files();
    // Unused outputs of recovery flushes are removed a moment later.
    let known = |name: &String| {
        let named = [&live.files, &live.others].iter().any(|names| names.binary_search(name).is_ok());
        named || live.obsolete.contains(name)
    };
    let is_listed = |name: &String| !UNLISTED.contains(&name.as_str());
    let names: Vec<&String> = listing.iter().map(|entry| &entry.name).collect();
    let stray: Vec<_> = names.iter().filter(|name| is_listed(name) && !known(name)).collect();
    let all = live.files.iter().chain(&live.others);
    let lost: Vec<_> = all.filter(|name| !names.contains(name)).collect();
    ensure!(lost.is_empty(), "after open, {lost:?} should be there and are not");
    ensure!(stray.is_empty(), "after open, {stray:?} are there and nobody's");
    check_sums(db, live.counted_bytes, listing.iter().map(|entry| entry.allocated).sum())
}

/// Files that no list names: each is optional, and its name determines its kind.
const UNLISTED: [&str; 4] = ["LOCK", "STAGING", "SPEED", "SPEED-LOCK"];

/// Checks that the space report and the count for the limit equal the bytes of the directory.
fn check_sums(db: &Db, counted: u64, found_bytes: u64) -> Check {
    // On LavaFS an open file has blocks preallocated, which a listing of the directory counts.
    let exact = counted == found_bytes || machine::is_lavafs();
    ensure!(exact, "{counted} B are counted and {found_bytes} B are there");
    let space = db.space().doing(|| "space".into())?;
    let sum: u64 = space.parts().iter().map(|(_, bytes)| bytes).sum();
    ensure!(sum == space.total_bytes, "the ledger of space sums to {sum}, not {}", space.total_bytes);
    ensure!(sum == found_bytes, "the ledger of space sums to {sum}, and {found_bytes} B are there");
    Ok(())
}

fn is_data(name: &str) -> bool {
    [".ksst", ".ksst-1", ".vsst", ".vsst-1"].iter().any(|end| name.ends_with(end))
}
