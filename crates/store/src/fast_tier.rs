//! The fast tier: a second disk for the log, its owner, and its session.
//!
//! The file system of a store may report that its directory spans two disks
//! ([`io::FileSystem::disks`], [`crate::volumes::TwoDisks`]). Then all log files are on the second
//! one, the *fast tier*, together with some tables and values. All other files are in the
//! directory, on the *capacity tier*.
//!
//! **Ownership.** The manifest, on the capacity tier, records the fast tier: its identity and the
//! last *session*. The fast tier records the same in a file of its own
//! ([`crate::volumes::identity`]). Each process that opens the store for writing begins a session,
//! a random number, before the log gets its first group:
//!
//! 1. one slot of the disk gets the new session, with the previous one;
//! 2. the manifest gets it, in an edit;
//! 3. both slots of the disk get it, without the previous one.
//!
//! Any state after a crash is consistent: until the edit is durable there is a slot with the old
//! session, from then on one with the new. If a store is copied, or a disk restored from an older
//! image, the sessions differ from the first opening on, whatever their numbers are. So a log is
//! never taken for that of another time. The disk comes first, because a disk that is ahead by one
//! session says so itself. In the other order a crash would leave a disk that looks like an older
//! copy. The slot that still fits is never written before the edit, so a torn write leaves it
//! intact, also after two crashes in a row. Nothing is written before the manifest and the log are
//! found consistent, because an edit might take the place of a lost one.
//!
//! **Moving.** A store on one disk gets a fast tier when it is opened with one ([`attach`]), and
//! gives it back by [`detach_fast_tier`]. The log files are copied and synced with their directory.
//! Then one edit records their new location. Then the old copies are removed. The edit moves all
//! log groups at once, so the log is never on both disks.
//!
//! **Refusals.** A disk that is missing, empty, of another store, or of another time is refused by
//! name ([`crate::volumes::identity::check`]). Every reader of the manifest checks that before
//! anything is changed. There is no bypass without loss: a repair without the disk reports its
//! losses.

mod moves;

pub use moves::{CommitWith, detach_fast_tier, give_back_with};

use crate::directory;
use crate::manifest::{Manifest, ManifestState};
use crate::names::{self, FileKind};
use crate::volumes::TwoDisks;
use crate::volumes::identity::check_disk;
use base::Result;
use io::{Env, FileLock, Tiers};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns an environment in which the log of the store in `dir` is in `speed_dir` of another
/// environment, or of the same. Any fast tier that the environments already have for the store is
/// removed: used as the capacity tier, it would be swept of the log.
pub fn joined(env: &Env, dir: &Path, speed: &Env, speed_dir: &Path) -> Env {
    let [capacity, speed] = [env, speed].map(|env| alone(env, dir).fs);
    Env { fs: Arc::new(TwoDisks::new(capacity, dir, speed, speed_dir)), ..env.clone() }
}

/// As [`joined`], with the fast tier on the same file system, if `speed_dir` is given.
pub fn with_directory(env: Env, dir: &Path, speed_dir: Option<&Path>) -> Env {
    match speed_dir {
        Some(speed_dir) => joined(&env, dir, &env, speed_dir),
        None => env,
    }
}

/// Returns the environment without the fast tier.
pub fn alone(env: &Env, dir: &Path) -> Env {
    let fs = env.fs.disks(dir).map_or_else(|| env.fs.clone(), |disks| disks.capacity);
    Env { fs, ..env.clone() }
}

/// Returns the environment for a reader of a store in this state. If the store is about to get its
/// fast tier, its log is still in its own directory.
pub fn of_reader(env: &Env, dir: &Path, state: &ManifestState) -> Env {
    match state.speed {
        Some(_) => env.clone(),
        None => alone(env, dir),
    }
}

/// Checks the place of the fast tier for a new store.
///
/// # Errors
/// `InvalidArgument` if it is not empty; file system errors.
pub fn check_place(env: &Env, dir: &Path) -> Result<()> {
    env.fs.disks(dir).map_or(Ok(()), |disks| moves::check_vacant(&disks, None))
}

