//! Which background work may start, and what running work has claimed.
//!
//! [`next_job`] is the only place that starts work. It looks at the state of the store each time, so there are no
//! queues that could disagree with it: frozen memtables mean a flush, a level over its target means a compaction, and so
//! on. What a running job works on is claimed under one lock and released when the job ends, however it ends.

pub(crate) mod cleanup;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod gc;
pub(crate) mod hot_cold;
pub(crate) mod log;
pub(crate) mod rebuild;
pub(crate) mod requests;
pub(crate) mod scrub;
pub(crate) mod separate;
mod verdict;

use crate::context::Context;
use crate::files::Files;
use crate::files::log_groups::Log;
use crate::large::Large;
use crate::plan::gc_pace::GcPace;
use crate::plan::quiet::Quiet;
use crate::run::drain::Drain;
use crate::run::scheduler::{Duty, Job, JobClass, Work};
use crate::space::space_limit::SpaceBudget;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::write::WritePath;
use base::sync::{Mutex, lock, rank};
use base::{Error, HashMap, SeqNo};
use lsm::policy::{Compaction, Facts, InProgress, ManualRange, ManualStep, Need, Reason, Rebuild};
use std::sync::{Arc, Weak};
use version::{FamilyId, FileMeta, Version};

/// Near the space limit a file that is collected is a quarter garbage or more: three bytes are copied for one.
const WORTH_BYTES: u32 = 3;

/// What jobs work on and with.
pub(crate) struct Jobs {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<Files>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub large: Arc<Large>,
    /// For the scrub, which has what it finds damaged in the log written to tables.
    pub writes: Arc<WritePath>,
    pub drain: Arc<Drain>,
    pub claims: Mutex<Claims, rank::Claims>,
    /// What collections may read and write while flushes suffer from it.
    pub gc_pace: GcPace,
    pub quiet: Quiet,
}

impl Jobs {
    pub fn new(writes: &Arc<WritePath>) -> Jobs {
        Jobs {
            context: writes.context.clone(),
            space: writes.space.clone(),
            files: writes.files.clone(),
            tree: writes.tree.clone(),
            log: writes.log.clone(),
            large: writes.large.clone(),
            writes: writes.clone(),
            drain: writes.drain.clone(),
            claims: Mutex::default(),
            gc_pace: GcPace::default(),
            quiet: Quiet::default(),
        }
    }

    /// True if there were no writes for a while: see [`Quiet::is_quiet`].
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_quiet(self.tree.snapshots.visible(), self.context.now_ns())
    }
}

