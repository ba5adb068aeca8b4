//! Background jobs: the claim, the start and the end of each planned job.
//!
//! [`next_job`] is the only place that starts work. `plan::next` decides, as a pure function of the
//! [`seen`] snapshot of facts. The inputs of the job are claimed under the same mutex ([`claim`]),
//! and the job object is built after its release.

pub(crate) mod claim;
pub(crate) mod cleanup;
pub(crate) mod compaction;
mod disks;
pub(crate) mod flush;
pub(crate) mod gc;
pub(crate) mod hot_cold;
mod job_errors;
pub(crate) mod log;
pub(crate) mod metrics_file;
pub(crate) mod moves;
pub(crate) mod plan_snapshot;
pub(crate) mod relocation;
pub(crate) mod rest;
pub(crate) mod retained;
pub(crate) mod scrub;
pub(crate) mod separate;
pub(crate) mod survey;

use crate::context::Context;
use crate::context::drain::DrainRates;
use crate::files::KvFiles;
use crate::files::log::Log;
use crate::large::Large;
use crate::plan::answer::PlanNotes;
use crate::plan::collection;
use crate::plan::gc_pace::GcPace;
use crate::plan::in_progress::{InProgressSet, ManualCompaction};
use crate::plan::next::{JobPlan, next};
use crate::plan::quiet::Quiet;
use crate::plan::requests::Caller;
use crate::plan::rest::{Rest, Suspension};
use crate::plan::room::output_bytes;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::write::WritePath;
use base::sync::{Mutex, lock, rank};
use base::{Error, Result, SeqNo};
use lsm::policy::{Compaction, ManualRange, ManualStep, PickInputs, Reason};
use plan_snapshot::PlanSnapshot;
use std::sync::Arc;
use store::run::{Job, JobClass, Work, WorkerRole};
use store::space::SpaceBudget;

/// The state shared by all jobs.
pub(crate) struct Jobs {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<KvFiles>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub large: Arc<Large>,
    /// For the scrub, which flushes data whose log pages are damaged.
    pub writes: Arc<WritePath>,
    pub drain: Arc<DrainRates>,
    /// Claims of running jobs.
    pub in_progress: Mutex<InProgressSet, rank::InProgress>,
    /// Rate limit of collections while they slow flushes down.
    pub gc_pace: GcPace,
    pub quiet: Quiet,
    /// Renders the metrics file. A function pointer, because the reports are in a layer above the
    /// jobs.
    pub metrics: fn(&Jobs) -> Result<String>,
}

impl Jobs {
    pub fn new(
        writes: &Arc<WritePath>,
        drain: &Arc<DrainRates>,
        metrics: fn(&Jobs) -> Result<String>,
    ) -> Jobs {
        Jobs {
            context: writes.context.clone(),
            space: writes.space.clone(),
            files: writes.files.clone(),
            tree: writes.tree.clone(),
            log: writes.log.clone(),
            large: writes.large.clone(),
            writes: writes.clone(),
            drain: drain.clone(),
            in_progress: Mutex::default(),
            gc_pace: GcPace::default(),
            quiet: Quiet::default(),
            metrics,
        }
    }

    /// Returns whether the store has seen no writes for a while: see [`Quiet::is_quiet`].
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_quiet(self.tree.snapshots.visible(), self.context.now_ns())
    }

    /// Returns the rest state of the store.
    pub fn rest(&self) -> Rest {
        if !self.context.options.rest {
            Rest::Suspended(Suspension::Option)
        } else if !self.quiet.is_at_rest(self.tree.snapshots.visible(), self.context.now_ns()) {
            Rest::Awake
        } else if self.tree.snapshots.is_any() {
            Rest::Suspended(Suspension::Snapshot)
        } else if self.drain.gc_is_paused() || self.tree.together.flush_ceiling() < SeqNo::MAX {
            Rest::Suspended(Suspension::Backup)
        } else {
            Rest::On
        }
    }

    /// Returns whether rest work runs at its reduced rate: the store is at rest, and no caller
    /// waits for the end of the work.
    pub fn works_at_rest(&self) -> bool {
        self.rest() == Rest::On && !self.quiet.is_awaited()
    }
}

impl Work for Jobs {
    fn next(self: Arc<Self>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        next_job(&self, duty, below)
    }

    fn failed(&self, error: Error, inputs: &[u64]) {
        self.job_failed(error, inputs);
    }

