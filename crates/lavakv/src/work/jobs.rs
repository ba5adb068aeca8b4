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
pub(crate) mod kept;
pub(crate) mod log;
pub(crate) mod output;
pub(crate) mod rebuild;
pub(crate) mod scrub;
pub(crate) mod separate;

use crate::engine::Engine;
use crate::run::scheduler::{Duty, Job, JobClass};
use crate::tree::family::Family;
use base::sync::lock;
use base::{HashMap, SeqNo};
use lsm::policy::{Compaction, Facts, InProgress, ManualRange, ManualStep, Need, Reason, Rebuild};
use std::sync::{Arc, Weak};
use version::{FamilyId, FileMeta, Version};

/// Near the space limit a file that is collected is a quarter garbage or more: three bytes are copied for one.
const WORTH_BYTES: u32 = 3;

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
    pub gc_requests: crate::admin::collect::Requests,
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
pub(crate) fn next_job(engine: &Arc<Engine>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
    if engine.scheduler.is_stopping() || engine.health.is_poisoned() || engine.wal.get().is_none() {
        return None;
    }
    // The sums behind a limit are not for the thread of the log, on which writers wait.
    if duty != Duty::Log {
        engine.space.look_again(engine);
    }
    let mut claims = lock(&engine.claims);
    let log = duty.includes(JobClass::Log) && JobClass::Log < below && !claims.log && log::wanted(engine);
    if log && !engine.log.gives_way() {
        claims.log = true;
        return Some(Box::new(log::LogJob));
    }
    if duty == Duty::Log {
        return None;
    }
    if engine.health.must_wait(engine.env.clock.now_ns()) {
        return None;
    }
    if JobClass::Flush < below
        && !claims.flush
        && let Some(job) = flush::FlushJob::pick(engine, &mut claims)
    {
        claims.flush = true;
        return Some(Box::new(job));
    }
    if JobClass::Cleanup < below
        && !claims.cleanup
        && let Some(job) = cleanup::CleanupJob::pick(engine)
    {
        claims.cleanup = true;
        return Some(Box::new(job));
    }
    if let Some(job) = pick_within_slots(engine, &mut claims, below) {
        return Some(job);
    }
    if below <= JobClass::Scrub {
        return None;
    }
    scrub::ScrubJob::start(engine, &mut claims).map(|job| Box::new(job) as Box<dyn Job>)
}

/// Compactions and collections: within their slots, and then whatever a thread can be spared for.
fn pick_within_slots(engine: &Arc<Engine>, claims: &mut Claims, below: JobClass) -> Option<Box<dyn Job>> {
    if below <= JobClass::L0 {
        return None;
    }
    let slots = gc::when::slots(engine, claims);
    // Level 0 asks for no slot: it may use a thread of its own, or run on top of a deeper compaction.
    let deeper = below > JobClass::Compaction;
    if below > JobClass::UrgentGc && claims.collections < slots.urgent {
        let l0 = pick_compaction(engine, claims, false);
        if let Some(job) = l0.or_else(|| gc::GcJob::start(engine, claims, &slots, true)) {
            return Some(job);
        }
    }
    if let Some(job) = pick_compaction(engine, claims, deeper && claims.merges() < slots.compactions) {
        return Some(job);
    }
    if below > JobClass::Gc
        && let Some(job) = gc::GcJob::start(engine, claims, &slots, false)
    {
        return Some(job);
    }
    // Collection has no use for its threads.
    let spare = claims.collections == 0 && claims.merges() < engine.options.compaction_slots();
    if deeper
        && spare
        && claims.merges() >= slots.compactions
        && let Some(job) = pick_compaction(engine, claims, true)
    {
        return Some(job);
    }
    if JobClass::Gc < below
        && let Some((family, compaction, walk)) = rebuild::pick(engine, claims)
    {
        claims.rebuilds.insert(family.id, walk);
        return claim_and_start(engine, claims, &family, compaction);
    }
    None
}

fn pick_compaction(engine: &Arc<Engine>, claims: &mut Claims, deeper: bool) -> Option<Box<dyn Job>> {
    if deeper && let Some(compaction) = claims.manual.take() {
        match engine.family(compaction.family) {
            Some(_) if !fits(engine, &compaction) => claims.manual = Some(compaction),
            Some(family) => return start(engine, claims, &family, compaction),
            None => release_busy(claims, &compaction),
        }
    }
    for family in engine.all_families() {
        let Some(compaction) = find_compaction(engine, claims, &family, !deeper) else { continue };
        return claim_and_start(engine, claims, &family, compaction);
    }
    if !deeper {
        return None;
    }
    let (family, compaction) = pick_quiet(engine, claims)?;
    claim_and_start(engine, claims, &family, compaction)
}

