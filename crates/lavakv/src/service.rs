//! The last part of opening, after which the store can be written: the old log ends for good, a new one begins.
//!
//! 1. Values that replay found beside the log go into tables ([`settle_placed`]).
//! 2. In one edit, seal the log where it ended and drop what lies beyond, so that nothing that was cut off can come back
//!    after a second crash.
//! 3. Remove files that nothing names: what unfinished jobs left.
//! 4. Start a new log in a new group.
//! 5. If there are very many groups of old logs, flush what they hold and let go of them ([`bound_old_log`]).
//!
//! # A full volume
//!
//! Each of these steps may find no room; none of them is undone by that, and all may be tried again. Before it gives up,
//! [`begin`] makes way: it removes files that nothing names (the manifest was recovered and the log has borne it out, so
//! they are nobody's), then the part of the ballast that is there for jobs, then flushes what was recovered, after which
//! no group of the old log is needed and the new one is made of their files, and at last gives up the rest of the ballast.
//! If even that is too little the store is open all the same: everything in it is read, and each write (and whatever else
//! needs a log) tries again, so that it goes on when room returns.
//!
//! Below a limit that is reached it is the same, for the logs of guests as well: groups are made in the room that there is, or in what gives
//! way. Where nothing does they are made above the limit, as short as can be: nobody could free anything otherwise. What is flushed
//! was admitted when it was logged, but a guest's trims may have taken its room since, so it keeps below the limit as well.

use crate::batch::DEFAULT_FAMILY;
use crate::engine::Engine;
use crate::files::data_file::DataFile;
use crate::files::log::TENANT;
use crate::large::placed::PlacedValues;
use crate::open::{overflow, settle_placed};
use base::sync::lock;
use base::{Error, ErrorKind, Result};
use io::DirEntry;
use std::sync::Arc;
use store::commit::Ballast;
use version::names::{self, FileKind};
use version::{Edit, FileMeta, Record};
use wal::{Lane, PreparedGroup, RecoveryReport};

/// A store that was recovered and has no log yet.
pub(crate) struct Unstarted {
    report: RecoveryReport,
    /// Of the lane of a guest, until that has begun.
    records: Option<RecoveryReport>,
    /// The files that were there.
    listing: Vec<DirEntry>,
    /// Values that lay beside the log are to go into tables first.
    settles_placed: bool,
    /// All that was recovered is in tables.
    flushed: bool,
    /// The group in which the log is to begin, once the manifest lists it.
    first: Option<PreparedGroup>,
    /// The same of the lane of a guest.
    records_first: Option<PreparedGroup>,
    /// Nothing gave way: a limit is no reason.
    past_limit: bool,
}

/// Ways to make room, in the order in which they are tried.
#[derive(Clone, Copy)]
enum Way {
    Orphans,
    Ballast(Ballast),
    Flush,
    PastLimit,
}

