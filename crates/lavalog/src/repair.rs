//! Repair: salvages the provable records of a damaged store into a new store.
//!
//! 1. `sources` examines every file of the directory. These are the manifest, or the intact records
//!    of a damaged one; checkpoints, index files and cold files, by their own contents; and the
//!    groups of the record lane, page by page.
//! 2. `known` replays all of it into the state that an open would reach ([`crate::logs`]): the
//!    checkpoint, every operation of every group, every record of every cold file. It also adds the
//!    rows of index files, although a row proves nothing. So the existence of a lost record is
//!    known, and a record replaced by a newer one does not reappear.
//! 3. `save` reads groups and cold files again. It appends each record that is live in that state,
//!    with the bytes that passed their checksum, to a new store. Live records that were not found
//!    are lost; the `report` lists them by log.
//!
//! A record is saved only from a batch or a cold record with a valid checksum. The same checksum
//! covers its log and LSN. So nothing is saved that was never appended. Trims, truncations and
//! deletions stay in effect as far as the checkpoint or a remaining operation has them. Where these
//! are damaged, the report lists the records that may have come back.
//!
//! The original is opened read-only, under its lock if it has one. Nothing is linked: the two
//! stores share no file.
//!
//! In a store shared with LavaKV, the host LavaKV repairs its own data, and both parts go into one
//! new store ([`SecondaryLogRepair`]).
//!
//! Memory: the index of all records (a few bytes for each), about 150 bytes per page of the record
//! lane, and the memory of the new store.

mod known;
mod loose;
mod report;
mod save;
mod sources;

pub use report::{LostBatches, RecordOutcome, RepairGap, RepairReport, RepairedLog};
pub use store::repair::RepairDamage;

use crate::log_store::LogStore;
use crate::manifest::LavaLog;
use crate::options::Options;
use crate::secondary::SecondaryLogs;
use base::{Error, ErrorKind, Result, SeqNo};
use io::{Cancel, Env};
use known::SalvagedState;
use sources::Sources;
use std::path::Path;
use store::files::unfinished;
use store::manifest::{Engine, EngineId};
use store::repair::{FewOpen, Judged, Places, SecondaryRepair};
use store::secondary_engine::SecondaryEngine;

/// Chooses how `LogStore::repair` salvages damaged logs: a dry run to learn the losses first, the
/// options of the new store, cancellation. The default repairs all of it.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Options of the new store. A value out of range fails the repair with `InvalidArgument`.
    pub options: Options,
    /// Whether to read everything and write nothing, to learn the losses first; the report is the
    /// same. Default: false.
    pub dry_run: bool,
    /// Whether the fast tier is lost, and with it all records in the log, including sealed groups:
    /// only records in cold files are left. If the disk exists, pass both directories
    /// (`Volumes::env`). Default: false.
    pub without_fast_tier: bool,
    /// Whether to save only the logs of a store that also has keys. Otherwise such a store is
    /// refused with `Unsupported`: `Db::repair` saves both. Default: false.
    pub leave_out_others: bool,
    /// Cancels a long repair, which then removes the new store and fails with `Cancelled`. Default:
    /// none.
    pub cancel: Option<Cancel>,
}

impl LogStore {
    /// Salvages every provable record of the store at `path` into a new store in `into`, and
    /// reports losses. The damaged store is only read. `into` must be missing, empty, or left by an
    /// interrupted repair; every open refuses it until the repair is complete.
    ///
    /// # Errors
    /// `Locked` if a process has the store open; `AlreadyExists` if `into` is not empty;
    /// `Unsupported` if a newer release wrote the store, or it is shared with another engine;
    /// errors of writing the new store. Also temporary errors such as a lack of descriptors, since
    /// data that could not be read for such a reason is not damaged. Damage is no error: the report
    /// describes it.
    pub fn repair(
        from: &Env,
        path: &Path,
        to: &Env,
        into: &Path,
        options: &RepairOptions,
    ) -> Result<RepairReport> {
        options.options.check()?;
        let cancel = options.cancel.as_ref();
        let places = Places {
            from: (from, path),
            into: (to, into),
            without_fast_tier: options.without_fast_tier,
            cancel,
        };
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
                "the store has data of engine {}, which the new store would lack: repair the store with that engine, which saves the logs as well, or request the logs alone",
                sources.others.join(", ")
            );
            return Err(Error::new(ErrorKind::Unsupported, why).at_file(path));
        }
        let known = SalvagedState::of(&sources, &mut report)?;
        if options.dry_run {
            save::save(None, &sources, &known, &mut report)?;
            return few.check().map(|()| report);
        }
        few.check()?;
        let makes_dir = !to.fs.exists(into)?;
        let mark = places.mark_target()?;
        let new = Options { create_if_missing: true, fast_tier: None, ..options.options.clone() };
        let new = LogStore::open_marked(to, into, &new, Some(&mark))
            .inspect_err(|_| places.clear_target(makes_dir))?;
        let saved = save::save(Some(&new), &sources, &known, &mut report).and_then(|()| few.check());
        if let Err(e) = saved {
            drop(new.close());
            places.clear_target(makes_dir);
            return Err(e);
        }
        // Still under the lock: as long as the mark exists, another repair would remove this store.
        mark.finish()?;
        new.close()?;
        Ok(report)
    }
}

/// The repair of logs for the host engine: see [`SecondaryRepair`].
pub struct SecondaryLogRepair {
    secondary: SecondaryLogs,
    found: Option<(Sources, SalvagedState)>,
    report: RepairReport,
}

impl SecondaryLogRepair {
    /// Creates the repair with the options of the new store's logs.
    ///
    /// # Errors
    /// The errors of [`SecondaryLogs::new`].
    pub fn new(options: &Options) -> Result<SecondaryLogRepair> {
        Ok(SecondaryLogRepair {
            secondary: SecondaryLogs::new(options)?,
            found: None,
            report: RepairReport::default(),
        })
    }

    /// Returns the report, or `None` if the store has no logs.
    pub fn report(self) -> Option<RepairReport> {
        self.found.map(|_| self.report)
    }
}

impl SecondaryRepair for SecondaryLogRepair {
    fn engine(&self) -> EngineId {
        LavaLog::ID
    }

    fn look(&mut self, places: &Places<'_>, judged: &Judged) -> Result<Option<Error>> {
        let (env, dir) = places.from;
        let mut report = RepairReport::default();
        let sources = Sources::look(env, dir, &env.fs.list(dir)?, Some(judged), &mut report)?;
        let lost_end = sources.lost_end.clone();
        if lost_end.is_none() {
            let known = SalvagedState::of(&sources, &mut report)?;
            // The host engine saves the embedded batches.
            report.carried = 0;
            (self.report, self.found) = (report, Some((sources, known)));
        }
        Ok(lost_end)
    }

    fn in_files_below(&self) -> SeqNo {
        self.found.as_ref().map_or(0, |(_, known)| known.passed_below)
    }

    fn secondary(&mut self) -> &mut dyn SecondaryEngine {
        &mut self.secondary
    }

    fn save(&mut self) -> Result<()> {
        let Some((sources, known)) = &self.found else { return Ok(()) };
        save::save(self.secondary.opened(), sources, known, &mut self.report)
    }
}

#[cfg(test)]
mod tests;
