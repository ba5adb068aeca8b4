//! The engine behind a [`crate::Db`]: its components, their construction and their shutdown.
//!
//! Each component owns its state and depends only on those above it in this list. No function below
//! the top level of the crate takes an `Engine`.
//!
//! `base::sync::rank` defines the lock order, which is checked in builds with debug assertions.
//! Readers lock the list of families, their read state, the open tables, and the list of readers or
//! snapshots, each briefly and never nested.

use crate::context::Context;
use crate::context::drain::DrainRates;
use crate::files::KvFiles;
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
use store::run::{AsyncRequests, Checkpointer, Scheduler};
use store::space::SpaceBudget;
use version::FamilyId;

/// The components of an open store.
pub(crate) struct Engine {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<KvFiles>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub writes: Arc<WritePath>,
    pub jobs: Arc<Jobs>,
    pub scheduler: Arc<Scheduler>,
    pub requests: Arc<RequestPath>,
    /// Serializes checkpoints.
    pub checkpointing: Mutex<(), rank::Checkpoint>,
    /// The state needed to begin a log, while the store has none for lack of space.
    pub unstarted: Mutex<Option<Unstarted>, rank::LogUnstarted>,
    ending: Ending,
}

/// Progress of the shutdown.
#[derive(Default)]
struct Ending {
    /// True once [`Engine::close`] was called.
    closed: AtomicBool,
    /// True once [`Engine::end`] was called; its mutex serializes the calls.
    ended: Mutex<bool, rank::Closing>,
}

impl Engine {
    /// Builds the components over recovered files.
    pub fn new(
        context: Arc<Context>,
        space: Arc<SpaceBudget>,
        files: Arc<KvFiles>,
        families: HashMap<FamilyId, Arc<Family>>,
        records: Option<LogTerms>,
    ) -> Engine {
        let tree = Arc::new(Tree::new(&context, &space, &files, families));
        let log = Arc::new(Log::new(&context, &space, &files, records));
        let large = Arc::new(Large::new(&tree));
        let drain = Arc::new(DrainRates::default());
        let writes = Arc::new(WritePath::new(&tree, &log, &large, &drain));
        let jobs = Arc::new(Jobs::new(&writes, &drain, crate::admin::metrics::metrics));
        let scheduler = Scheduler::new(context.store(), context.options.background_threads, jobs.clone());
        let requests = RequestPath::new(&jobs);
        let foreground: Arc<dyn AsyncRequests> = requests.reactor().clone();
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

    /// Begins a call that may change the store. Fails in a store opened for reading. A store opened
    /// without space for a log tries again to begin one.
    ///
    /// # Errors
    /// `Forked`, `Closed`, `ReadOnly`, and those of the beginning of a log.
    pub fn serve(&self) -> Result<Entered<'_>> {
        let entered = self.context.enter()?;
        if self.log.get().is_some() { Ok(entered) } else { self.begin_service().map(|()| entered) }
    }

    /// Serves checkpoint requests of other processes, if the options say so.
    pub fn serve_requests(self: &Arc<Self>) {
        if self.context.options.expert.checkpoint_requests {
            let checkpointer: Arc<dyn Checkpointer> = self.clone();
            self.scheduler.serve_requests(Arc::downgrade(&checkpointer));
        }
    }

    /// Makes a checkpoint, unless the token is cancelled.
    pub fn checkpoint_unless(&self, dir: &Path, cancel: Option<&Cancel>) -> Result<()> {
        let _entered = self.serve()?;
        crate::admin::checkpoint::checkpoint(&self.jobs, &self.checkpointing, dir, cancel)
    }

    #[cold]
    fn begin_service(&self) -> Result<()> {
        self.tree.reads.check()?;
        if self.files.manifest.is_read_only() {
            let why = "the store was opened read-only: open it for writing";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.context.dir));
        }
        self.context.health.check()?;
        crate::service::begin(self)
    }

    /// Ends the store, whatever handles exist. Running calls end, some of them early, and later
    /// calls fail with `Closed`. Threads, lock and open files are released. Files of a live
    /// iterator stay open until its next use. A second call waits for the first, and has no effect.
    ///
    /// # Errors
    /// Those of [`Engine::close`].
    pub fn end(&self) -> Result<()> {
        let mut ended = lock(&self.ending.ended);
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        self.tree.reads.close();
        // A store opened for reading shares its context with later states.
        if !self.files.manifest.is_read_only() {
            self.context.shut();
        }
        let closed = self.close();
        self.files.tables.end();
        self.log.records().into_iter().for_each(|lane| lane.stored().end());
        self.files.unlock();
        closed
    }

    /// Stops background work and closes the log. Volatile writes, which are not logged, are flushed
    /// first.
    pub fn close(&self) -> Result<()> {
        if self.ending.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if self.log.get().is_none() {
            self.requests.reactor().stop();
            return Ok(());
        }
        let health = &self.context.health;
        // A previous flush request proves nothing, since the flush may have found no room. Embedded
        // batches are flushed too, so that the store can be opened without the secondary engine.
        let unflushed = {
            let writer = self.writes.memtables.lock();
            writer.volatile_seq.max(writer.embedded_seq) >= self.tree.log_floor()
        };
        let flush = unflushed && !health.is_poisoned();
        let flushed = if flush { crate::admin::flush::flush(&self.jobs) } else { Ok(()) };
        {
            let _writer = self.writes.memtables.lock();
            self.writes.memtables.wait_for_inserts();
            health.poison(&Error::new(ErrorKind::Closed, "the store was closed: open it again"));
        }
        // Requests that wait for jobs end by the poison, so jobs must run until then.
        self.requests.reactor().stop();
        self.scheduler.stop();
        crate::work::jobs::metrics_file::remove(&self.context);
        if health.check_sound().is_ok() {
            remove_what_readers_kept(self);
            // No job will release the groups that the last flush has made obsolete.
            let _ = self.log.release(|| self.tree.log_floor());
        }
        let log_closed = self.log.end().and_then(|()| seal(self));
        // Waiters for durable data were notified before; the remaining ones fail.
        self.log.refuse_wanted(&closed());
        // A job may have failed just before.
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

/// Removes files whose last readers ended just before, because no job will. A repair without the
/// manifest could not distinguish an obsolete table from a live one. Called before [`seal`], which
/// makes the directory entries durable as well. The next open removes files whose removal fails
/// here.
fn remove_what_readers_kept(engine: &Engine) {
    let _ = remove_unread(&engine.jobs);
}

/// Records the end of the log in the manifest, and the end of the manifest in `CURRENT`. Pages and
/// edits confirm their predecessors, so only the last ones need this to detect their loss. A full
/// volume has no room for it; the next close does it then.
fn seal(engine: &Engine) -> Result<()> {
    match engine.log.seal_all().and_then(|()| engine.files.manifest.commits().confirm()) {
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        sealed => sealed,
    }
}
