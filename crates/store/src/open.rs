//! A store in the hands of an engine that has no roof of its own: lock, manifest and log, opened for whatever engines are
//! named.
//!
//! 1. Take the lock, so that nobody else changes what is read.
//! 2. Recover the manifest. Engines that it lists and that were not named are *away*: their records, files and their part
//!    of the log stay as they are.
//! 3. Replay the log: whoever opens gets every batch, with the tenant whose it is.
//! 4. Check that the manifest has not lost its end (see [`crate::commit::read`]).
//! 5. Make the end of the old log final, begin a new one, remove what nobody lists: old manifests and log files. Files of
//!    engines are theirs to judge ([`Replayed::remove`]), but for those of an engine that was removed.
//!
//! **Where there is no room**, on the volume or below a limit that is kept strictly ([`Terms::is_strict`]): a new log begins in a group that
//! is as short as can be, or in a file that waits to be used again, or in the room of the ballast, whichever lane it is of. It leaves the open pages of all
//! lanes their room, whose files are never refused and may be gone since the power failed. Below a limit
//! that is too little even for that, the group is made above it: nobody who cannot open a store could make it smaller. On a full volume
//! the store is refused.
//!
//! There is no background: whoever holds the store calls [`Store::tend`] when he has time. An engine with jobs of its own
//! drives the log from them (LavaKV does), and needs of all this only the parts.

use crate::commit::{Ballast, Lane, Log, LogTerms, LoggedBatch, ballast_bytes, read};
use crate::context::Context;
use crate::engines;
use crate::files::Files;
use crate::files::unfinished::{self, Mark};
use crate::manifest::{Engines, InitialState, Manifest};
use crate::names::{self, FileKind};
use crate::space::{Sizes, SpaceBudget, Terms};
use crate::speed;
use crate::volumes::Location;
use base::{ErrorKind, Result};
use io::{DirEntry, Env};
use std::path::Path;
use std::sync::Arc;
use wal::{OnReplay, RecoveryReport};

/// See the module.
pub struct Store {
    files: Arc<Files>,
    log: Arc<Log>,
    /// The lane that keeps records.
    records: Option<Arc<Log>>,
    space: Arc<SpaceBudget>,
}

/// Ways to make room for a log to begin in, in the order in which they are tried.
#[derive(Clone, Copy)]
enum Way {
    Ballast(Ballast),
    PastLimit,
}

const WAYS: [Way; 3] = [Way::Ballast(Ballast::Log), Way::Ballast(Ballast::Jobs), Way::PastLimit];

/// How long the pieces of a store's logs may be.
#[derive(Clone, Copy, Debug)]
pub struct StoreTerms {
    /// Of the first lane.
    pub log: LogTerms,
    /// Of the lane that keeps records ([`Lane::LOG`]); `None`: it is not opened.
    pub records: Option<LogTerms>,
}

/// Gets a batch, and the lane it is in: all of the first lane, in order, then all of the next.
pub type OnLanes<'a> = dyn FnMut(Lane, &LoggedBatch<'_>) -> Result<()> + 'a;

/// What a store may occupy whose engines keep nothing but the log: there is no limit.
fn unlimited(terms: &LogTerms) -> Terms {
    Terms::unlimited(Sizes {
        memtable_bytes: 0,
        memory_bytes: 0,
        log_group_bytes: terms.group_bytes,
        ballast_bytes: ballast_bytes(terms.group_bytes),
        wal_bytes_max: u64::MAX,
    })
}

/// A store whose manifest is read and whose logs are not: an engine that keeps something in files reads that first, so that what is
/// replayed finds it there. Dropped, it has changed nothing but the lock.
#[derive(Debug)]
pub struct Opening {
    store: Store,
    listing: Vec<DirEntry>,
}

impl Opening {
    /// Takes the lock and reads the manifest, or makes them: see [`Store::open_lanes`].
    ///
    /// # Errors
    /// As there, without those of the logs.
    pub fn begin(env: &Env, dir: &Path, terms: StoreTerms, engines: &Engines) -> Result<Opening> {
        Opening::begin_within(env, dir, terms, unlimited(&terms.log), engines, None)
    }

