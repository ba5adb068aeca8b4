//! Repair: a new store from the undamaged parts of a damaged one.
//!
//! 1. `scan` lists every file of the directory, takes its kind from its contents, and opens it.
//! 2. `judge` chooses the tables. With an intact manifest these are the tables that it names.
//!    Without one, they are all tables that no other file proves to be superseded. Tables keep
//!    their sequences, so the newest entry of a key wins in any table.
//! 3. `rebuild` merges the tables of each family, fetches the values, and writes the newest version
//!    of each key into a new store. These writes are in key order and bypass the log, so that
//!    flushes write sorted tables. Then it replays both lanes of the log (`lanes`).
//!
//! The same call repairs the logs of a store: their engine is the secondary engine of LavaKV
//! ([`store::repair::SecondaryRepair`]). Both engines use the same manifest, or none, and write
//! into one new store. It stays marked as unfinished until both are durable.
//!
//! Unreadable parts are skipped and reported (`report`): the losses by file, offset and key range,
//! and the keys whose value may be stale.
//!
//! The damaged store is opened for reading only, under its lock if it has one. Its bytes stay the
//! same, and repair needs no write permission. Repair rewrites all data, so the two stores share no
//! file.
//!
//! Memory: the properties and range tombstones of all tables, about 150 bytes for each log page,
//! one block of each sorted run, and the memory of the new store.

mod copies;
mod files;
mod judge;
mod lanes;
mod lost_bases;
mod operands;
mod ranges;
mod rebuild;
mod report;
mod runs;
mod scan;
mod target;
mod values;

pub use report::{KeyOutcome, LostRange, RepairDamage, RepairReport, RepairedFamily};

use base::Result;
use io::{Cancel, Env};
use lavakv::Options;
use lavakv::repairing::refusal_for_others;
use rebuild::GuestOf;
use std::path::Path;
use store::files::unfinished;
use store::manifest::EngineId;
use store::repair::{FewOpen, Places, SecondaryRepair};
use version::names::{self, FileKind};

/// Options of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Options of the new store. Its families keep their old options, as far as these survive.
    pub options: Options,
    /// Reads everything, and writes nothing.
    pub dry_run: bool,
    /// Repairs without the fast tier of the store. Data that exists only in its log is lost.
    pub without_fast_tier: bool,
    /// Cancels the repair, which then removes the new store.
    pub cancel: Option<Cancel>,
}

/// Builds a new store in `into` from the undamaged parts of the store at `path`, and reports the
/// losses. The damaged store is only read: its bytes do not change, and repair needs no write
/// permission. `into` must be missing, empty, or the remains of an interrupted repair. Every open
/// rejects `into` until the repair has returned. A repair that fails or is cancelled removes the
/// files that it wrote.
///
/// # Errors
/// `Locked` if a process has the store open; `AlreadyExists` if `into` holds anything else;
/// `Unsupported` if a newer release wrote the store; the errors of writing the new store. Transient
/// errors, such as a lack of file descriptors, fail the repair, since the file they hide is not
/// damaged. Damage is no error: the report lists it.
pub fn repair(
    path: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: &RepairOptions,
) -> Result<RepairReport> {
    let env = Env::kernel();
    repair_in(&env, path, &env, into, options)
}

/// As [`repair`], from one environment into another, or into the same one.
///
/// # Errors
/// The errors of [`repair`].
pub fn repair_in(
    from: &Env,
    path: impl AsRef<Path>,
    to: &Env,
    into: impl AsRef<Path>,
    options: &RepairOptions,
) -> Result<RepairReport> {
    repair_places((from, path.as_ref()), (to, into.as_ref()), options, None)
}

/// Repairs a store together with the logs of its secondary engine, if it has one: see
/// [`store::repair::SecondaryRepair`].
///
/// # Errors
/// As [`repair`], and the errors of the secondary engine; `Unsupported` if the store has logs but
/// no keys, or data of a third engine.
pub fn repair_with_records(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
    secondary: &mut dyn SecondaryRepair,
) -> Result<RepairReport> {
    repair_places(from, into, options, Some(secondary))
}

fn repair_places(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
    secondary: GuestOf<'_>,
) -> Result<RepairReport> {
    let places =
        &Places { from, into, without_fast_tier: options.without_fast_tier, cancel: options.cancel.as_ref() };
    options.options.validate()?;
    let _lock = places.keep_writers_away()?;
    if !options.dry_run {
        places.check_target()?;
    }
    let makes_dir = !into.0.fs.exists(into.1)?;
    let few = FewOpen::over(places.from.0, places.cancel);
    let places = &Places { from: (&few.env, places.from.1), ..*places };
    let (env, dir) = places.from;
    let listing = env.fs.list(dir)?;
    if let Some(work) = unfinished::of(&listing) {
        return Err(unfinished::refusal(dir, work));
    }
    let mut found = scan::scan(env, dir)?;
    // If the manifest no longer lists an engine, the engine's files show that it exists.
    for entry in listing {
        if let Some(FileKind::Engine { engine, .. }) = names::parse(&entry.name) {
            found.witness.other_engines.entry(EngineId(engine)).or_default();
        }
    }
    if let Some(secondary) = &secondary {
        found.has_records = found.witness.other_engines.remove(&secondary.engine()).is_some();
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
    let clear = || {
        if !options.dry_run {
            places.clear_target(makes_dir);
        }
    };
    let rebuilt = few.check().and_then(|()| rebuild::rebuild(places, options, found, plan, secondary));
    let (report, target) = rebuilt.inspect_err(|_| clear())?;
    if let Err(e) = few.check().and_then(|()| target.flush(places.cancel)) {
        target.discard();
        clear();
        return Err(e);
    }
    target.finish()?;
    Ok(report)
}
