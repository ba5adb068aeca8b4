//! A store for engines without a top-level crate of their own: opens lock, manifest and log for the
//! given engines.
//!
//! 1. Take the lock, so that no other process changes the files.
//! 2. Recover the manifest. An engine that it lists and that was not named is *absent*: its
//!    records, files and batches in the log stay as they are.
//! 3. Replay the log: the caller gets every batch, with its tenant.
//! 4. Check that the manifest has not lost its end (see [`crate::commit::read`]).
//! 5. Make the end of the old log final, begin a new one, and remove orphans: old manifests and log
//!    files. Each engine judges its own files ([`Replayed::remove`]), except those of a removed
//!    engine.
//!
//! **Without space**, on the volume or below a strict limit ([`Terms::is_strict`]), a new log
//! begins in a group of minimum length, in a free file, or in the reserved space. This holds for
//! any lane. It leaves space for the staging files of all lanes, which are never refused and may be
//! missing after a power failure. Below a limit that is too low even for that, the group exceeds
//! the limit: a store that does not open could never be made smaller. On a full volume the open
//! fails.
//!
//! There are no background threads: the owner of the store calls [`Store::tend`] when it has time.
//! An engine with its own jobs drives the log from them (LavaKV does), and needs only the parts of
//! this.

use crate::commit::{Lane, Log, LogTerms, LoggedBatch, ReservePurpose, read, reserved_bytes};
use crate::context::Context;
use crate::engines;
use crate::fast_tier;
use crate::files::StoreFiles;
use crate::files::unfinished::{self, Mark};
use crate::manifest::{Engines, InitialState, Manifest};
use crate::names::{self, FileKind};
use crate::space::{Sizes, SpaceBudget, Terms};
use crate::volumes::Location;
use base::{ErrorKind, Result};
use io::{DirEntry, Env};
use std::path::Path;
use std::sync::Arc;
use wal::{OnReplay, RecoveryReport};

/// An open store: see the module.
pub struct Store {
    files: Arc<StoreFiles>,
    log: Arc<Log>,
    /// The record lane.
    records: Option<Arc<Log>>,
    space: Arc<SpaceBudget>,
}

/// Ways to make space for the start of a log, in the order of the attempts.
#[derive(Clone, Copy)]
enum Way {
    ReservePurpose(ReservePurpose),
    PastLimit,
}

const WAYS: [Way; 3] =
    [Way::ReservePurpose(ReservePurpose::Log), Way::ReservePurpose(ReservePurpose::Jobs), Way::PastLimit];

/// Lengths and access modes of a store's logs.
#[derive(Clone, Copy, Debug)]
pub struct StoreTerms {
    /// Of the first lane.
    pub log: LogTerms,
    /// Of the record lane ([`Lane::LOG`]); `None`: it is not opened.
    pub records: Option<LogTerms>,
}

/// Receives a batch with its lane: all of the first lane, in order, then all of the next.
pub type OnLanes<'a> = dyn FnMut(Lane, &LoggedBatch<'_>) -> Result<()> + 'a;

/// Returns unlimited space terms, for engines with no files but the log.
fn unlimited(terms: &LogTerms) -> Terms {
    Terms::unlimited(Sizes {
        memtable_bytes: 0,
        memory_bytes: 0,
        log_group_bytes: terms.group_bytes,
        reserved_bytes: reserved_bytes(terms.group_bytes),
        wal_bytes_max: u64::MAX,
    })
}

/// A store with its manifest read but its logs not replayed. An engine with files reads them now,
/// so that the replayed batches find them. Dropped, it has changed nothing but the lock.
#[derive(Debug)]
pub struct Opening {
    store: Store,
    listing: Vec<DirEntry>,
}

impl Opening {
    /// Takes the lock and reads the manifest, or creates both: see [`Store::open_lanes`].
    ///
    /// # Errors
    /// As [`Store::open_lanes`], without errors of the logs.
    pub fn begin(env: &Env, dir: &Path, terms: StoreTerms, engines: &Engines) -> Result<Opening> {
        Opening::begin_within(env, dir, terms, unlimited(&terms.log), engines, None)
    }

    /// As [`Opening::begin`], for an engine that sets space terms. The engine refreshes the budget
    /// ([`Store::space`]) once the store is open. The owner of an unfinished store passes its
    /// `mark`.
    ///
    /// # Errors
    /// As [`Opening::begin`].
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
            fast_tier::make_place(env, dir)?;
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
        let held = fast_tier::both(held, fast_tier::attach(env, dir, &manifest)?);
        let manifest = Arc::new(manifest);
        let listing = env.fs.list(dir)?;
        context.volumes.directory().meter.take_over(&listing);
        let state = manifest.state();
        read::check_whole(dir, &listing, &state)?;
        read::check_known(env, dir, &listing, &state, &manifest.report().name)?;
        manifest.bump_file_number(names::largest_number(
            listing.iter().filter_map(|entry| names::parse(&entry.name)),
        ));
        let files = Arc::new(StoreFiles::new(&context, manifest, Some(held)));
        let space = Arc::new(SpaceBudget::new(&context, space));
        let records = terms.records.map(|terms| {
            let log = Log::of_lane(Lane::LOG, terms, files.clone(), space.clone());
            Arc::new(log)
        });
        let log = Arc::new(Log::new(terms.log, files.clone(), space.clone()));
        Ok(Opening { store: Store { files, log, records, space }, listing })
    }

    /// Returns the shared context of the store.
    pub fn context(&self) -> &Arc<Context> {
        self.store.context()
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.store.manifest()
    }

    /// Replays the logs.
    ///
    /// # Errors
    /// `Corruption` if a log lost what was durable; errors of `replay`.
    pub fn replay(self, replay: &mut OnLanes<'_>) -> Result<Replayed> {
        let Opening { store, listing } = self;
        // All lanes are checked before anything is changed.
        let reports: Vec<RecoveryReport> = store
            .lanes()
            .map(|log| log.recovery().replay(&mut |batch| replay(log.lane(), batch)))
            .collect::<Result<_>>()?;
        Ok(Replayed { store, listing, reports })
    }
}