    /// As [`Opening::begin`], by an engine that says what the store may occupy, and keeps to it: it refreshes the budget
    /// ([`Store::space`]) from when the store is open on. With the `mark` that it is not whole yet, for whoever set it.
    ///
    /// # Errors
    /// As there.
    pub fn begin_within(
        env: &Env,
        dir: &Path,
        terms: StoreTerms,
        space: Terms,
        engines: &Engines,
        mark: Option<&Mark>,
    ) -> Result<Opening> {
        crate::directory::make(env, dir)?;
        if !crate::directory::has_store(env, dir)? {
            speed::make_place(env, dir)?;
        }
        let context = Arc::new(Context::new(env, Location::metered(env, dir)));
        let env = &context.env;
        let held = crate::directory::lock(env, dir)?;
        if mark.is_none() {
            unfinished::refuse_beside_current(&*env.fs, dir)?;
        }
        let manifest = match crate::directory::has_store(env, dir)? {
            true => Manifest::recover(env, dir, false, engines)?,
            false => Manifest::create(env, dir, InitialState::default(), engines)?,
        };
        let held = speed::both(held, speed::attach(env, dir, &manifest)?);
        let manifest = Arc::new(manifest);
        let listing = env.fs.list(dir)?;
        context.volumes.directory().meter.take_over(&listing);
        let state = manifest.state();
        read::check_whole(dir, &listing, &state)?;
        read::check_known(env, dir, &listing, &state, &manifest.report().name)?;
        manifest.bump_file_number(names::largest_number(
            listing.iter().filter_map(|entry| names::parse(&entry.name)),
        ));
        let files = Arc::new(Files::new(&context, manifest, Some(held)));
        let space = Arc::new(SpaceBudget::new(&context, space));
        let records = terms.records.map(|terms| {
            let log = Log::of_lane(Lane::LOG, terms, files.clone(), space.clone());
            Arc::new(log)
        });
        let log = Arc::new(Log::new(terms.log, files.clone(), space.clone()));
        Ok(Opening { store: Store { files, log, records, space }, listing })
    }

    /// What every part of the store is given.
    pub fn context(&self) -> &Arc<Context> {
        self.store.context()
    }

    /// The manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.store.manifest()
    }

    /// Replays the logs: what the manifest says holds, and what it does not list is nobody's.
    ///
    /// # Errors
    /// `Corruption` if a log lost what was durable; those of `replay`.
    pub fn replay(self, replay: &mut OnLanes<'_>) -> Result<Replayed> {
        let Opening { store, listing } = self;
        // All that there is is judged before anything follows from it.
        let reports: Vec<RecoveryReport> = store
            .lanes()
            .map(|log| log.recovery().replay(&mut |batch| replay(log.lane(), batch)))
            .collect::<Result<_>>()?;
        Ok(Replayed { store, listing, reports })
    }
}

/// A store whose logs are replayed and not begun. Dropped, it has changed nothing but the lock, and what was removed.
#[derive(Debug)]
pub struct Replayed {
    store: Store,
    listing: Vec<DirEntry>,
    /// Of each lane.
    reports: Vec<RecoveryReport>,
}

impl Replayed {
    /// Removes the files for which `is_stranger`: those of an engine that no edit names, which a job had not finished. Before logs begin,
    /// for which what they occupy may be wanted.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, is_stranger: impl Fn(FileKind) -> bool) -> Result<()> {
        let strangers =
            self.listing.iter().filter(|entry| names::parse(&entry.name).is_some_and(&is_stranger));
        strangers.into_iter().try_for_each(|entry| self.store.files.remove(&entry.name))
    }

    /// The logs begin: the store is open.
    ///
    /// # Errors
    /// `NoSpace` if there is no room on the volume to begin one; those of the file system.
    pub fn begin(self) -> Result<Store> {
        let Replayed { store, listing, mut reports } = self;
        store.log.spares().adopt_ballast(&listing)?;
        for (log, report) in store.lanes().zip(&mut reports) {
            // Of lives that end at once each leaves a group, and none would ever get to let go of it.
            log.recovery().let_go(report);
            log.recovery().end_old(report, None)?;
        }
        store.remove_orphans(&listing)?;
        for (log, report) in store.lanes().zip(&reports) {
            store.space.ceiling.bound_files_beside(store.unmade_bytes());
            store.resume(log, report)?;
        }
        store.space.ceiling.bound_files();
        match store.log.preparation().fill_ballast() {
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            filled => filled?,
        }
        Ok(store)
    }
}

impl Store {
    /// Opens the store in a directory, or makes one, and replays its log.
    ///
    /// # Errors
    /// `Busy` or what the file system says if somebody else has it, `NotFound` if a repair of it has not come to its end,
    /// `Corruption` if the manifest or the log lost what was durable, `Unsupported` if a newer release wrote it, `NoSpace` if
    /// there is no room to begin a log; those of `replay`.
    pub fn open(
        env: &Env,
        dir: &Path,
        terms: LogTerms,
        engines: &Engines,
        replay: &mut OnReplay<'_>,
    ) -> Result<Store> {
        let terms = StoreTerms { log: terms, records: None };
        let mut on_batch =
            |_: Lane, batch: &LoggedBatch<'_>| replay(batch.tenant, batch.first_seq, batch.bytes);
        Store::open_lanes(env, dir, terms, engines, &mut on_batch)
    }

