//! The last part of opening, after which the store is writable: the old log is sealed, and a new
//! one begins.
//!
//! 1. Values that replay found beside the log are flushed ([`settle_placed`]).
//! 2. One edit seals the log at its end and discards the rest, so that truncated records cannot
//!    reappear after a second crash.
//! 3. Unnamed files, left over from unfinished jobs, are removed.
//! 4. A new log begins in a new group.
//! 5. If there are very many old log groups, their content is flushed, and they are released
//!    ([`bound_old_log`]).
//!
//! # A full volume
//!
//! Each step may run out of space; that undoes no step, and all may be retried. Before it gives up,
//! [`begin`] frees space in this order. It removes unnamed files (the manifest was recovered and
//! agrees with the log, so they are orphans). It releases the space reserved for jobs. It flushes
//! the recovered memtables, after which no old log group is needed, and the new ones reuse their
//! files. At last it releases the rest of the reserved space. If even that is too little, the store
//! is open nevertheless: all data is readable, and each write (or other call that needs a log)
//! tries again, so that service begins once there is space.
//!
//! The same holds at a space limit, for the logs of secondary engines as well: groups are created
//! within the limit, or in the freed space. If nothing can be freed, groups are created above the
//! limit, as short as possible, since no call could free space otherwise. Flushed data was admitted
//! when it was logged. But the trims of a secondary engine may have used its space since, so
//! flushes keep to the limit as well.

use crate::batch::DEFAULT_FAMILY;
use crate::context::family_options::FamilyOptions;
use crate::engine::Engine;
use crate::files::data_file::DataFile;
use crate::files::log::TENANT;
use crate::large::placed::PlacedValues;
use crate::open::{overflow, settle_placed};
use base::sync::lock;
use base::{Error, ErrorKind, Result};
use io::DirEntry;
use std::sync::Arc;
use store::commit::ReservePurpose;
use version::names::{self, FileKind};
use version::{Edit, FileMeta, Record};
use wal::{Lane, PreparedGroup, RecoveryReport};

/// A recovered store without a log.
pub(crate) struct Unstarted {
    report: RecoveryReport,
    /// Report of the secondary engine's lane, until that lane has begun.
    records: Option<RecoveryReport>,
    /// The files in the directory at open.
    listing: Vec<DirEntry>,
    /// True if values beside the log must be flushed first.
    settles_placed: bool,
    /// True if all recovered data is in tables.
    flushed: bool,
    /// The first group of the new log, once the manifest lists it.
    first: Option<PreparedGroup>,
    /// The first group of the secondary engine's lane.
    records_first: Option<PreparedGroup>,
    /// True if nothing else freed space, so that the limit is ignored.
    past_limit: bool,
}

/// Ways to free space, in the order of their use.
#[derive(Clone, Copy)]
enum Way {
    Orphans,
    ReservePurpose(ReservePurpose),
    Flush,
    PastLimit,
}

const WAYS: [Way; 5] = [
    Way::Orphans,
    Way::ReservePurpose(ReservePurpose::Jobs),
    Way::Flush,
    Way::ReservePurpose(ReservePurpose::Log),
    Way::PastLimit,
];

impl Unstarted {
    pub fn new(
        (report, placed): (RecoveryReport, PlacedValues),
        records: Option<RecoveryReport>,
        listing: Vec<DirEntry>,
    ) -> Unstarted {
        Unstarted {
            report,
            records,
            listing,
            settles_placed: placed.is_any(),
            flushed: false,
            first: None,
            records_first: None,
            past_limit: false,
        }
    }

    fn start(&mut self, engine: &Engine) -> Result<()> {
        if !self.past_limit {
            engine.space.ceiling.bound_recovery(engine.log.records().is_some());
        }
        if self.settles_placed {
            settle_placed(engine)?;
            self.settles_placed = false;
        }
        if self.flushed {
            engine.log.floors().tell(TENANT, engine.tree.log_floor());
            engine.log.recovery().let_go(&mut self.report);
        }
        engine.log.recovery().end_old(&self.report, self.first.as_ref().map(|group| group.ltn))?;
        self.bound_files(engine);
        self.start_records(engine)?;
        self.bound_files(engine);
        remove_orphans(engine, &self.listing)?;
        let first = match self.first.take() {
            Some(first) => first,
            None => engine.log.recovery().list_first()?,
        };
        let first = self.first.insert(first).clone();
        engine.log.begin(first, &self.report)
    }