impl Work for Jobs {
    fn next(self: Arc<Self>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
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

/// What running jobs work on.
#[derive(Default)]
pub(crate) struct Claims {
    pub log: bool,
    pub flush: bool,
    pub cleanup: bool,
    /// Compactions under way, all families.
    pub compactions: usize,
    /// Files and levels under compaction, by family.
    pub busy: HashMap<FamilyId, InProgress>,
    /// A compaction asked for by `compact_range`, waiting for a thread.
    pub manual: Option<Compaction>,
    /// Those of them that run.
    pub manual_running: usize,
    /// Walks that rebuild vSSTs in the order of keys, by family.
    pub rebuilds: HashMap<FamilyId, Rebuild>,
    /// True while a compaction of one of them runs.
    pub rebuild_runs: bool,
    /// Versions in which a quiet store has no compaction that pays, by family.
    pub at_rest: HashMap<FamilyId, Weak<Version>>,
    /// Collections of vSSTs under way, all families.
    pub collections: usize,
    /// How many the pressures allowed when it was asked last (see `slots`).
    pub gc_slots: usize,
    /// vSSTs whose collection was given up, with the garbage that the ledger saw in them:
    /// not tried again before it sees more.
    pub abandoned: HashMap<u64, u64>,
    /// Tables in which a compaction may have kept entries for snapshots, with their sequences.
    pub retained: HashMap<u64, Vec<SeqNo>>,
    /// Collections somebody asked for, and pauses.
    pub gc_requests: requests::Requests,
    /// Passes of the scrub.
    pub scrub: scrub::Turn,
    pub next_job: u64,
}

impl Claims {
    /// A number for the next job, as stored in the properties of its tables.
    pub fn job_number(&mut self) -> u64 {
        self.next_job += 1;
        self.next_job
    }

    /// True if a job runs that may make room.
    pub fn is_at_work(&self) -> bool {
        self.flush || self.cleanup || self.compactions > 0 || self.collections > 0
    }

    /// Compactions that count: what only rebuilds vSSTs waits for all others between its steps.
    pub fn merges(&self) -> usize {
        self.compactions - usize::from(self.rebuild_runs)
    }
}

/// The most urgent job of a class in `duty` and above `below` that may start now. What it works on is claimed.
pub(crate) fn next_job(jobs: &Arc<Jobs>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
    if jobs.context.signals.is_stopping() || jobs.context.health.is_poisoned() || jobs.log.get().is_none() {
        return None;
    }
    // The sums behind a limit are not for the thread of the log, on which writers wait.
    if duty != Duty::Log {
        jobs.tree.look_for_space();
    }
    let mut claims = lock(&jobs.claims);
    let log = duty.includes(JobClass::Log) && JobClass::Log < below && !claims.log && log::wanted(jobs);
    if log && !jobs.log.gives_way() {
        claims.log = true;
        return Some(Box::new(log::LogJob(jobs.clone())));
    }
    if duty == Duty::Log {
        return None;
    }
    if jobs.context.health.must_wait(jobs.context.env.clock.now_ns()) {
        return None;
    }
    if JobClass::Flush < below
        && !claims.flush
        && let Some(job) = flush::FlushJob::pick(jobs, &mut claims)
    {
        claims.flush = true;
        return Some(Box::new(job));
    }
    if JobClass::Cleanup < below
        && !claims.cleanup
        && let Some(job) = cleanup::CleanupJob::pick(jobs)
    {
        claims.cleanup = true;
        return Some(Box::new(job));
    }
    if let Some(job) = pick_within_slots(jobs, &mut claims, below) {
        return Some(job);
    }
    if below <= JobClass::Scrub {
        return None;
    }
    scrub::ScrubJob::start(jobs, &mut claims).map(|job| Box::new(job) as Box<dyn Job>)
}

/// Compactions and collections: within their slots, and then whatever a thread can be spared for.
fn pick_within_slots(jobs: &Arc<Jobs>, claims: &mut Claims, below: JobClass) -> Option<Box<dyn Job>> {
    if below <= JobClass::L0 {
        return None;
    }
    let slots = gc::when::slots(jobs, claims);
    // Level 0 asks for no slot: it may use a thread of its own, or run on top of a deeper compaction.
    let deeper = below > JobClass::Compaction;
    if below > JobClass::UrgentGc && claims.collections < slots.urgent {
        let l0 = pick_compaction(jobs, claims, false);
        if let Some(job) = l0.or_else(|| gc::GcJob::start(jobs, claims, &slots, true)) {
            return Some(job);
        }
    }
    if let Some(job) = pick_compaction(jobs, claims, deeper && claims.merges() < slots.compactions) {
        return Some(job);
    }
    if below > JobClass::Gc
        && let Some(job) = gc::GcJob::start(jobs, claims, &slots, false)
    {
        return Some(job);
    }
    // Collection has no use for its threads.
    let spare = claims.collections == 0 && claims.merges() < jobs.context.options.compaction_slots();
    if deeper
        && spare
        && claims.merges() >= slots.compactions
        && let Some(job) = pick_compaction(jobs, claims, true)
    {
        return Some(job);
    }
    if JobClass::Gc < below
        && let Some((family, compaction, walk)) = rebuild::pick(jobs, claims)
    {
        claims.rebuilds.insert(family.id, walk);
        return claim_and_start(jobs, claims, &family, compaction);
    }
    None
}

fn pick_compaction(jobs: &Arc<Jobs>, claims: &mut Claims, deeper: bool) -> Option<Box<dyn Job>> {
    if deeper && let Some(compaction) = claims.manual.take() {
        match jobs.tree.family(compaction.family) {
            Some(_) if !fits(jobs, &compaction) => claims.manual = Some(compaction),
            Some(family) => return start(jobs, claims, &family, compaction),
            None => release_busy(claims, &compaction),
        }
    }
    for family in jobs.tree.all_families() {
        let Some(compaction) = find_compaction(jobs, claims, &family, !deeper) else { continue };
        return claim_and_start(jobs, claims, &family, compaction);
    }
    if !deeper {
        return None;
    }
    let (family, compaction) = pick_quiet(jobs, claims)?;
    claim_and_start(jobs, claims, &family, compaction)
}

/// What pays while nobody writes. A version in which nothing does is not looked at again.
fn pick_quiet(jobs: &Jobs, claims: &mut Claims) -> Option<(Arc<Family>, Compaction)> {
    if !jobs.context.options.ablation.quiet_compaction || !jobs.is_quiet() {
        return None;
    }
    for family in jobs.tree.all_families() {
        let version = family.view().version.clone();
        let known = claims.at_rest.get(&family.id);
        if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&version))) {
            continue;
        }
        let Some(policy) = family.policy() else { continue };
        let set_aside = family.tables_set_aside();
        let busy = claims.busy.entry(family.id).or_default();
        match policy.quiet(&Facts { version: &version, set_aside: &set_aside, busy }) {
            Some(compaction) if fits(jobs, &compaction) => return Some((family, compaction)),
            Some(_) => {}
            // What is in the way of a compaction now may be out of it without a new version.
            None if busy.is_empty() => {
                claims.at_rest.insert(family.id, Arc::downgrade(&version));
            }
            None => {}
        }
    }
    None
}

