//! The engine behind a [`crate::Db`]: its parts, put together, and how they begin and end.
//!
//! Each part owns its state and knows only those above it in this list. No function below the roof takes an `Engine`.
//!
//! In which order locks may be taken says `base::sync::rank`, which is checked wherever debug assertions are on. Readers take the
//! list of families, their read state, the open tables, and the list of readers or snapshots, each for a moment and none inside another.

use crate::context::Context;
use crate::context::drain::Drain;
use crate::files::Files;
use crate::files::log::Log;
use crate::large::Large;
use crate::requests::path::RequestPath;
use crate::service::Unstarted;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use crate::work::jobs::cleanup::remove_unread;
use crate::write::WritePath;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result};
use io::Cancel;
use std::path::Path;
use std::sync::Arc;
use store::commit::LogTerms;
use store::context::{Entered, closed};
use store::run::{Checkpointer, Foreground, Scheduler};
use store::space::SpaceBudget;
use version::FamilyId;

/// Everything a store is at run time.
pub(crate) struct Engine {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<Files>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub writes: Arc<WritePath>,
    pub jobs: Arc<Jobs>,
    pub scheduler: Arc<Scheduler>,
    pub requests: Arc<RequestPath>,
    /// Held by one checkpoint at a time.
    pub checkpointing: Mutex<(), rank::Checkpoint>,
    /// As long as the store has no log, for want of room: what it takes to begin one.
    pub unstarted: Mutex<Option<Unstarted>, rank::LogUnstarted>,
    ending: Ending,
}

/// How far the end of a store has come.
#[derive(Default)]
struct Ending {
    /// [`Engine::close`] was called.
    closed: AtomicBool,
    /// Whether [`Engine::end`] was called: one call at a time.
    ended: Mutex<bool, rank::Closing>,
}

impl Engine {
    /// The parts over files that are known.
    pub fn new(
        context: Arc<Context>,
        space: Arc<SpaceBudget>,
        files: Arc<Files>,
        families: HashMap<FamilyId, Arc<Family>>,
        records: Option<LogTerms>,
    ) -> Engine {
        let tree = Arc::new(Tree::new(&context, &space, &files, families));
        let log = Arc::new(Log::new(&context, &space, &files, records));
        let large = Arc::new(Large::new(&tree));
        let drain = Arc::new(Drain::default());
        let writes = Arc::new(WritePath::new(&tree, &log, &large, &drain));
        let jobs = Arc::new(Jobs::new(&writes, &drain, crate::admin::metrics::metrics));
        let scheduler = Scheduler::new(context.store(), context.options.background_threads, jobs.clone());
        let requests = RequestPath::new(&jobs);
        let foreground: Arc<dyn Foreground> = requests.reactor().clone();
        scheduler.set_foreground(Arc::downgrade(&foreground));
        Engine {
            context,
            space,
            files,
            tree,
            log,
            writes,
            jobs,
            scheduler,
            requests,
            checkpointing: Mutex::new(()),
            unstarted: Mutex::new(None),
            ending: Ending::default(),
        }
    }

