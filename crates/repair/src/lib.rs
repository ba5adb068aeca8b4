//! Repair: a new store of everything that is undamaged in a damaged one.
//!
//! 1. [`scan`] looks at every file of the directory: which it is, by what it says of itself, and whether it can be opened.
//! 2. [`judge`] decides which tables count. With a manifest that is whole, those it names. Without, all that no other file
//!    proves to be superseded: tables keep their sequences, so that the newest entry of a key wins wherever it lies.
//! 3. [`rebuild`] merges the tables of each family, fetches the values, and puts the newest version of each key into a new
//!    store, in key order, past the log: what flush makes of that is already sorted. Then it replays the log over it, batch
//!    after batch, both lanes of it ([`lanes`]).
//!
//! A store that has logs as well is repaired together with them: their engine is LavaKV's guest in this, too ([`store::repair::GuestRepair`]). Both go by
//! the same manifest, or by none; both halves go into one new store; and it is no store before both are durable.
//!
//! What cannot be read is stepped over and told in the [`report`]: what is lost, by file, offset and range of keys, and
//! where something older may stand in its place.
//!
//! The original is opened for reading only, under its lock where it has one. A repair needs no write permission there, and
//! leaves every byte as it was. Everything is rewritten, nothing linked: the two stores share no file.
//!
//! Memory: the properties and range tombstones of all tables, about 150 bytes for each page of the log, one block of each sorted
//! run, and what the new store is allowed.

mod copies;
mod files;
mod judge;
mod lanes;
mod ranges;
mod rebuild;
mod report;
mod runs;
mod scan;
mod target;
mod values;

pub use report::{KeyOutcome, LostRange, RepairDamage, RepairReport, RepairedFamily};

use base::Result;
use io::Env;
use lavakv::Options;
use lavakv::repairing::refusal_for_others;
use rebuild::GuestOf;
use std::path::Path;
use store::files::unfinished;
use store::manifest::EngineId;
use store::repair::{FewOpen, GuestRepair, Places};
use version::names::{self, FileKind};

/// How a store is repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Of the new store. Its families get the options that they had, as far as these are known.
    pub options: Options,
    /// Reads everything, and writes nothing.
    pub dry_run: bool,
    /// The speed disk of the store is lost, and what is in its log alone with it.
    pub without_speed: bool,
}

/// Makes a new store in `into` of the undamaged parts of the store at `path`, and reports the losses. The damaged store is only
/// read: it stays the same, byte for byte, and needs no write permission. `into` must be missing, empty, or the remains of an
/// interrupted repair. Every open refuses it until the repair has returned.
///
/// # Errors
/// `Locked` if a process has the store open; `AlreadyExists` if there is something in `into`; `Unsupported` if a newer
/// release wrote the store; those of writing the new store; what passes by itself, such as a lack of descriptors, since what could not be
/// read for that is not damaged. Damage is no error: the report tells it.
pub fn repair(
    path: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: &RepairOptions,
) -> Result<RepairReport> {
    let env = Env::kernel();
    repair_in(&env, path, &env, into, options)
}

/// As [`repair`], from one environment into another, or into the same.
///
/// # Errors
/// Those of [`repair`].
pub fn repair_in(
    from: &Env,
    path: impl AsRef<Path>,
    to: &Env,
    into: impl AsRef<Path>,
    options: &RepairOptions,
) -> Result<RepairReport> {
    repair_places((from, path.as_ref()), (to, into.as_ref()), options, None)
}

/// Repairs a store together with the logs of a guest, if it has any: see [`store::repair::GuestRepair`].
///
/// # Errors
/// As [`repair`], and those of the guest; `Unsupported` if there are no keys in it, or something of a third engine's.
pub fn repair_with_records(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
    guest: &mut dyn GuestRepair,
) -> Result<RepairReport> {
    repair_places(from, into, options, Some(guest))
}

fn repair_places(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
    guest: GuestOf<'_>,
) -> Result<RepairReport> {
    let places = &Places { from, into, without_speed: options.without_speed };
    options.options.validate()?;
    let _lock = places.keep_writers_away()?;
    if !options.dry_run {
        places.check_target()?;
    }
    let few = FewOpen::over(places.from.0);
    let places = &Places { from: (&few.env, places.from.1), ..*places };
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
    if let Some(guest) = &guest {
        found.has_records = found.witness.other_engines.remove(&guest.engine()).is_some();
    }
    if !found.witness.other_engines.is_empty() {
        let named = |(id, name): (&EngineId, &String)| match name.as_str() {
            "" => id.to_string(),
            name => name.to_owned(),
        };
        let names: Vec<String> = found.witness.other_engines.iter().map(named).collect();
        return Err(refusal_for_others(dir, &names, "the new store would not have"));
    }
    let plan = judge::judge(&mut found);
    let (report, target) = rebuild::rebuild(places, options, found, plan, guest)?;
    few.check()?;
    target.finish()?;
    Ok(report)
}