/// What could be compacted in a family now, and has room for its outputs. Where room is short that is also what is not
/// over its target.
fn find_compaction(jobs: &Jobs, claims: &mut Claims, family: &Family, only_l0: bool) -> Option<Compaction> {
    let version = family.view().version.clone();
    let (policy, set_aside) = (family.policy()?, family.tables_set_aside());
    let fitting = |compaction: &Compaction| fits(jobs, compaction);
    let busy = claims.busy.entry(family.id).or_default();
    let facts = Facts { version: &version, set_aside: &set_aside, busy };
    let wanted = if only_l0 { policy.l0(&facts) } else { policy.levels(&facts) }.filter(fitting);
    if wanted.is_some() || only_l0 || !jobs.space.is_short() {
        return wanted;
    }
    // As long as collection makes room, a compaction must do so at no higher price.
    let collected = claims.collections > 0 || gc::is_wanted(jobs, claims);
    let need = if collected { Need::Worth(WORTH_BYTES) } else { Need::Any };
    let busy = claims.busy.entry(family.id).or_default();
    let retained = &claims.retained;
    let released = |file: u64| {
        retained.get(&file).is_some_and(|for_snapshots| jobs.tree.snapshots.let_go_of(for_snapshots))
    };
    policy
        .for_space(&Facts { version: &version, set_aside: &set_aside, busy }, need, &released)
        .filter(fitting)
}

/// Bytes of outputs that a compaction may write. Those of its inputs, but for what range tombstones cover in the deeper
/// level: a store that is full, and was cleared by one, has no room for a copy of what is gone.
fn output_bytes(jobs: &Jobs, compaction: &Compaction) -> u64 {
    // What is rebuilt beside it ends with the table by which it is a vSST's worth.
    let rebuilt = jobs.tree.family(compaction.family).filter(|_| !compaction.rebuild_vssts.is_empty());
    let all = compaction.input_bytes() + rebuilt.map_or(0, |family| 2 * family.options().vsst_bytes);
    let covering =
        |(level, f): &(usize, &Arc<FileMeta>)| *level == compaction.level && f.range_tombstones > 0;
    let covered: u64 = compaction.input_files().filter(covering).map(|(_, f)| f.hidden_bytes).sum();
    match compaction.trivial_move {
        true => 0,
        false if covered == 0 || jobs.tree.snapshots.is_any() => all,
        false => {
            let lower = || compaction.input_files().filter(|(level, _)| *level != compaction.level);
            let (len, raw) = lower().fold((0, 1), |(len, raw), (_, f)| (len + f.len, raw + f.raw_bytes));
            all - (u128::from(len) * u128::from(covered.min(raw)) / u128::from(raw)) as u64
        }
    }
}