    /// As [`Store::open`], with the lane that keeps records, if terms are given for it. Without, that lane stays as it is: its groups,
    /// their files, and what is staged of it.
    ///
    /// # Errors
    /// As there.
    pub fn open_lanes(
        env: &Env,
        dir: &Path,
        terms: StoreTerms,
        engines: &Engines,
        replay: &mut OnLanes<'_>,
    ) -> Result<Store> {
        Opening::begin(env, dir, terms, engines)?.replay(replay)?.begin()
    }

    /// The lanes that it was opened with.
    fn lanes(&self) -> impl Iterator<Item = &Arc<Log>> {
        [&self.log].into_iter().chain(&self.records)
    }

    /// What the open pages of the lanes that have not begun are going to occupy in addition.
    fn unmade_bytes(&self) -> u64 {
        self.lanes().map(|log| log.recovery().unmade_bytes()).sum()
    }

    /// A lane goes on where its replay ended. See the module for what is done where there is no room.
    fn resume(&self, log: &Log, report: &RecoveryReport) -> Result<()> {
        let (mut ways, mut listed) = (WAYS.into_iter(), None);
        loop {
            let Err(refused) = log.recovery().resume(report, &mut listed) else { return Ok(()) };
            if refused.kind() != ErrorKind::NoSpace {
                return Err(refused);
            }
            // A part of the ballast that is gone is no way.
            while !self.make_way(ways.next().ok_or_else(|| refused.clone())?)? {}
        }
    }

    /// True if this may have made room.
    fn make_way(&self, way: Way) -> Result<bool> {
        match way {
            Way::Ballast(part) => {
                let given = self.log.spares().give_ballast(part);
                // What is removed gives its room back when that is durable, on some file systems.
                self.files.sync_dir().map(|()| given)
            }
            Way::PastLimit => {
                self.space.ceiling.let_files_in();
                Ok(true)
            }
        }
    }

    /// Removes the files of the store itself that nobody lists.
    fn remove_orphans(&self, listing: &[DirEntry]) -> Result<()> {
        let (state, live) = (self.manifest().state(), self.manifest().live_manifest_files());
        for entry in listing {
            let orphan = match names::parse(&entry.name) {
                Some(FileKind::Log(n)) => {
                    state.log_groups.in_file(n).is_none() && !self.lanes().any(|log| log.spares().is_kept(n))
                }
                Some(FileKind::Room(n)) => !self.lanes().any(|log| log.spares().is_kept(n)),
                Some(FileKind::Manifest(_) | FileKind::ManifestCopy(_)) => !live.contains(&entry.name),
                Some(FileKind::CurrentTemp | FileKind::CurrentCopyTemp | FileKind::StagingTemp(_)) => true,
                Some(FileKind::CurrentCopy) => !live.contains(&entry.name),
                Some(kind @ FileKind::Engine { .. }) => state.engines.is_of_removed(kind),
                _ => false,
            };
            if orphan {
                self.files.remove(&entry.name)?;
            }
        }
        Ok(())
    }

    /// What every part of it is given.
    pub fn context(&self) -> &Arc<Context> {
        self.files.context()
    }

    /// How its files come and go.
    pub fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// The manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.files.manifest()
    }

    /// What it occupies, and may.
    pub fn space(&self) -> &Arc<SpaceBudget> {
        &self.space
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// A lane of the log, if the store was opened with it.
    pub fn lane(&self, lane: Lane) -> Option<&Arc<Log>> {
        self.lanes().find(|log| log.lane() == lane)
    }

    /// Does what there is to do for the logs, step by step until nothing is left. False: there was nothing.
    ///
    /// # Errors
    /// Those of the manifest and of the file system. After `NoSpace` nothing is lost, and it may be tried again.
    pub fn tend(&self) -> Result<bool> {
        let mut any = false;
        for log in self.lanes() {
            while let Some(task) = log.upkeep().task() {
                log.upkeep().run(task)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Removes an engine from the store for good: see [`engines::remove`].
    ///
    /// # Errors
    /// Those of [`engines::remove`].
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        engines::remove(&self.files, self.lanes(), name)
    }

    /// Ends the log and the manifest so that the loss of either's end is noticed.
    ///
    /// # Errors
    /// Those of the manifest and of the file system; on a full volume the end is only not noticed.
    pub fn close(&self) -> Result<()> {
        match self
            .lanes()
            .try_for_each(|log| log.recovery().close())
            .and_then(|()| self.manifest().commits().confirm())
        {
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            closed => closed,
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.files.context().dir.display())
    }
}
