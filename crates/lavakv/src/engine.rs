//! The engine behind a [`crate::Db`]: what all paths share, and nothing they do.
//!
//! Locks, in the order in which they may be taken: `writer` (the serialization point of all writes), `inserting` (of
//! what they do to memtables), the manifest's own lock, `claims` (what running jobs have claimed), a family's view. Readers
//! take none but the view's.

use crate::context::event::Event;
use crate::context::health::Health;
use crate::context::options::Options;
use crate::context::stats::Stats;
use crate::files::log_groups::Ballast;
use crate::files::obsolete::Obsolete;
use crate::files::tables::Tables;
use crate::plan::gc_pace::GcPace;
use crate::plan::quiet::Quiet;
use crate::run::rate_limit::RateLimit;
use crate::run::scheduler::Scheduler;
use crate::space::space_limit::SpaceBudget;
use crate::tree::family::Family;
use crate::tree::memory::Memory;
use crate::tree::snapshot::Snapshots;
use crate::tree::writer::Writer;
use crate::work::jobs::Claims;
use crate::write::throttle::{Pacer, Rate};
use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Mutex, OnceLock, RwLock, rank, read};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use cache::Cache;
use io::{Env, FileLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use values::Pins;
use version::{Edit, FamilyId, Manifest, State};
use wal::Wal;

/// Everything a store is at run time.
pub(crate) struct Engine {
    pub env: Env,
    pub dir: PathBuf,
    pub options: Options,
    pub manifest: Manifest,
    pub tables: Arc<Tables>,
    pub cache: Arc<Cache>,
    pub families: RwLock<HashMap<FamilyId, Arc<Family>>, rank::Families>,
    pub writer: Mutex<Writer, rank::Writer>,
    /// Held while a write is put into the memtables and published. Taken under the writer's lock, which may then be given
    /// up: writes are inserted in the order in which they were logged, one at a time.
    pub inserting: Mutex<(), rank::Inserting>,
    /// What writers owe where they are slowed down; paid before they take the writer's lock.
    pub pacer: Pacer,
    pub snapshots: Arc<Snapshots>,
    /// What tables hold only because of snapshots.
    pub kept: Arc<crate::work::jobs::kept::KeptVersions>,
    /// The iterators that are open.
    pub readers: Arc<crate::tree::readers::Readers>,
    /// Set once recovery is done; never in a read-only store.
    pub wal: OnceLock<Wal>,
    pub log: crate::files::log_groups::LogGroups,
    pub scheduler: Scheduler,
    pub claims: Mutex<Claims, rank::Claims>,
    pub memory: Memory,
    pub stats: Stats,
    pub health: Health,
    pub obsolete: Obsolete,
    pub segments: crate::large::segments::Segments,
    pub placement: crate::large::placement::Placement,
    pub space: Arc<SpaceBudget>,
    pub rate_limit: RateLimit,
    pub flush_rate: Rate,
    pub l0_rate: Rate,
    /// Bytes that collections free per second.
    pub gc_rate: Rate,
    /// What collections may read and write while flushes suffer from it.
    pub gc_pace: GcPace,
    /// Names that running jobs need.
    pub pins: Arc<Pins>,
    pub quiet: Quiet,
    pub checkpointing: Mutex<(), rank::Checkpoint>,
    /// Memtables above this sequence are not flushed while a checkpoint is being taken.
    pub flush_ceiling: AtomicU64,
    /// The highest sequence of a volatile batch over several families: memtables that reach down to it are flushed in
    /// one edit (see `write_path`).
    pub volatile_over_families_seq: AtomicU64,
    /// The log is longer than its bound: the next write freezes the family that holds its oldest group.
    pub log_over_bound: AtomicBool,
    /// How many hold garbage collection off.
    pub gc_pauses: AtomicUsize,
    pub closed: AtomicBool,
    /// Held until the last iterator is gone: nobody else may remove the files it reads.
    pub _lock: Option<Box<dyn FileLock>>,
}

impl Engine {
    /// The log. Panics before recovery is done and in read-only stores, where nothing may write.
    pub fn wal(&self) -> &Wal {
        self.wal.get().expect("the log is started before the first write")
    }

    /// True while no collection may start.
    pub fn gc_is_paused(&self) -> bool {
        self.gc_pauses.load(Ordering::Acquire) > 0
    }

    /// Makes the names in the store's directory durable. A failure stops the store: a later sync would not tell which
    /// names are lost.
    pub fn sync_dir(&self) -> Result<()> {
        self.manifest.sync_dir().inspect_err(|e| {
            if e.kind() != ErrorKind::NoSpace {
                self.health.poison(e);
            }
        })
    }

    /// Commits an edit that names what a job made, or gives up what it replaced, unless something has failed meanwhile: a
    /// job that was under way then may rest on what was lost. See [`Manifest::commit_with`].
    pub fn install(
        &self,
        build: impl FnOnce(&State) -> Result<Edit>,
        publish: impl FnOnce(&State),
    ) -> Result<State> {
        let build = |state: &State| self.health.check_sound().and_then(|()| build(state));
        self.manifest.commit_with(build, publish)
    }

    /// True if there were no writes for a while: see [`Quiet::is_quiet`].
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_quiet(self.snapshots.visible(), self.env.clock.now_ns())
    }

    /// The family with this id, if it still exists.
    pub fn family(&self, id: FamilyId) -> Option<Arc<Family>> {
        read(&self.families).get(&id).cloned()
    }

    /// All families, by id.
    pub fn all_families(&self) -> Vec<Arc<Family>> {
        let mut all: Vec<_> = read(&self.families).values().cloned().collect();
        all.sort_by_key(|f| f.id);
        all
    }

    /// The path of a file of the store.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }

    /// Decides what a failed job means for the store.
    pub fn background_failed(self: &Arc<Self>, error: Error) {
        self.stats.background_errors.add(1);
        match error.kind() {
            ErrorKind::NoSpace => {
                self.health.no_space_at(self.env.clock.now_ns());
                self.space.volume_is_full();
                // The next try finds more, and what it frees goes to nothing but deletes before this is made good.
                self.log.give_ballast(self, Ballast::Jobs);
            }
            ErrorKind::Closed => {}
            _ => self.health.poison(&error),
        }
        self.tell(&Event::BackgroundError { error });
        self.scheduler.notify_progress();
    }

    /// Tells the listener; its panics are its own.
    pub fn tell(&self, event: &Event) {
        let Some(listener) = &self.options.listener else { return };
        if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
            self.stats.listener_panics.add(1);
        }
    }

    /// The lowest sequence that only the log and memtables hold: groups wholly below it are no longer needed.
    pub fn log_floor(&self) -> SeqNo {
        crate::tree::log_floor::log_floor(&self.snapshots, || {
            self.all_families().iter().filter_map(|f| f.oldest_unflushed_seq()).min()
        })
    }
}
