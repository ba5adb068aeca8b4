//! The engine behind a [`crate::Db`]: what all paths share, and nothing they do.
//!
//! Locks, in the order in which they may be taken: `writer` (the serialization point of all writes), `inserting` (of
//! what they do to memtables), the manifest's own lock, `claims` (what running jobs have claimed), a family's view. Readers
//! take none but the view's.

use crate::context::event::Event;
use crate::context::options::Options;
use crate::context::stats::Stats;
use crate::files::log_groups::Ballast;
use crate::files::obsolete::Obsolete;
use crate::files::tables::Tables;
use crate::plan::gc_pace::GcPace;
use crate::run::rate_limit::RateLimit;
use crate::run::scheduler::Scheduler;
use crate::space::space_limit::SpaceBudget;
use crate::tree::family::Family;
use crate::tree::snapshot::Snapshots;
use crate::work::jobs::Claims;
use crate::write::throttle::{Pacer, Rate};
use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Mutex, OnceLock, RwLock, lock, read};
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
    pub families: RwLock<HashMap<FamilyId, Arc<Family>>>,
    pub writer: Mutex<Writer>,
    /// Held while a write is put into the memtables and published. Taken under the writer's lock, which may then be given
    /// up: writes are inserted in the order in which they were logged, one at a time.
    pub inserting: Mutex<()>,
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
    pub claims: Mutex<Claims>,
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
    pub checkpointing: Mutex<()>,
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

/// State of the serialization point.
pub(crate) struct Writer {
    /// The sequence the next change gets.
    pub next_seq: SeqNo,
    pub next_memtable_id: u64,
    /// A volatile batch over several families sits in active memtables.
    pub volatile_over_families: bool,
    /// The highest sequence of a volatile change; 0: none since the open. (A clean close flushes what no table holds of it.)
    pub volatile_seq: SeqNo,
    pub scratch: Vec<u8>,
}

/// Bytes of memtables.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    active: AtomicU64,
    frozen: AtomicU64,
}

