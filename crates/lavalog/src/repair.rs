//! Repair: a new store of every record that can be proved in a damaged one.
//!
//! 1. `sources` looks at every file of the directory: the manifest, or what intact records of a damaged one tell; checkpoints, index
//!    files and cold files, by what they say of themselves; the groups of the lane of records, page by page.
//! 2. `known` replays all of it into the state that an open would come to ([`crate::logs`]): the checkpoint, every operation of every
//!    group, every record of every cold file. What a row of an index says is taken as well, although it proves nothing: so it is known of
//!    a record that is lost that it was there, and a record that a newer one had replaced does not come up in its place.
//! 3. `save` reads groups and cold files once more, and appends each record that is alive by that state, with the bytes under whose
//!    checksum it was found, to a new store. What is alive and was not found is lost, and the `report` tells it, log by log.
//!
//! A record is saved only from a batch or a cold record whose checksum holds, and only under the log and LSN that stand under the same
//! checksum; so nothing is saved that was never appended. What is trimmed, truncated or deleted stays so, as far as the checkpoint or an
//! operation that is left tells; where these are damaged the report says what may have come back.
//!
//! The original is opened for reading only, under its lock where it has one. Nothing is linked: the two stores share no file.
//!
//! In a store that has keys as well LavaKV, its host, does the same with those, and both halves go into one new store ([`RepairBeside`]).
//!
//! Memory: the index of all records (a few bytes for each), about 150 bytes for each page of the lane, and what the new store is allowed.

mod known;
mod loose;
mod report;
mod save;
mod sources;

pub use report::{LostBatches, RecordOutcome, RepairGap, RepairReport, RepairedLog};
pub use store::repair::RepairDamage;

use crate::beside::Beside;
use crate::log_store::LogStore;
use crate::manifest::LavaLog;
use crate::options::Options;
use base::{Error, ErrorKind, Result, SeqNo};
use io::{Cancel, Env};
use known::Known;
use sources::Sources;
use std::path::Path;
use store::files::unfinished;
use store::guest::Guest;
use store::manifest::{Engine, EngineId};
use store::repair::{FewOpen, GuestRepair, Judged, Places};

/// How a store of logs is repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Of the new store.
    pub options: Options,
    /// Reads everything, and writes nothing.
    pub dry_run: bool,
    /// The speed disk of the store is lost, and what is in its log alone with it: records in groups that are storage among it.
    pub without_speed: bool,
    /// Of a store that another engine has something in as well, which is refused otherwise: the logs alone are saved.
    pub leave_out_others: bool,
    /// Ends the repair before its time: then nothing is left of the new store.
    pub cancel: Option<Cancel>,
}

impl LogStore {
    /// Makes a new store in `into` of every record that can be proved in the store at `path`, and says what is lost. The damaged store is
    /// only read. `into` must be missing or empty, or what a repair left that was cut off; until the report it is refused by every open.
    ///
    /// # Errors
    /// `Locked` if a process has the store open; `AlreadyExists` if there is something in `into`; `Unsupported` if a newer release
    /// wrote the store, or another engine has something in it; those of writing the new store; what passes by itself, such as a lack of
    /// descriptors, since what could not be read for that is not damaged. Damage is no error: the report tells it.
    pub fn repair(
        from: &Env,
        path: &Path,
        to: &Env,
        into: &Path,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        options.options.check()?;
        let cancel = options.cancel.as_ref();
        let places =
            Places { from: (from, path), into: (to, into), without_speed: options.without_speed, cancel };
        let _lock = places.keep_writers_away()?;
        if !options.dry_run {
            places.check_target()?;
        }
        let listing = from.fs.list(path)?;
        if let Some(work) = unfinished::of(&listing) {
            return Err(unfinished::refusal(path, work));
        }
        let mut report = RepairReport::default();
        let few = FewOpen::over(from, cancel);
        let sources = Sources::look(&few.env, path, &listing, None, &mut report)?;
        if !sources.others.is_empty() && !options.leave_out_others {
            let why = format!(
                "engine {} keeps something in this store that the new store would not have: repair it as a store of that engine, which \
                 saves the logs as well, or ask for the logs alone",
                sources.others.join(", ")
            );
            return Err(Error::new(ErrorKind::Unsupported, why).at_file(path));
        }
        let known = Known::of(&sources, &mut report)?;
        if options.dry_run {
            save::save(None, &sources, &known, &mut report)?;
            return few.check().map(|()| report);
        }
        few.check()?;
        let makes_dir = !to.fs.exists(into)?;
        let mark = places.mark_target()?;
        let new = Options { create_if_missing: true, speed: None, ..options.options.clone() };
        let new = LogStore::open_marked(to, into, &new, Some(&mark))
            .inspect_err(|_| places.clear_target(makes_dir))?;
        let saved = save::save(Some(&new), &sources, &known, &mut report).and_then(|()| few.check());
        if let Err(e) = saved {
            drop(new.close());
            places.clear_target(makes_dir);
            return Err(e);
        }
        // Still under the lock: with the mark there, the next repair would clear away what this one has made.
        mark.finish()?;
        new.close()?;
        Ok(report)
    }
}

/// The logs of a store whose host repairs it: see [`GuestRepair`].
pub struct RepairBeside {
    guest: Beside,
    found: Option<(Sources, Known)>,
    report: RepairReport,
}

impl RepairBeside {
    /// With the options of the new store's logs.
    ///
    /// # Errors
    /// Those of [`Beside::new`].
    pub fn new(options: &Options) -> Result<RepairBeside> {
        Ok(RepairBeside { guest: Beside::new(options)?, found: None, report: RepairReport::default() })
    }

    /// What was done with the logs; `None`: the store has none.
    pub fn report(self) -> Option<RepairReport> {
        self.found.map(|_| self.report)
    }
}

impl GuestRepair for RepairBeside {
    fn engine(&self) -> EngineId {
        LavaLog::ID
    }

    fn look(&mut self, places: &Places<'_>, judged: &Judged) -> Result<Option<Error>> {
        let (env, dir) = places.from;
        let mut report = RepairReport::default();
        let sources = Sources::look(env, dir, &env.fs.list(dir)?, Some(judged), &mut report)?;
        let lost_end = sources.lost_end.clone();
        if lost_end.is_none() {
            let known = Known::of(&sources, &mut report)?;
            // What they carry is saved by the host.
            report.carried = 0;
            (self.report, self.found) = (report, Some((sources, known)));
        }
        Ok(lost_end)
    }

    fn in_files_below(&self) -> SeqNo {
        self.found.as_ref().map_or(0, |(_, known)| known.passed_below)
    }

    fn guest(&mut self) -> &mut dyn Guest {
        &mut self.guest
    }

    fn save(&mut self) -> Result<()> {
        let Some((sources, known)) = &self.found else { return Ok(()) };
        save::save(self.guest.opened(), sources, known, &mut self.report)
    }
}

#[cfg(test)]
mod tests;