/// Checks the place of the fast tier for a new store, and creates its directory.
///
/// # Errors
/// As [`check_place`].
pub fn make_place(env: &Env, dir: &Path) -> Result<()> {
    let Some(disks) = env.fs.disks(dir) else { return Ok(()) };
    moves::check_vacant(&disks, None)?;
    directory::make(&Env { fs: disks.speed.clone(), ..env.clone() }, &disks.speed_dir)
}

/// Attaches the fast tier of a store that is opened for writing. The store is locked, and its
/// manifest is recovered and unchanged. A disk unknown to the manifest becomes the store's fast
/// tier, and gets its log. `None`: there is no fast tier.
///
/// # Errors
/// Errors of [`crate::volumes::identity::check`]. `Locked` if another process has it. `Corruption`
/// if the log to move is damaged. `NoSpace` if there is no space for it on the disk. Nothing has
/// changed then.
pub fn attach(env: &Env, dir: &Path, manifest: &Manifest) -> Result<Option<Box<dyn FileLock>>> {
    let Some(disks) = env.fs.disks(dir) else { return Ok(None) };
    let state = manifest.state();
    let Some(known) = &state.speed else { return moves::join(env, dir, &disks, manifest).map(Some) };
    let held = lock(env, &disks)?;
    // Until now a process with a copy of the store may have had the disk.
    check_disk(&disks, state.uid, known)?;
    Ok(Some(held))
}

/// Takes the lock of the fast tier; its file names the process.
fn lock(env: &Env, disks: &Tiers) -> Result<Box<dyn FileLock>> {
    disks.speed.lock(&io::fs::join(&disks.speed_dir, names::SPEED_LOCK), &directory::holder(env))
}

/// Shows how full the fast tier of a store is, to size the disk or the options that place data
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastTierSpace {
    /// Directory of the store on the fast tier.
    pub place: PathBuf,
    /// Allocated bytes of the store's files there: the log, and the two below.
    pub bytes: u64,
    /// Bytes of tables among them.
    pub table_bytes: u64,
    /// Bytes of value files among them.
    pub value_bytes: u64,
    /// Free bytes of the disk, for any user of it.
    pub available_bytes: u64,
}

impl FastTierSpace {
    /// Returns the space on the fast tier; `None`: the store has none.
    ///
    /// # Errors
    /// File system errors.
    pub fn of(env: &Env, dir: &Path) -> Result<Option<FastTierSpace>> {
        let Some(disks) = env.fs.disks(dir) else { return Ok(None) };
        let listing = disks.speed.list(&disks.speed_dir)?;
        let sum = |is_one: fn(FileKind) -> bool| {
            let those = listing.iter().filter(|entry| names::parse(&entry.name).is_some_and(is_one));
            those.map(|entry| entry.allocated).sum()
        };
        let (bytes, table_bytes) = (sum(FileKind::is_on_fast_tier), sum(|kind| kind.table().is_some()));
        let value_bytes = sum(|kind| kind.values().is_some());
        let available_bytes = disks.speed.space(&disks.speed_dir)?.available;
        Ok(Some(FastTierSpace { place: disks.speed_dir, bytes, table_bytes, value_bytes, available_bytes }))
    }
}

/// Two locks that are released together.
#[derive(Debug)]
struct Both(
    #[expect(dead_code, reason = "held")] Box<dyn FileLock>,
    #[expect(dead_code, reason = "held")] Box<dyn FileLock>,
);

impl FileLock for Both {}

/// Joins the lock of a store with that of its fast tier, if it has one.
pub fn both(store: Box<dyn FileLock>, speed: Option<Box<dyn FileLock>>) -> Box<dyn FileLock> {
    match speed {
        Some(speed) => Box::new(Both(speed, store)),
        None => store,
    }
}