    fn can_free(&self) -> bool {
        let over = self.context.health.is_poisoned() || self.context.signals.is_stopping();
        self.log.get().is_some() && !over && !is_idle(self)
    }

    fn last_write(&self) -> u64 {
        self.tree.snapshots.visible()
    }
}

/// A claimed job, whose object is built without the mutex.
type ClaimedJob = Box<dyn FnOnce() -> Box<dyn Job>>;

/// Returns the most urgent job in `duty` and above `below` that may start now. Its inputs are
/// claimed.
pub(crate) fn next_job(jobs: &Arc<Jobs>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
    if jobs.context.signals.is_stopping() || jobs.context.health.is_poisoned() || jobs.log.get().is_none() {
        // No sync will follow, so asynchronous waiters for a sync must be failed.
        jobs.log.refuse_if_poisoned();
        return None;
    }
    // The log thread skips the space sums, because writers wait for it.
    if duty != WorkerRole::Log {
        jobs.tree.look_for_space();
        disks::see(jobs);
    }
    let is_for_log = duty.includes(JobClass::Log) && JobClass::Log < below;
    let mut set = lock(&jobs.in_progress);
    let log = is_for_log && !set.running.log && log::wanted(jobs);
    let claimed = if log && !jobs.log.preparation().gives_way() {
        Some(log::claim(jobs, &mut set))
    } else if duty != WorkerRole::Log && JobClass::Metrics < below && metrics_file::is_due(jobs, &set) {
        // Nothing in the store depends on the metrics file. So it bypasses the plan, and runs even
        // when jobs wait for space.
        Some(metrics_file::claim(jobs, &mut set))
    } else if duty == WorkerRole::Log || jobs.context.health.must_wait(jobs.context.now_ns()) {
        None
    } else {
        let mut notes = PlanNotes::default();
        let plan = next(&PlanSnapshot::new(jobs, &set), below, &mut notes);
        jobs.context.stats.jobs_held_for_log.add(notes.leaves_room_for_log.into());
        take_note(&mut set, notes);
        plan.and_then(|plan| claim(jobs, &mut set, plan))
    };
    drop(set);
    claimed.map(|start| start())
}

/// Claims the inputs of a plan. `None` if they are not available after all.
fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, plan: JobPlan) -> Option<ClaimedJob> {
    match plan {
        JobPlan::Flush(units) => Some(flush::claim(jobs, set, units)),
        JobPlan::Cleanup { prune } => Some(cleanup::claim(jobs, set, prune)),
        JobPlan::Compact(compact) => compaction::claim(jobs, set, compact),
        JobPlan::Help(job) => compaction::help(set, job),
        JobPlan::Collect(collection) => gc::claim(jobs, set, *collection),
        JobPlan::Move(family, table, wanted) => Some(moves::claim(jobs, set, (family, table, wanted))),
        JobPlan::Survey(family) => Some(survey::claim(jobs, set, family)),
        JobPlan::FreezeTombstones => Some(rest::claim(jobs, set)),
        JobPlan::ReadRetained(family) => Some(retained::claim(jobs, set, family)),
        JobPlan::Scrub => Some(scrub::claim(jobs, set)),
    }
}

/// Stores the notes of a decision.
fn take_note(set: &mut InProgressSet, notes: PlanNotes) {
    let learned = &mut set.learned;
    learned.gc_slots = notes.gc_slots.unwrap_or(learned.gc_slots);
    learned.log_load = notes.log_load.unwrap_or(learned.log_load);
    if let Some(written_bytes) = notes.rest_ends_at {
        learned.rest.end(written_bytes);
    }
    learned.at_rest.extend(notes.at_rest);
    learned.unaffordable.extend(notes.unaffordable);
    learned.exposes_none.extend(notes.exposes_none);
    for (family, walk) in notes.walks {
        match walk {
            Some(walk) => drop(learned.walks.insert(family, walk)),
            None => drop(learned.walks.remove(&family)),
        }
    }
    notes.spent.iter().for_each(|(family, spent)| family.demand.spent(*spent));
    if notes.manual_is_void
        && let Some(asked) = set.manual.take()
    {
        set.give_back(&asked.compaction);
    }
}

/// Returns whether the outputs of a compaction fit.
fn fits(jobs: &Jobs, family: &Family, compaction: &Compaction) -> bool {
    let bytes = || output_bytes(compaction, family.options().expert.vsst_bytes, jobs.tree.snapshots.is_any());
    compaction.trivial_move || jobs.space.grants.would_grant(bytes())
}

