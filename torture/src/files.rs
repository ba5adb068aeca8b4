//! A file is deleted exactly when nothing can reach it: the directory beside the manifest.
//!
//! When a store is at rest and nobody reads, its directory holds the tables and vSSTs that the manifest names, and no
//! others; each of these vSSTs, and each alias, is one that some table references. While somebody reads, files may be
//! there that only the reader reaches; but none may be missing.
//!
//! After an open this holds at once, and of every kind of file ([`check_opened`]): what a crash left behind is gone, and the
//! ledger of space is what the directory occupies, byte for byte.

use crate::check::{Check, Doing, ensure};
use crate::machine;
use lavastore::{Db, Env};
use std::path::Path;
use std::time::Duration;

/// Lets the store come to rest, then compares. No job failed.
pub(crate) fn check_at_rest(db: &Db, env: &Env, dir: &Path, readers: bool) -> Check {
    check_files_at_rest(db, env, dir, readers)?;
    let failed = db.stats().background_errors;
    ensure!(failed == 0, "{failed} background jobs failed: {:?}", db.flush());
    Ok(())
}

/// With threads a store at rest may be at work again by the time somebody looks: time has passed. What is wrong stays wrong.
const LOOKS_MAX: u32 = 4;

/// The same where jobs may have failed before.
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

/// Right after an open, before any job has run: the directory holds what the store knows and nothing else, nothing that it
/// knows is missing, and the bytes that it counts are those that are there.
pub(crate) fn check_opened(db: &Db, env: &Env, dir: &Path) -> Check {
    let listing = env.fs.list(dir).doing(|| "list".into())?;
    let live = db.engine().live_files();
    // What recovery's own flushes have no use for goes a moment later.
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

/// The files that no list names: each is there or not, and what it is follows from its name.
const UNLISTED: [&str; 4] = ["LOCK", "STAGING", "SPEED", "SPEED-LOCK"];

/// The ledger, and the count that a limit is kept with, are what the directory occupies.
fn check_sums(db: &Db, counted: u64, found_bytes: u64) -> Check {
    // On LavaFS an open file has blocks ahead of its end, which are counted when the directory is listed.
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