    /// Creates groups within the limit, minus the tail buffers of lanes that have not begun.
    fn bound_files(&self, engine: &Engine) {
        if !self.past_limit {
            let of_secondary = engine.log.records().map_or(0, |lane| lane.recovery().unmade_bytes());
            engine.space.ceiling.bound_files_beside(engine.log.recovery().unmade_bytes() + of_secondary);
        }
    }

    /// Seals and resumes the lane of a secondary engine, once.
    fn start_records(&mut self, engine: &Engine) -> Result<()> {
        if let Some((lane, report)) = engine.log.records().zip(self.records.as_ref()) {
            lane.recovery().end_old(report, None)?;
            lane.recovery().resume(report, &mut self.records_first)?;
            self.records = None;
        }
        Ok(())
    }

    /// Applies a way to free space. Returns whether it may have freed some.
    fn make_way(&mut self, engine: &Engine, way: Way) -> Result<bool> {
        match way {
            Way::Orphans if !self.settles_placed => {
                remove_orphans(engine, &self.listing)?;
                Ok(true)
            }
            Way::Orphans => Ok(false),
            Way::ReservePurpose(part) => Ok(engine.log.spares().release_reserved(part)),
            Way::Flush if self.flushed || self.first.is_some() => Ok(false),
            Way::Flush => {
                engine.space.ceiling.bound_recovery(engine.log.records().is_some());
                match overflow::flush_all(&engine.jobs) {
                    Err(e) if e.kind() == ErrorKind::NoSpace => return Ok(false),
                    flushed => flushed?,
                }
                self.flushed = true;
                Ok(true)
            }
            Way::PastLimit => {
                engine.space.ceiling.let_files_in();
                self.past_limit = true;
                Ok(true)
            }
        }
    }
}

/// Begins service, unless it has begun.
///
/// # Errors
/// `NoSpace`: nothing is lost, and the call may be repeated.
pub(crate) fn begin(engine: &Engine) -> Result<()> {
    let mut waiting = lock(&engine.unstarted);
    let Some(unstarted) = waiting.as_mut() else { return Ok(()) };
    engine.log.spares().adopt_ballast(&unstarted.listing)?;
    let mut ways = WAYS.into_iter();
    loop {
        let Err(e) = unstarted.start(engine) else { break };
        if e.kind() != ErrorKind::NoSpace {
            return Err(e);
        }
        engine.log.spares().room_is_short();
        loop {
            let Some(way) = ways.next() else { return Err(no_room(engine, &e)) };
            if unstarted.make_way(engine, way)? {
                break;
            }
        }
    }
    *waiting = None;
    drop(waiting);
    // Work that recovery had no space for is retried.
    engine.context.health.space_found();
    update_default_options(engine)?;
    engine.space.ceiling.bound_files();
    if let Err(e) = engine.log.preparation().fill_reserved()
        && e.kind() != ErrorKind::NoSpace
    {
        return Err(e);
    }
    flush_recovered(engine);
    engine.log.floors().hint();
    if let Some(ceiling) = engine.files.manifest.state().store.space_ceiling {
        engine.space.ceiling.take(ceiling);
    }
    engine.tree.refresh_space();
    engine.tree.tell_ceiling(engine.log.records().is_some())?;
    engine.context.signals.notify_work();
    Ok(())
}

fn no_room(engine: &Engine, e: &Error) -> Error {
    let why = "cannot begin a log: the volume is full; free space on it; reads continue, writes \
               and deletes then resume";
    Error::new(ErrorKind::NoSpace, why).at_file(engine.context.full_dir(Some(e))).caused_by(e.clone())
}

/// Number of old log groups that an open leaves alone. A few records are cheaper in the log than in
/// a table of their own. But every open adds a group, so a store that is opened often must flush
/// sometimes.
const OLD_GROUPS_MAX: usize = 2;
/// Number of old groups that an open must reduce before it completes. Processes that run a single
/// command never complete a background job, and each would add a group to the log. Groups of full
/// length do not count: they come from a busy store, and have a bound of their own.
const OLD_GROUPS_BOUND: usize = 16;
/// The same bound if the open used reserved space: each of these groups takes part of it, and a
/// flush needs the rest.
const OLD_GROUPS_SHORT: usize = 1;

/// Returns the number of groups of LavaKV's log, including the new one.
fn old_groups(engine: &Engine) -> usize {
    engine.files.manifest.state().store.log_groups.chain(Lane::FIRST).count()
}

/// Returns the number of groups below full length.
fn short_groups(engine: &Engine) -> usize {
    let state = engine.files.manifest.state();
    let is_short = |len: u64| len < engine.context.options.expert.log_group_bytes;
    state.store.log_groups.chain(Lane::FIRST).filter(|group| is_short(group.len)).count()
}