const WAYS: [Way; 5] =
    [Way::Orphans, Way::Ballast(Ballast::Jobs), Way::Flush, Way::Ballast(Ballast::Log), Way::PastLimit];

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

    /// Groups are made within the limit, beside the open pages of lanes that have not begun.
    fn bound_files(&self, engine: &Engine) {
        if !self.past_limit {
            let of_guest = engine.log.records().map_or(0, |lane| lane.recovery().unmade_bytes());
            engine.space.ceiling.bound_files_beside(engine.log.recovery().unmade_bytes() + of_guest);
        }
    }

    /// The lane of a guest: its old log ends, and goes on. Once.
    fn start_records(&mut self, engine: &Engine) -> Result<()> {
        if let Some((lane, report)) = engine.log.records().zip(self.records.as_ref()) {
            lane.recovery().end_old(report, None)?;
            lane.recovery().resume(report, &mut self.records_first)?;
            self.records = None;
        }
        Ok(())
    }

    /// True if this may have made room.
    fn make_way(&mut self, engine: &Engine, way: Way) -> Result<bool> {
        match way {
            Way::Orphans if !self.settles_placed => {
                remove_orphans(engine, &self.listing)?;
                Ok(true)
            }
            Way::Orphans => Ok(false),
            Way::Ballast(part) => Ok(engine.log.spares().give_ballast(part)),
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

/// Begins service, if it has not begun.
///
/// # Errors
/// `NoSpace`: nothing is lost, and the same call may be made again.
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
    // What recovery found no room for is tried again.
    engine.context.health.space_found();
    update_default_options(engine)?;
    engine.space.ceiling.bound_files();
    if let Err(e) = engine.log.preparation().fill_ballast()
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
    let why = "there is no room on the volume to begin a log: reads go on; make room, and writes and deletes resume";
    Error::new(ErrorKind::NoSpace, why).at_file(engine.context.full_dir(Some(e))).caused_by(e.clone())
}

/// Groups of earlier logs that are left alone at open. A few records are cheaper in the log than in a table of their
/// own, but every open adds a group, so a store that is opened often must flush now and then.
const OLD_GROUPS_MAX: usize = 2;
/// With more of them than this a store does not open before they are gone. Processes that live for one command never
/// get to the end of a job in the background, and the log would grow by a group with each of them. Groups as long as a group
/// can be do not count: they are those of a store that was at work, and their number has a bound of its own.
const OLD_GROUPS_BOUND: usize = 16;
/// The same where an opening took of the ballast: each of these groups is a part of it, and a flush has room as long as some
/// of it is left.
const OLD_GROUPS_SHORT: usize = 1;

/// The groups of LavaKV's log, the one that was just begun included.
fn old_groups(engine: &Engine) -> usize {
    engine.files.manifest.state().store.log_groups.chain(Lane::FIRST).count()
}

/// Those that are shorter than a group can be.
fn short_groups(engine: &Engine) -> usize {
    let state = engine.files.manifest.state();
    let is_short = |len: u64| len < engine.context.options.expert.log_group_bytes;
    state.store.log_groups.chain(Lane::FIRST).filter(|group| is_short(group.len)).count()
}

/// Flushes what recovery put into memtables if it holds many groups of the old log.
fn flush_recovered(engine: &Engine) {
    if old_groups(engine) > OLD_GROUPS_MAX + 1 {
        engine.writes.memtables.freeze_all(&mut engine.writes.memtables.lock());
    }
}

/// Keeps the groups of old logs within their bound. To be called before there are workers.
pub(crate) fn bound_old_log(engine: &Engine) -> Result<()> {
    let short = engine.log.spares().ballast_is_short();
    let within = match short {
        true => old_groups(engine) <= OLD_GROUPS_SHORT + 1,
        false => short_groups(engine) <= OLD_GROUPS_BOUND + 1,
    };
    if engine.log.get().is_none() || within {
        return Ok(());
    }
    let flushed =
        overflow::flush_all(&engine.jobs).and_then(|()| engine.log.release(|| engine.tree.log_floor()));
    let flushed = flushed.and_then(|()| if short { engine.log.preparation().fill_ballast() } else { Ok(()) });
    match flushed {
        // Then jobs will do it when there is room.
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
            // A copy on a disk where the manifest has it not is nobody's.
            Some(kind @ (FileKind::Ksst(n) | FileKind::SpeedKsst(n))) => {
                let is_it = |table: &Arc<FileMeta>| table.kind() == kind;
                !state.table(n).is_some_and(is_it)
            }
            Some(kind @ (FileKind::Vsst(n) | FileKind::SpeedVsst(n))) => {
                let is_it = DataFile::find(&state, n)
                    .is_some_and(|file| matches!(file, DataFile::Vsst(_)) && file.kind() == kind);
                let is_segment = kind == FileKind::Vsst(n) && engine.writes.large.segments.holds(n);
                !is_it && !is_segment
            }
            Some(FileKind::Log(n)) => state.store.log_groups.in_file(n).is_none() && !engine.log.keeps(n),
            Some(FileKind::Room(n)) => !engine.log.keeps(n),
            // Another engine's, listed or not, are its own affair as long as there is one: it alone knows what is still needed.
            Some(kind @ FileKind::Engine { .. }) => state.store.engines.is_of_removed(kind),
            Some(FileKind::Manifest(_) | FileKind::ManifestCopy(_) | FileKind::CurrentCopy) => {
                !live_manifests.contains(&entry.name)
            }
            // What was read from a tail is in tables since a moment ago.
            Some(
                FileKind::CurrentTemp
                | FileKind::CurrentCopyTemp
                | FileKind::StagingTemp(_)
                | FileKind::Tail(_),
            ) => true,
            // One with contents is that of a repair, which removes it when it is done.
            Some(FileKind::Unfinished) => entry.len == 0,
            // What another lane has staged is for who opens it.
            Some(
                FileKind::Current
                | FileKind::Lock
                | FileKind::Staging
                | FileKind::LaneStaging(_)
                | FileKind::Speed
                | FileKind::SpeedLock,
            )
            | None => false,
        };
        // Recovery's own flushes are newer than the listing, so nothing listed belongs to a running job.
        if orphan {
            engine.files.remove(&entry.name)?;
        }
    }
    Ok(())
}

/// Stores the options of the default family if they changed.
fn update_default_options(engine: &Engine) -> Result<()> {
    let Some(family) = engine.tree.families.get(DEFAULT_FAMILY) else { return Ok(()) };
    let wanted = &engine.context.options.family;
    // A policy that is not known here stays until somebody says expressly that the family is to have another.
    if *family.settings.given() != *wanted && family.policy().is_some() {
        wanted.check_policy(&engine.context.options).map_err(|e| e.context("column family default"))?;
        let edit = Edit(vec![Record::UpdateFamily { id: DEFAULT_FAMILY, options: wanted.encode() }]);
        match engine.files.manifest.commit(edit) {
            // Then the next open stores them.
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            stored => drop(stored?),
        }
        family.set_options(wanted.clone());
    }
    Ok(())
}