/// A store with its logs replayed but not begun. Dropped, it has changed nothing but the lock and
/// the removed files.
#[derive(Debug)]
pub struct Replayed {
    store: Store,
    listing: Vec<DirEntry>,
    /// The recovery report of each lane.
    reports: Vec<RecoveryReport>,
}

impl Replayed {
    /// Removes the files for which `is_stranger` returns true: files of an engine that no edit
    /// names, left by an unfinished job. This comes before the logs begin, which may need their
    /// space.
    ///
    /// # Errors
    /// File system errors.
    pub fn remove(&self, is_stranger: impl Fn(FileKind) -> bool) -> Result<()> {
        let strangers =
            self.listing.iter().filter(|entry| names::parse(&entry.name).is_some_and(&is_stranger));
        strangers.into_iter().try_for_each(|entry| self.store.files.remove(&entry.name))
    }

    /// Begins the logs: the store is open.
    ///
    /// # Errors
    /// `NoSpace` if there is no room on the volume to begin one; file system errors.
    pub fn begin(self) -> Result<Store> {
        let Replayed { store, listing, mut reports } = self;
        store.log.spares().adopt_ballast(&listing)?;
        for (log, report) in store.lanes().zip(&mut reports) {
            // A store that is killed soon after each open adds a group each time, and would never
            // release one.
            log.recovery().let_go(report);
            log.recovery().end_old(report, None)?;
        }
        store.remove_orphans(&listing)?;
        for (log, report) in store.lanes().zip(&reports) {
            store.space.ceiling.bound_files_beside(store.unmade_bytes());
            store.resume(log, report)?;
        }
        store.space.ceiling.bound_files();
        match store.log.preparation().fill_reserved() {
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            filled => filled?,
        }
        Ok(store)
    }
}

impl Store {
    /// Opens the store in a directory, or creates one, and replays its log.
    ///
    /// # Errors
    /// `Busy` or an error of the file system if another process has it. `NotFound` if a repair of
    /// it has not finished. `Corruption` if the manifest or the log lost durable data.
    /// `Unsupported` if a newer release wrote it. `NoSpace` if there is no space to begin a log.
    /// Errors of `replay`.
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

    /// As [`Store::open`], with the record lane if it has terms. Without terms that lane stays as
    /// it is: its groups, their files, and its staging file.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_lanes(
        env: &Env,
        dir: &Path,
        terms: StoreTerms,
        engines: &Engines,
        replay: &mut OnLanes<'_>,
    ) -> Result<Store> {
        Opening::begin(env, dir, terms, engines)?.replay(replay)?.begin()
    }

    /// Returns the lanes that the store was opened with.
    fn lanes(&self) -> impl Iterator<Item = &Arc<Log>> {
        [&self.log].into_iter().chain(&self.records)
    }

    /// Returns the bytes that the staging files will occupy in addition once all lanes have begun.
    fn unmade_bytes(&self) -> u64 {
        self.lanes().map(|log| log.recovery().unmade_bytes()).sum()
    }

    /// Continues a lane after its replay. See the module for a start without space.
    fn resume(&self, log: &Log, report: &RecoveryReport) -> Result<()> {
        let (mut ways, mut listed) = (WAYS.into_iter(), None);
        loop {
            let Err(refused) = log.recovery().resume(report, &mut listed) else { return Ok(()) };
            if refused.kind() != ErrorKind::NoSpace {
                return Err(refused);
            }
            // A missing part of the reserved space frees nothing.
            while !self.make_way(ways.next().ok_or_else(|| refused.clone())?)? {}
        }
    }

    /// Returns true if this may have freed space.
    fn make_way(&self, way: Way) -> Result<bool> {
        match way {
            Way::ReservePurpose(part) => {
                let given = self.log.spares().release_reserved(part);
                // Some file systems free the space of a removed file only once its removal is
                // durable.
                self.files.sync_dir().map(|()| given)
            }
            Way::PastLimit => {
                self.space.ceiling.let_files_in();
                Ok(true)
            }
        }
    }

    /// Removes unlisted files of the store itself.
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

    /// Returns the shared context of the store.
    pub fn context(&self) -> &Arc<Context> {
        self.files.context()
    }

    /// Returns the store's files.
    pub fn files(&self) -> &Arc<StoreFiles> {
        &self.files
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.files.manifest()
    }

    /// Returns the space budget.
    pub fn space(&self) -> &Arc<SpaceBudget> {
        &self.space
    }

    /// Returns the log of the first lane.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Returns a lane of the log, if the store was opened with it.
    pub fn lane(&self, lane: Lane) -> Option<&Arc<Log>> {
        self.lanes().find(|log| log.lane() == lane)
    }

    /// Runs all due tasks of the logs. Returns false if there was none.
    ///
    /// # Errors
    /// Manifest and file system errors. After `NoSpace` nothing is lost, and the call may be
    /// repeated.
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
    /// Errors of [`engines::remove`].
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        engines::remove(&self.files, self.lanes(), name)
    }

    /// Closes the log and confirms the manifest, so that the loss of either's end is noticed.
    ///
    /// # Errors
    /// Manifest and file system errors. On a full volume the close succeeds without that
    /// protection.
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