/// Flushes the recovered memtables if they hold many old log groups.
fn flush_recovered(engine: &Engine) {
    if old_groups(engine) > OLD_GROUPS_MAX + 1 {
        engine.writes.memtables.freeze_all(&mut engine.writes.memtables.lock());
    }
}

/// Reduces the old log groups to their bound. Called before the workers start.
pub(crate) fn bound_old_log(engine: &Engine) -> Result<()> {
    let short = engine.log.spares().reserved_is_short();
    let within = match short {
        true => old_groups(engine) <= OLD_GROUPS_SHORT + 1,
        false => short_groups(engine) <= OLD_GROUPS_BOUND + 1,
    };
    if engine.log.get().is_none() || within {
        return Ok(());
    }
    let flushed =
        overflow::flush_all(&engine.jobs).and_then(|()| engine.log.release(|| engine.tree.log_floor()));
    let flushed =
        flushed.and_then(|()| if short { engine.log.preparation().fill_reserved() } else { Ok(()) });
    match flushed {
        // Jobs will do it once there is space.
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        flushed => flushed,
    }
}

/// Removes the files that neither the manifest nor the log names.
fn remove_orphans(engine: &Engine, listing: &[DirEntry]) -> Result<()> {
    let state = engine.files.manifest.state();
    let live_manifests = engine.files.manifest.live_manifest_files();
    for entry in listing {
        let orphan = match names::parse(&entry.name) {
            // A copy on another tier than in the manifest is an orphan.
            Some(kind @ (FileKind::Ksst(n) | FileKind::FastKsst(n))) => {
                let is_it = |table: &Arc<FileMeta>| table.kind() == kind;
                !state.table(n).is_some_and(is_it)
            }
            Some(kind @ (FileKind::Vsst(n) | FileKind::FastVsst(n))) => {
                let is_it = DataFile::find(&state, n)
                    .is_some_and(|file| matches!(file, DataFile::Vsst(_)) && file.kind() == kind);
                let is_segment = kind == FileKind::Vsst(n) && engine.writes.large.segments.holds(n);
                !is_it && !is_segment
            }
            Some(FileKind::Log(n)) => state.store.log_groups.in_file(n).is_none() && !engine.log.keeps(n),
            Some(FileKind::Room(n)) => !engine.log.keeps(n),
            // Files of another engine belong to it as long as it exists: only that engine knows
            // which ones it needs.
            Some(kind @ FileKind::Engine { .. }) => state.store.engines.is_of_removed(kind),
            Some(FileKind::Manifest(_) | FileKind::ManifestCopy(_) | FileKind::CurrentCopy) => {
                !live_manifests.contains(&entry.name)
            }
            // The values of tail files were flushed before.
            Some(
                FileKind::CurrentTemp
                | FileKind::CurrentCopyTemp
                | FileKind::StagingTemp(_)
                | FileKind::Tail(_),
            ) => true,
            // A nonempty one belongs to a repair, which removes it at its end.
            Some(FileKind::Unfinished) => entry.len == 0,
            // Staged data of another lane belongs to the engine that opens the lane.
            Some(
                FileKind::Current
                | FileKind::Lock
                | FileKind::Staging
                | FileKind::LaneStaging(_)
                | FileKind::FastTier
                | FileKind::FastLock,
            )
            | None => false,
        };
        // Recovery's flushes are newer than the listing, so no job uses a listed file.
        if orphan {
            engine.files.remove(&entry.name)?;
        }
    }
    Ok(())
}

/// Stores the options of the default family if they changed.
fn update_default_options(engine: &Engine) -> Result<()> {
    let Some(family) = engine.tree.families.get(DEFAULT_FAMILY) else { return Ok(()) };
    let given = family.settings.given();
    let wanted = engine.context.options.family.clone().keeping_operator(&given);
    // An unknown policy stays until the user explicitly chooses another one.
    if *given != wanted && family.policy().is_some() {
        engine
            .context
            .options
            .family
            .check_names(&engine.context.options)
            .map_err(|e| e.context("column family default"))?;
        let edit = Edit(vec![Record::UpdateFamily { id: DEFAULT_FAMILY, options: wanted.encode() }]);
        match engine.files.manifest.commit(edit) {
            // The next open stores them. Only a stored operator allows operands.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                let merge_operator = given.merge_operator.clone();
                family.set_options(FamilyOptions { merge_operator, ..wanted });
            }
            stored => {
                stored?;
                family.set_options(wanted);
            }
        }
    }
    Ok(())
}