/// State of the compactions for a `compact_range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manual {
    /// No compaction is left, pending or running.
    Over,
    /// A compaction is pending, running, or blocked.
    Waits,
    /// The next compaction does not fit, and no job is about to free space.
    NoRoom,
}

/// Starts the next compaction of a `compact_range`, if possible.
pub(crate) fn advance_manual(
    jobs: &Arc<Jobs>,
    family: &Arc<Family>,
    range: &mut ManualRange,
    caller: &Caller,
) -> Manual {
    let mut set = lock(&jobs.in_progress);
    if family.is_dropped() {
        return Manual::Over;
    }
    let may_collect = || range.rewrites() && collection::is_wanted(&PlanSnapshot::new(jobs, &set));
    let nobody = !set.running.rewrites() && !may_collect();
    if let Some(asked) = set.manual.take_if(|asked| nobody && !fits(jobs, family, &asked.compaction)) {
        // The compaction is abandoned, and the caller gets an error. Writes and flushes do not
        // depend on it: they have reserved space.
        set.give_back(&asked.compaction);
        return Manual::NoRoom;
    }
    // One at a time: the next step of the range depends on the result of the last one.
    if set.manual.is_some() || set.running.manual > 0 {
        return Manual::Waits;
    }
    if range.rewrites() && collection_goes_first(jobs, &set) {
        return Manual::Waits;
    }
    let Some(policy) = family.policy() else { return Manual::Over };
    let (version, set_aside) = (family.read_state().version.clone(), family.settings.tables_set_aside());
    let facts = PickInputs { version: &version, set_aside: &set_aside, busy: set.of(family.id) };
    let snapshots = jobs.tree.snapshots.for_job();
    let has_released = |table| jobs.tree.kept.has_released(table, &snapshots);
    let compaction = match policy.manual(&facts, range, &has_released) {
        ManualStep::Done => return Manual::Over,
        ManualStep::Wait => return Manual::Waits,
        ManualStep::Start(compaction) => *compaction,
    };
    let fits = fits(jobs, family, &compaction);
    if !fits && !nobody && compaction.reason == Reason::Rewrite {
        // The whole table may fit soon, and the range then retries it.
        return Manual::Waits;
    }
    let cut = if fits { None } else { range.cut(&compaction, jobs.space.grants.job_bytes_max()) };
    let compaction = cut.unwrap_or(compaction);
    set.claim(&compaction);
    set.manual = Some(ManualCompaction { compaction, caller: caller.clone() });
    drop(set);
    jobs.context.signals.notify_work();
    Manual::Waits
}

/// Withdraws the pending compaction of a cancelled call.
pub(crate) fn take_back_manual(jobs: &Jobs, caller: &Caller) {
    let mut set = lock(&jobs.in_progress);
    if let Some(asked) = set.manual.take_if(|asked| asked.caller.is(caller)) {
        set.give_back(&asked.compaction);
    }
}

/// Returns whether optional producers of garbage must yield to collection: a collection is running
/// or due, under garbage pressure. A rewrite of values leaves as many bytes of garbage behind.
fn collection_goes_first(jobs: &Jobs, set: &InProgressSet) -> bool {
    let seen = PlanSnapshot::new(jobs, set);
    let under_way = set.running.collections > 0 || collection::is_wanted(&seen);
    under_way && collection::is_pressing(&seen)
}

/// Returns whether no job runs and none could start. The log's idle watermark is ignored, because
/// it is due only after a delay. So is the scrub.
pub(crate) fn is_idle(jobs: &Jobs) -> bool {
    disks::see(jobs);
    let mut set = lock(&jobs.in_progress);
    if set.running.is_any() || set.manual.is_some() || log::wanted(jobs) {
        return false;
    }
    let mut notes = PlanNotes::default();
    let seen = PlanSnapshot::new(jobs, &set);
    let plan = next(&seen, JobClass::Scrub, &mut notes);
    // Memtables held back by a checkpoint still need a flush.
    let idle = plan.is_none() && seen.is_flushed();
    // No job starts, so the hysteresis of the slots must not advance.
    take_note(&mut set, PlanNotes { gc_slots: None, ..notes });
    idle
}

#[cfg(all(test, not(loom)))]
mod tests;