/// What pays while nobody writes. A version in which nothing does is not looked at again.
fn pick_quiet(engine: &Engine, claims: &mut Claims) -> Option<(Arc<Family>, Compaction)> {
    if !engine.options.ablation.quiet_compaction || !engine.is_quiet() {
        return None;
    }
    for family in engine.all_families() {
        let version = family.view().version.clone();
        let known = claims.at_rest.get(&family.id);
        if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&version))) {
            continue;
        }
        let Some(policy) = family.policy() else { continue };
        let set_aside = family.tables_set_aside();
        let busy = claims.busy.entry(family.id).or_default();
        match policy.quiet(&Facts { version: &version, set_aside: &set_aside, busy }) {
            Some(compaction) if fits(engine, &compaction) => return Some((family, compaction)),
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
fn find_compaction(
    engine: &Engine,
    claims: &mut Claims,
    family: &Family,
    only_l0: bool,
) -> Option<Compaction> {
    let version = family.view().version.clone();
    let (policy, set_aside) = (family.policy()?, family.tables_set_aside());
    let fitting = |compaction: &Compaction| fits(engine, compaction);
    let busy = claims.busy.entry(family.id).or_default();
    let facts = Facts { version: &version, set_aside: &set_aside, busy };
    let wanted = if only_l0 { policy.l0(&facts) } else { policy.levels(&facts) }.filter(fitting);
    if wanted.is_some() || only_l0 || !engine.is_space_short() {
        return wanted;
    }
    // As long as collection makes room, a compaction must do so at no higher price.
    let collected = claims.collections > 0 || gc::is_wanted(engine, claims);
    let need = if collected { Need::Worth(WORTH_BYTES) } else { Need::Any };
    let busy = claims.busy.entry(family.id).or_default();
    let retained = &claims.retained;
    let released = |file: u64| {
        retained.get(&file).is_some_and(|for_snapshots| engine.snapshots.let_go_of(for_snapshots))
    };
    policy
        .for_space(&Facts { version: &version, set_aside: &set_aside, busy }, need, &released)
        .filter(fitting)
}

/// Bytes of outputs that a compaction may write. Those of its inputs, but for what range tombstones cover in the deeper
/// level: a store that is full, and was cleared by one, has no room for a copy of what is gone.
fn output_bytes(engine: &Engine, compaction: &Compaction) -> u64 {
    // What is rebuilt beside it ends with the table by which it is a vSST's worth.
    let rebuilt = engine.family(compaction.family).filter(|_| !compaction.rebuild_vssts.is_empty());
    let all = compaction.input_bytes() + rebuilt.map_or(0, |family| 2 * family.options().vsst_bytes);
    let covering =
        |(level, f): &(usize, &Arc<FileMeta>)| *level == compaction.level && f.range_tombstones > 0;
    let covered: u64 = compaction.input_files().filter(covering).map(|(_, f)| f.hidden_bytes).sum();
    match compaction.trivial_move {
        true => 0,
        false if covered == 0 || engine.snapshots.is_any() => all,
        false => {
            let lower = || compaction.input_files().filter(|(level, _)| *level != compaction.level);
            let (len, raw) = lower().fold((0, 1), |(len, raw), (_, f)| (len + f.len, raw + f.raw_bytes));
            all - (u128::from(len) * u128::from(covered.min(raw)) / u128::from(raw)) as u64
        }
    }
}

/// True if there is room for the outputs of a compaction.
fn fits(engine: &Engine, compaction: &Compaction) -> bool {
    compaction.trivial_move || engine.space.would_grant(engine, output_bytes(engine, compaction))
}

fn claim_and_start(
    engine: &Arc<Engine>,
    claims: &mut Claims,
    family: &Arc<Family>,
    compaction: Compaction,
) -> Option<Box<dyn Job>> {
    claims.busy.entry(family.id).or_default().add(&compaction);
    start(engine, claims, family, compaction)
}

/// Starts a compaction whose files are claimed.
fn start(
    engine: &Arc<Engine>,
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
    let grant = engine.space.grant(engine, output_bytes(engine, &compaction));
    Some(Box::new(compaction::CompactionJob::new(engine, family.clone(), compaction, policy, number, grant)))
}

/// Gives back the files a compaction had claimed.
pub(crate) fn release_busy(claims: &mut Claims, compaction: &Compaction) {
    if let Some(busy) = claims.busy.get_mut(&compaction.family) {
        busy.remove(compaction);
    }
}

/// Starts the next compaction that a `compact_range` needs, if it can. True when there is none left, waiting or running.
pub(crate) fn advance_manual(engine: &Arc<Engine>, family: &Arc<Family>, range: &mut ManualRange) -> bool {
    let mut claims = lock(&engine.claims);
    if family.is_dropped() {
        return true;
    }
    if let Some(compaction) = &claims.manual
        && !fits(engine, compaction)
        && claims.compactions == 0
        && claims.collections == 0
    {
        // Nobody is about to make room for it: the caller is told, and it is given up.
        let compaction = claims.manual.take().expect("looked at above");
        release_busy(&mut claims, &compaction);
        engine.health.no_space_at(engine.env.clock.now_ns());
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
            engine.scheduler.notify_work();
            false
        }
    }
}

/// True if no job runs and none could start. (The log's idle watermark is not counted: it is due only after a while.)
pub(crate) fn is_idle(engine: &Arc<Engine>) -> bool {
    let mut claims = lock(&engine.claims);
    let compacting = claims.compactions > 0 || claims.manual.is_some();
    if claims.log || claims.flush || claims.cleanup || claims.collections > 0 || compacting {
        return false;
    }
    if log::wanted(engine)
        || cleanup::CleanupJob::pick(engine).is_some()
        || gc::is_wanted(engine, &mut claims)
    {
        return false;
    }
    if pick_quiet(engine, &mut claims).is_some() || rebuild::pick(engine, &mut claims).is_some() {
        return false;
    }
    let families = engine.all_families();
    families.iter().all(|f| f.view().frozen.is_empty())
        && !families.iter().any(|family| find_compaction(engine, &mut claims, family, false).is_some())
}

/// True if a job runs or could start that may free space.
pub(crate) fn can_work(engine: &Arc<Engine>) -> bool {
    !engine.health.is_poisoned() && !engine.scheduler.is_stopping() && !is_idle(engine)
}

#[cfg(all(test, not(loom)))]
mod tests;