/// True if there is room for the outputs of a compaction.
fn fits(jobs: &Jobs, compaction: &Compaction) -> bool {
    compaction.trivial_move || jobs.space.would_grant(output_bytes(jobs, compaction))
}

fn claim_and_start(
    jobs: &Arc<Jobs>,
    claims: &mut Claims,
    family: &Arc<Family>,
    compaction: Compaction,
) -> Option<Box<dyn Job>> {
    claims.busy.entry(family.id).or_default().add(&compaction);
    start(jobs, claims, family, compaction)
}

/// Starts a compaction whose files are claimed.
fn start(
    jobs: &Arc<Jobs>,
    claims: &mut Claims,
    family: &Arc<Family>,
    compaction: Compaction,
) -> Option<Box<dyn Job>> {
    let Some(policy) = family.policy() else {
        // It was replaced a moment ago.
        release_busy(claims, &compaction);
        return None;
    };
    claims.compactions += 1;
    claims.manual_running += usize::from(compaction.reason == Reason::Manual);
    claims.rebuild_runs |= compaction.reason == Reason::Rebuild;
    let number = claims.job_number();
    let grant = jobs.space.grant(output_bytes(jobs, &compaction));
    Some(Box::new(compaction::CompactionJob::new(jobs, family.clone(), compaction, policy, number, grant)))
}

/// Gives back the files a compaction had claimed.
pub(crate) fn release_busy(claims: &mut Claims, compaction: &Compaction) {
    if let Some(busy) = claims.busy.get_mut(&compaction.family) {
        busy.remove(compaction);
    }
}

/// Starts the next compaction that a `compact_range` needs, if it can. True when there is none left, waiting or running.
pub(crate) fn advance_manual(jobs: &Arc<Jobs>, family: &Arc<Family>, range: &mut ManualRange) -> bool {
    let mut claims = lock(&jobs.claims);
    if family.is_dropped() {
        return true;
    }
    if let Some(compaction) = &claims.manual
        && !fits(jobs, compaction)
        && claims.compactions == 0
        && claims.collections == 0
    {
        // Nobody is about to make room for it: the caller is told, and it is given up.
        let compaction = claims.manual.take().expect("looked at above");
        release_busy(&mut claims, &compaction);
        jobs.context.health.no_space_at(jobs.context.env.clock.now_ns());
        return false;
    }
    // One at a time: the walk asks where things are only when its last step is done.
    if claims.manual.is_some() || claims.manual_running > 0 {
        return false;
    }
    let Some(policy) = family.policy() else { return true };
    let (version, set_aside) = (family.view().version.clone(), family.tables_set_aside());
    let busy = claims.busy.entry(family.id).or_default();
    match policy.manual(&Facts { version: &version, set_aside: &set_aside, busy }, range) {
        ManualStep::Done => true,
        ManualStep::Wait => false,
        ManualStep::Start(compaction) => {
            busy.add(&compaction);
            claims.manual = Some(*compaction);
            drop(claims);
            jobs.context.signals.notify_work();
            false
        }
    }
}

/// True if no job runs and none could start. (The log's idle watermark is not counted: it is due only after a while.)
pub(crate) fn is_idle(jobs: &Jobs) -> bool {
    let mut claims = lock(&jobs.claims);
    let compacting = claims.compactions > 0 || claims.manual.is_some();
    if claims.log || claims.flush || claims.cleanup || claims.collections > 0 || compacting {
        return false;
    }
    if log::wanted(jobs) || cleanup::CleanupJob::is_wanted(jobs).is_some() || gc::is_wanted(jobs, &mut claims)
    {
        return false;
    }
    if pick_quiet(jobs, &mut claims).is_some() || rebuild::pick(jobs, &mut claims).is_some() {
        return false;
    }
    let families = jobs.tree.all_families();
    families.iter().all(|f| f.view().frozen.is_empty())
        && !families.iter().any(|family| find_compaction(jobs, &mut claims, family, false).is_some())
}

#[cfg(all(test, not(loom)))]
mod tests;