    /// A call that may change the store begins. Fails in a store that was opened for reading. One that found no room for a log when it
    /// was opened tries again.
    ///
    /// # Errors
    /// `Forked`, `Closed`, `ReadOnly`, and those of the beginning of a log.
    pub fn serve(&self) -> Result<Entered<'_>> {
        let entered = self.context.enter()?;
        if self.log.get().is_none() {
            self.tree.reads.check()?;
            self.begin_service()?;
        }
        Ok(entered)
    }

    /// Checkpoints that other processes request are made from now on, if the options say so.
    pub fn serve_requests(self: &Arc<Self>) {
        if self.context.options.expert.checkpoint_requests {
            let checkpointer: Arc<dyn Checkpointer> = self.clone();
            self.scheduler.serve_requests(Arc::downgrade(&checkpointer));
        }
    }

    /// Makes a checkpoint, until the token is cancelled.
    pub fn checkpoint_unless(&self, dir: &Path, cancel: Option<&Cancel>) -> Result<()> {
        let _entered = self.serve()?;
        crate::admin::checkpoint::checkpoint(&self.jobs, &self.checkpointing, dir, cancel)
    }

    #[cold]
    fn begin_service(&self) -> Result<()> {
        if self.files.manifest.is_read_only() {
            let why = "the store was opened read-only";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.context.dir));
        }
        self.context.health.check()?;
        crate::service::begin(self)
    }

    /// Ends the store, whoever has handles of it: calls that run end early or to their end, later ones fail with `Closed`, and threads,
    /// lock and open files are given up. Files that a living iterator reads stay open until its next use. A second call waits for the
    /// first, and does nothing.
    ///
    /// # Errors
    /// Those of [`Engine::close`].
    pub fn end(&self) -> Result<()> {
        let mut ended = lock(&self.ending.ended);
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        self.tree.reads.close();
        // A store that is only read shares its context with later states of it.
        if !self.files.manifest.is_read_only() {
            self.context.shut();
        }
        let closed = self.close();
        self.files.tables.end();
        self.log.records().into_iter().for_each(|lane| lane.stored().end());
        self.files.unlock();
        closed
    }

    /// Stops background work and closes the log. Volatile writes are flushed first; nothing else needs to be.
    pub fn close(&self) -> Result<()> {
        if self.ending.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if self.log.get().is_none() {
            self.requests.reactor().stop();
            return Ok(());
        }
        let health = &self.context.health;
        // Whether a flush was asked for says nothing: it may have found no room.
        // What a guest's batches carry goes into tables, so that the store can be opened without the guest.
        let unflushed = {
            let writer = self.writes.memtables.lock();
            writer.volatile_seq.max(writer.carried_seq) >= self.tree.log_floor()
        };
        let flush = unflushed && !health.is_poisoned();
        let flushed = if flush { crate::admin::flush::flush(&self.jobs) } else { Ok(()) };
        {
            let _writer = self.writes.memtables.lock();
            self.writes.memtables.settle();
            health.poison(&Error::new(ErrorKind::Closed, "the store was closed"));
        }
        // Those that wait for jobs end because of that, so jobs have to go on until then.
        self.requests.reactor().stop();
        self.scheduler.stop();
        crate::work::jobs::metrics_file::remove(&self.context);
        if health.check_sound().is_ok() {
            remove_what_readers_kept(self);
            // No job will drop the groups that the last flush has let go of.
            let _ = self.log.release(|| self.tree.log_floor());
        }
        let log_closed = self.log.end().and_then(|()| seal(self));
        // All that is durable was told so.
        self.log.refuse_wanted(&closed());
        // A job may have failed until a moment ago.
        match health.first_error().filter(|e| e.kind() != ErrorKind::Closed) {
            Some(e) => Err(e),
            None => flushed.and(log_closed),
        }
    }
}

impl Checkpointer for Engine {
    fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.checkpoint_unless(dir, None)
    }
}

/// Removes files that their last readers let go of a moment ago: no job will, and a repair without the manifest could not tell a table
/// that is left from one that counts. Before [`seal`], which makes the names in the directory durable as well. One that cannot be removed is
/// removed by the next open.
fn remove_what_readers_kept(engine: &Engine) {
    let _ = remove_unread(&engine.jobs);
}

/// After a clean close the manifest knows where the log ends, and `CURRENT` where the manifest ends, so that the loss of
/// either end is noticed too: pages and edits confirm those before them, and nothing else would confirm the last.
/// A full volume has no room for that. Nothing depends on it, and the next close makes up for it.
fn seal(engine: &Engine) -> Result<()> {
    match engine.log.seal_all().and_then(|()| engine.files.manifest.commits().confirm()) {
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        sealed => sealed,
    }
}
