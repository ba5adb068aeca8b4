//! A second disk, for the log: which store it belongs to, and of which session it is.
//!
//! A store whose file system says that its directory lies on two disks ([`io::FileSystem::disks`], [`crate::volumes::TwoDisks`]) has all
//! files of its log on the second one, the *speed disk*, and everything else in the directory, on the *capacity disk*.
//!
//! **Who belongs to whom.** The manifest, on the capacity disk, says whether there is a speed disk and which (a record of its identity and of
//! the last *session*); the speed disk says the same in a file of its own ([`crate::volumes::identity`]). Each process that opens the store to write begins
//! a session, a random number, before the log gets its first group:
//!
//! 1. one slot of the disk gets the new session, with the one before it;
//! 2. the manifest gets it, in an edit;
//! 3. both slots of the disk get it, without the one before.
//!
//! Whatever a crash leaves of this fits together: until the edit is durable there is a slot with the old session, from then on one with the new.
//! Of two copies of a store, or of a disk that is put back as it was once, the sessions differ from the first opening on, whatever their
//! numbers are; so a log is never taken for that of another time. Nothing is written before the manifest and the log were found
//! to fit each other, since an edit might take the place of one that was lost.
//!
//! **Moving.** A store of one disk gets a second one when it is opened with it ([`attach`]), and gives it back by [`give_back`]: the files
//! of the log are copied, synced, and their directory is; then one edit says where they are; then the copies that are void are removed.
//! The edit moves all groups of the log at once, so at no moment is the log on both disks.
//!
//! **Refusals.** A disk that is missing, empty, another store's, or of another time is refused by name, by everyone who reads the manifest
//! ([`crate::volumes::identity::check`]), before anything is changed. There is no way around that which loses nothing: a repair without the disk names what it loses.

mod moves;

pub use moves::{CommitWith, give_back, give_back_with};

use crate::directory;
use crate::manifest::{Manifest, State};
use crate::names::{self, FileKind};
use crate::volumes::TwoDisks;
use crate::volumes::identity::check_disk;
use base::Result;
use io::{Disks, Env, FileLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An environment in which the log of the store in `dir` is in `speed_dir` of another one, or of the same. A speed disk that the environments have
/// for the store already is put aside: as the capacity disk, it would be swept of the log.
pub fn joined(env: &Env, dir: &Path, speed: &Env, speed_dir: &Path) -> Env {
    let [capacity, speed] = [env, speed].map(|env| alone(env, dir).fs);
    Env { fs: Arc::new(TwoDisks::new(capacity, dir, speed, speed_dir)), ..env.clone() }
}

/// The same where the other directory is on the same file system, if one is named.
pub fn with_directory(env: Env, dir: &Path, speed_dir: Option<&Path>) -> Env {
    match speed_dir {
        Some(speed_dir) => joined(&env, dir, &env, speed_dir),
        None => env,
    }
}

/// The environment of the store's directory as it is by itself.
pub fn alone(env: &Env, dir: &Path) -> Env {
    let fs = env.fs.disks(dir).map_or_else(|| env.fs.clone(), |disks| disks.capacity);
    Env { fs, ..env.clone() }
}

/// The environment for who reads a store in this state: one that is about to get its second disk has its log in its own directory.
pub fn of_reader(env: &Env, dir: &Path, state: &State) -> Env {
    match state.speed {
        Some(_) => env.clone(),
        None => alone(env, dir),
    }
}

/// Looks at the place of the speed disk of a store that is about to be made.
///
/// # Errors
/// `InvalidArgument` if there is something; those of the file system.
pub fn check_place(env: &Env, dir: &Path) -> Result<()> {
    env.fs.disks(dir).map_or(Ok(()), |disks| moves::check_vacant(&disks, None))
}

/// The same, and makes it.
///
/// # Errors
/// As there.
pub fn make_place(env: &Env, dir: &Path) -> Result<()> {
    let Some(disks) = env.fs.disks(dir) else { return Ok(()) };
    moves::check_vacant(&disks, None)?;
    directory::make(&Env { fs: disks.speed.clone(), ..env.clone() }, &disks.speed_dir)
}

/// Takes the second disk of a store that is opened to write, whose lock is held and whose manifest is read and not changed; one of which
/// the manifest does not know becomes the store's, and gets its log. `None`: there is no second disk.
///
/// # Errors
/// Those of [`crate::volumes::identity::check`]; `Locked` if somebody else has it; `Corruption` if the log that is to be moved is damaged; `NoSpace` if there is no
/// room for it on the disk. Nothing has changed then.
pub fn attach(env: &Env, dir: &Path, manifest: &Manifest) -> Result<Option<Box<dyn FileLock>>> {
    let Some(disks) = env.fs.disks(dir) else { return Ok(None) };
    let state = manifest.state();
    let Some(known) = &state.speed else { return moves::join(env, dir, &disks, manifest).map(Some) };
    let held = lock(env, &disks)?;
    // Somebody with a copy of the store may have had it until now.
    check_disk(&disks, state.uid, known)?;
    Ok(Some(held))
}

/// Takes the lock of the disk, whose file names the process.
fn lock(env: &Env, disks: &Disks) -> Result<Box<dyn FileLock>> {
    disks.speed.lock(&io::fs::join(&disks.speed_dir, names::SPEED_LOCK), &directory::holder(env))
}

/// What lies on the second disk of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeedSpace {
    /// The directory there.
    pub place: PathBuf,
    /// Bytes that the files of the store occupy there.
    pub bytes: u64,
    /// Those of them that are tables.
    pub table_bytes: u64,
    /// Those of them that are files of values.
    pub value_bytes: u64,
    /// Bytes that are free there.
    pub available_bytes: u64,
}

impl SpeedSpace {
    /// What lies there; `None`: the store has no second disk.
    ///
    /// # Errors
    /// Those of looking.
    pub fn of(env: &Env, dir: &Path) -> Result<Option<SpeedSpace>> {
        let Some(disks) = env.fs.disks(dir) else { return Ok(None) };
        let listing = disks.speed.list(&disks.speed_dir)?;
        let sum = |is_one: fn(FileKind) -> bool| {
            let those = listing.iter().filter(|entry| names::parse(&entry.name).is_some_and(is_one));
            those.map(|entry| entry.allocated).sum()
        };
        let (bytes, table_bytes) = (sum(FileKind::is_of_speed_disk), sum(|kind| kind.table().is_some()));
        let value_bytes = sum(|kind| kind.values().is_some());
        let available_bytes = disks.speed.space(&disks.speed_dir)?.available;
        Ok(Some(SpeedSpace { place: disks.speed_dir, bytes, table_bytes, value_bytes, available_bytes }))
    }
}

/// Two locks, which are given up together.
#[derive(Debug)]
struct Both(
    #[expect(dead_code, reason = "held")] Box<dyn FileLock>,
    #[expect(dead_code, reason = "held")] Box<dyn FileLock>,
);

impl FileLock for Both {}

/// The lock of a store, with that of its second disk if it has one.
pub fn both(store: Box<dyn FileLock>, speed: Option<Box<dyn FileLock>>) -> Box<dyn FileLock> {
    match speed {
        Some(speed) => Box::new(Both(speed, store)),
        None => store,
    }
}
