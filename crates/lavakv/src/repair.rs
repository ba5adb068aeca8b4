//! Repair: a new store of everything that is undamaged in a damaged one.
//!
//! 1. [`scan`] looks at every file of the directory: which it is, by what it says of itself, and whether it can be opened.
//! 2. [`judge`] decides which tables count. With a manifest that is whole, those it names. Without, all that no other file
//!    proves to be superseded: tables keep their sequences, so that the newest entry of a key wins wherever it lies.
//! 3. [`rebuild`] merges the tables of each family, fetches the values, and puts the newest version of each key into a new
//!    store, in key order, past the log: what flush makes of that is already sorted. Then it replays the log over it, batch
//!    after batch.
//!
//! What cannot be read is stepped over and told in the [`report`]: what is lost, by file, offset and range of keys, and
//! where something older may stand in its place.
//!
//! The original is opened for reading only, under its lock where it has one. A repair needs no write permission there, and
//! leaves every byte as it was. Everything is rewritten, nothing linked: the two stores share no file.
//!
//! Memory: the properties and range tombstones of all tables, about 150 bytes for each page of the log, one block of each sorted
//! run, and what the new store is allowed.

mod files;
mod judge;
mod ranges;
mod rebuild;
mod report;
mod runs;
mod scan;
mod target;
mod values;

pub use report::{LostRange, RepairDamage, RepairReport, RepairedFamily};

use crate::context::options::Options;
use crate::db::Db;
use crate::files::other_engines;
use base::{Error, ErrorKind, Result};
use io::{Env, FileLock};
use std::path::{Component, Path};
use store::files::unfinished::{self, Work};
use store::manifest::EngineId;
use version::names::{self, FileKind};

/// How a store is repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Of the new store. Its families get the options that they had, as far as these are known.
    pub options: Options,
    /// Reads everything, and writes nothing.
    pub dry_run: bool,
}

/// Where a repair reads and writes.
pub(crate) struct Places<'a> {
    /// The damaged store.
    pub from: (&'a Env, &'a Path),
    /// The new one.
    pub into: (&'a Env, &'a Path),
}

impl Db {
    /// Makes a new store in `into` of everything that is undamaged in the store at `path`, and says what is lost. The
    /// damaged store is only read: it stays as it is, byte for byte, and no write permission is needed. `into` must be
    /// missing or empty, or what a repair left that was cut off; until the report it is refused by every open.
    ///
    /// # Errors
    /// `Locked` if a process has the store open; `AlreadyExists` if there is something in `into`; `Unsupported` if a newer
    /// release wrote the store; those of writing the new store. Damage is no error: the report tells it.
    pub fn repair(
        path: impl AsRef<Path>,
        into: impl AsRef<Path>,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        let env = Env::kernel();
        Self::repair_in(&env, path, &env, into, options)
    }

    /// As [`Db::repair`], from one environment into another, or into the same.
    ///
    /// # Errors
    /// Those of [`Db::repair`].
    pub fn repair_in(
        from: &Env,
        path: impl AsRef<Path>,
        to: &Env,
        into: impl AsRef<Path>,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        let places = Places { from: (from, path.as_ref()), into: (to, into.as_ref()) };
        repair(&places, options)
    }
}

/// See [`crate::Db::repair`].
pub(crate) fn repair(places: &Places<'_>, options: &RepairOptions) -> Result<RepairReport> {
    options.options.validate()?;
    let _lock = keep_writers_away(places.from.0, places.from.1)?;
    if !options.dry_run {
        check_target(places)?;
    }
    let (env, dir) = places.from;
    let listing = env.fs.list(dir)?;
    if let Some(work) = unfinished::of(&listing) {
        return Err(unfinished::refusal(dir, work));
    }
    let mut found = scan::scan(env, dir)?;
    // Where the manifest says nothing of an engine any more, its files do.
    for entry in listing {
        if let Some(FileKind::Engine { engine, .. }) = names::parse(&entry.name) {
            found.witness.other_engines.entry(EngineId(engine)).or_default();
        }
    }
    if !found.witness.other_engines.is_empty() {
        let named = |(id, name): (&EngineId, &String)| match name.as_str() {
            "" => id.to_string(),
            name => name.to_owned(),
        };
        let names: Vec<String> = found.witness.other_engines.iter().map(named).collect();
        return Err(other_engines::refusal(dir, &names, "the new store would not have"));
    }
    let plan = judge::judge(&mut found);
    rebuild::rebuild(places, options, found, plan)
}

/// Takes the lock of the store; a store whose lock file is gone has nobody who holds it.
fn keep_writers_away(env: &Env, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match env.fs.lock_to_read(&io::fs::join(dir, names::LOCK)) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            // The directory itself must be there.
            env.fs.list(dir).map(|_| None)
        }
        Err(e) => Err(e),
    }
}

/// The new store must not be put where anything is, nor into the damaged one, in which nothing is changed.
fn check_target(places: &Places<'_>) -> Result<()> {
    let (env, dir) = places.into;
    let (from_env, from) = places.from;
    let one_volume = std::sync::Arc::ptr_eq(&env.fs, &from_env.fs);
    if one_volume && dir.starts_with(from) || lies_in((env, dir), (from_env, from))? {
        let why = "the repaired store would lie in the damaged one: choose a directory outside";
        return Err(Error::invalid(why).at_file(dir));
    }
    match env.fs.list(dir) {
        // What a repair left that was cut off makes room for the next.
        Ok(entries) if unfinished::of(&entries) == Some(Work::Repair) => Ok(()),
        Ok(entries) if entries.iter().all(|entry| entry.name == names::LOCK) => Ok(()),
        Ok(_) => {
            let why = "the directory for the repaired store is not empty: choose another";
            Err(Error::new(ErrorKind::AlreadyExists, why).at_file(dir))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// True if one directory, which need not be there yet, is or would be in the other, by whatever path: over `..`, over links, over
/// a second mount. Asks the file system for every directory above it.
fn lies_in((env, dir): (&Env, &Path), (of_env, of): (&Env, &Path)) -> Result<bool> {
    let identity = |env: &Env, dir: &Path| env.fs.metadata(dir).map(|found| found.identity);
    let Some(wanted) = identity(of_env, of)? else { return Ok(false) };
    // What is missing will be made in the last directory that is there.
    let is_there = |dir: &&Path| env.fs.metadata(dir).is_ok_and(|found| found.is_dir);
    let Some(mut here) = dir.ancestors().find(is_there).map(Path::to_owned) else { return Ok(false) };
    let missing = dir.strip_prefix(&here).unwrap_or(dir);
    if missing.components().any(|part| part == Component::ParentDir) {
        let why = "the path goes back over `..` from a directory that is not there: name it without";
        return Err(Error::invalid(why).at_file(dir));
    }
    let mut at = identity(env, &here)?;
    loop {
        let above = here.join("..");
        let next = identity(env, &above)?;
        if at == Some(wanted) {
            return Ok(true);
        }
        // The root is above itself.
        if at.is_none() || at == next {
            return Ok(false);
        }
        (here, at) = (above, next);
    }
}
