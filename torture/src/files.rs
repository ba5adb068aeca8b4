//! A file is deleted exactly when nothing can reach it: the directory beside the manifest.
//!
//! When a store is at rest and nobody reads, its directory holds the tables and vSSTs that the manifest names, and no
//! others; each of these vSSTs, and each alias, is one that some table references. While somebody reads, files may be
//! there that only the reader reaches; but none may be missing.

use crate::check::{Check, Doing, ensure};
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

/// The same where jobs may have failed before.
pub(crate) fn check_files_at_rest(db: &Db, env: &Env, dir: &Path, readers: bool) -> Check {
    // Simulated time passes by itself.
    let patience = Duration::from_secs(if env.is_simulated() { 60 } else { 120 });
    ensure!(db.wait_idle(patience), "the store does not come to rest: {}", db.describe());
    let listing = env.fs.list(dir).doing(|| "list".into())?;
    let mut found: Vec<String> = listing.into_iter().map(|entry| entry.name).filter(|n| is_data(n)).collect();
    found.sort_unstable();
    let live = db.live_files();
    let stray: Vec<_> = found.iter().filter(|n| live.files.binary_search(n).is_err()).collect();
    let lost: Vec<_> = live.files.iter().filter(|n| found.binary_search(n).is_err()).collect();
    ensure!(lost.is_empty(), "files {lost:?} are in the manifest and not in the directory");
    ensure!(live.unreferenced.is_empty(), "at rest, nothing references {:?}", live.unreferenced);
    ensure!(live.pinned == 0, "at rest, {} names are pinned", live.pinned);
    let space = db.space().doing(|| "space".into())?;
    ensure!(space.job_bytes == 0, "at rest, {} B are outputs of jobs: {stray:?}", space.job_bytes);
    if !readers {
        ensure!(stray.is_empty(), "nobody reads, and files {stray:?} are still there");
        ensure!(space.pinned_bytes == 0, "nobody reads, and {} B are pinned", space.pinned_bytes);
    }
    Ok(())
}

fn is_data(name: &str) -> bool {
    name.ends_with(".ksst") || name.ends_with(".vsst")
}