impl Memory {
    pub fn grew(&self, bytes: usize) {
        self.active.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    pub fn froze(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.frozen.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    pub fn flushed(&self, bytes: usize) {
        self.frozen.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
    pub fn discarded(&self, bytes: usize) {
        self.active.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
    pub fn used(&self) -> u64 {
        self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed)
    }
    pub fn backlog(&self) -> u64 {
        self.frozen.load(Ordering::Relaxed)
    }
}

/// Whether the store still takes writes.
///
/// Three states besides healthy. *Poisoned*: a write or sync failed; nothing is acknowledged until the store is reopened;
/// reads go on. (A damaged file is no reason: see `damaged`.) *No space*: a job could not write for want of room; jobs are tried again every
/// [`RETRY_NS`], writers get `NoSpace` once memory is full, and everything resumes by itself when room returns. *Busy*: jobs
/// have met the same again and again that passes by itself (no descriptors, no memory). It is like no space with another error.
#[derive(Debug, Default)]
pub(crate) struct Health {
    poisoned: AtomicBool,
    error: Mutex<Option<Error>>,
    no_space: AtomicBool,
    retry_at_ns: AtomicU64,
    /// Since a job last wrote successfully: how often jobs met what passes, and what it was.
    busy: Mutex<Option<(u32, Error)>>,
}

/// How long jobs wait after one of them found no room, or no descriptor, or the like.
const RETRY_NS: u64 = 100_000_000;
/// So often jobs try in vain what others wait for, before these are told: a second or so.
const BUSY_TRIES: u32 = 10;

impl Health {
    /// Fails if nothing may be acknowledged any more.
    pub fn check(&self) -> Result<()> {
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let first = lock(&self.error).clone();
        let error = first.unwrap_or_else(|| Error::new(ErrorKind::Poisoned, "the store failed"));
        Err(if error.kind() == ErrorKind::Closed {
            error
        } else {
            error
                .with_kind(ErrorKind::Poisoned)
                .context("an earlier failure stopped all writes; reopen the store")
        })
    }

    /// The first failure, if there was one.
    pub fn first_error(&self) -> Option<Error> {
        lock(&self.error).clone()
    }

    /// Stops all writes, for good. The first reason is kept; but `Closed`, which is no failure, gives way to one: jobs may
    /// still fail while a store is being closed, and what becomes of their files depends on it.
    pub fn poison(&self, error: &Error) {
        let mut first = lock(&self.error);
        let closed_only = first.as_ref().is_none_or(|e| e.kind() == ErrorKind::Closed)
            && !base::canary::is("closing-hides-failures");
        if closed_only || first.is_none() {
            *first = Some(error.clone());
        }
        self.poisoned.store(true, Ordering::Release);
    }

    /// Fails if something went wrong; a store that is being closed is none the worse for it.
    pub fn check_sound(&self) -> Result<()> {
        match self.check() {
            Err(e) if e.kind() == ErrorKind::Closed => Ok(()),
            outcome => outcome,
        }
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// True if a failed edit may be durable all the same: files it names must stay.
    pub fn outcome_unknown(&self) -> bool {
        self.is_poisoned() && self.first_error().is_some_and(|e| e.kind() != ErrorKind::Closed)
    }

    pub fn out_of_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// True while jobs that write must not start.
    pub fn must_wait(&self, now_ns: u64) -> bool {
        now_ns < self.retry_at_ns.load(Ordering::Acquire)
    }

    /// A job met what passes.
    pub fn busy_at(&self, now_ns: u64, error: &Error) {
        let mut busy = lock(&self.busy);
        let tries = busy.as_ref().map_or(0, |(tries, _)| *tries);
        *busy = Some((tries.saturating_add(1), error.clone()));
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
    }

    /// What a job met a moment ago, again, and what should have passed by now: nobody knows when jobs will get on.
    pub fn held_up(&self, now_ns: u64) -> Option<Error> {
        if !self.must_wait(now_ns) {
            return None;
        }
        let busy = lock(&self.busy);
        busy.as_ref().filter(|(tries, _)| *tries >= BUSY_TRIES).map(|(_, error)| error.clone())
    }

    /// True if jobs cannot write: for want of room, or of what should have passed by now.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        self.out_of_space() || self.held_up(now_ns).is_some()
    }

    pub fn no_space_at(&self, now_ns: u64) {
        self.retry_at_ns.store(now_ns + RETRY_NS, Ordering::Release);
        self.no_space.store(true, Ordering::Release);
    }

    /// There may be room for the next try.
    pub fn retry(&self) {
        self.retry_at_ns.store(0, Ordering::Release);
    }

    /// A job wrote successfully.
    pub fn space_found(&self) {
        self.no_space.store(false, Ordering::Release);
        *lock(&self.busy) = None;
        self.retry_at_ns.store(0, Ordering::Release);
    }
}

/// Whether anybody writes. Background work that only saves space goes on when nobody does.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last_seq: AtomicU64,
    since_ns: AtomicU64,
}

/// A store that was not written for so long is quiet.
const QUIET_NS: u64 = 1_000_000_000;

impl Quiet {
    /// True if there were no writes for a while. To be asked now and then: it compares with what it saw last.
    pub fn is_quiet(&self, engine: &Engine) -> bool {
        let (seq, now_ns) = (engine.snapshots.visible(), engine.env.clock.now_ns());
        if self.last_seq.swap(seq, Ordering::Relaxed) != seq {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            return false;
        }
        now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)) >= QUIET_NS
    }

    /// Somebody waits until there is nothing left to do: the store counts as quiet from now on.
    pub fn declare(&self, engine: &Engine) {
        self.last_seq.store(engine.snapshots.visible(), Ordering::Relaxed);
        self.since_ns.store(engine.env.clock.now_ns().saturating_sub(QUIET_NS), Ordering::Relaxed);
    }
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
        publish: impl FnOnce(&Arc<State>),
    ) -> Result<Arc<State>> {
        let build = |state: &State| self.health.check_sound().and_then(|()| build(state));
        self.manifest.commit_with(build, publish)
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
