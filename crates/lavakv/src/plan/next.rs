//! The choice of the next job: a pure function of the facts.
//!
//! There are no queues that could disagree with the state of the store: frozen memtables imply a
//! flush, a level over its target implies a compaction, and so on. The caller claims the inputs of
//! the chosen job, and stores the notes, before the next decision.

use super::answer::{Collection, Compact, FlushUnit, PlanNotes, Purpose};
use super::facts::{Facts, FamilyFacts};
use super::moves;
use super::placement::TierMove;
use super::rest::Rest;
use super::slots::{Slots, all_but_one};
use super::{collection, compaction, relocation};
use crate::tree::family::Family;
use crate::tree::flushable::Flushable;
use crate::tree::summary::Pressure;
use base::SeqNo;
use std::sync::Arc;
use store::run::JobClass;
use version::FileMeta;

/// Memtables of several families share a flush if their total is at most this part of a memtable.
const SHARED_PART: usize = 4;
/// Maximum number of families that share a flush.
const SHARED_MAX: usize = 256;

/// The next job.
pub(crate) enum JobPlan {
    /// A flush of these memtables, in one version edit.
    Flush(Vec<FlushUnit>),
    /// A removal of unreferenced files; `prune`: also of names.
    Cleanup { prune: bool },
    /// A compaction.
    Compact(Compact),
    /// Help with pieces of the running compaction of this number.
    Help(u64),
    /// A collection.
    Collect(Box<Collection>),
    /// A move of a table to the other tier.
    Move(Arc<Family>, Arc<FileMeta>, TierMove),
    /// A read of key samples, to estimate the unexposed garbage of this family's tables.
    Survey(Arc<Family>),
    /// A rotation of memtables with tombstones, since the store is at rest.
    FreezeTombstones,
    /// A read of table properties of this family, since the store is at rest.
    ReadRetained(Arc<Family>),
    /// A pass of the scrub.
    Scrub,
}

/// Returns the most urgent job of a class above `below`. The log is exempt: its thread looks for
/// work by itself.
pub(crate) fn next(facts: &dyn Facts, below: JobClass, notes: &mut PlanNotes) -> Option<JobPlan> {
    let running = &facts.in_progress().running;
    if JobClass::Flush < below && !running.flush {
        let flushed = flush(facts);
        if !flushed.is_empty() {
            return Some(JobPlan::Flush(flushed));
        }
        if facts.rest() == Rest::On && facts.has_tombstones_in_memory() {
            return Some(JobPlan::FreezeTombstones);
        }
    }
    if JobClass::Cleanup < below
        && !running.cleanup
        && let Some(prune) = facts.cleanup()
    {
        return Some(JobPlan::Cleanup { prune });
    }
    // Before compactions: their choice by exposed garbage, and limits, depend on the survey.
    if JobClass::Compaction < below
        && !running.survey
        && let Some(family) = facts.to_survey()
    {
        return Some(JobPlan::Survey(family));
    }
    if JobClass::Compaction < below
        && !running.survey
        && facts.rest() == Rest::On
        && let Some(unread) = facts.families().iter().find(|of| !facts.knows_retained(of.family.id))
    {
        return Some(JobPlan::ReadRetained(unread.family.clone()));
    }
    if let Some(plan) = within_slots(facts, below, notes) {
        return Some(plan);
    }
    if JobClass::Move < below
        && let Some((family, table, wanted)) = moves::pick(facts)
    {
        return Some(JobPlan::Move(family, table, wanted));
    }
    // Moves of values are not urgent: they wait until the log is less busy.
    if JobClass::Move < below
        && !notes.leaves_room_for_log
        && let Some(collection) = moves::pick_values(facts)
    {
        return Some(JobPlan::Collect(collection));
    }
    let scrubs = JobClass::Scrub < below && facts.options().expert.scrub_bytes_per_s > 0;
    (scrubs && facts.in_progress().scrub.is_due(facts.now_ns())).then_some(JobPlan::Scrub)
}

/// Returns all frozen memtables of all families.
pub(crate) fn flush_together(facts: &dyn Facts) -> Vec<FlushUnit> {
    facts.frozen().ready.into_iter().map(|(_, family, memtables)| (family, memtables)).collect()
}

/// Returns the memtables to flush: all of the family with the oldest data, plus those of the next
/// oldest families while they are small in total. Memtables of all families are flushed if a
/// volatile batch spans several, or if they were frozen together and the tables fit.
pub(crate) fn flush(facts: &dyn Facts) -> Vec<FlushUnit> {
    let frozen = facts.frozen();
    let mut ready = frozen.ready;
    let joined = |oldest: SeqNo| oldest <= frozen.joined_seq && !facts.is_short_of_space();
    let together = |oldest: SeqNo| oldest <= frozen.volatile_seq || joined(oldest);
    if !ready.iter().any(|(oldest, ..)| together(*oldest)) {
        ready.sort_by_key(|(oldest, ..)| *oldest);
        ready.truncate(sharing(facts, &ready));
    }
    ready.into_iter().map(|(_, family, memtables)| (family, memtables)).collect()
}

/// Returns how many of these families, oldest first, share a flush: as many as are small in total,
/// so that none waits long for the tables of another. When space is short the first family is
/// flushed alone.
fn sharing(facts: &dyn Facts, ready: &[Flushable]) -> usize {
    if facts.is_short_of_space() {
        return 1;
    }
    let bytes_max = facts.options().memtable_bytes / SHARED_PART;
    let mut bytes = 0;
    let is_short = |(_, _, memtables): &&Flushable| {
        bytes += memtables.iter().map(|memtable| memtable.bytes()).sum::<usize>();
        bytes <= bytes_max
    };
    ready.iter().take(SHARED_MAX).take_while(is_short).count().max(1)
}

/// Picks compactions and collections: first within their slots, then with idle threads.
fn within_slots(facts: &dyn Facts, below: JobClass, notes: &mut PlanNotes) -> Option<JobPlan> {
    if below <= JobClass::L0 {
        return None;
    }
    let running = &facts.in_progress().running;
    let slots = slots(facts, notes);
    if let Some(plan) = before_level_0(facts, below, notes) {
        return plan;
    }
    // Level 0 needs no slot: it may use its own thread, or run on top of a deeper compaction.
    // Running work ends before other work of its kind begins.
    if let Some(job) = facts.in_progress().to_help(JobClass::L0) {
        return Some(JobPlan::Help(job));
    }
    let deeper = below > JobClass::Compaction;
    let to_help =
        |may_start: bool| facts.in_progress().to_help(JobClass::Compaction).filter(|_| deeper && may_start);
    if below > JobClass::UrgentGc && running.collections < slots.urgent {
        let l0 = compaction::pick(facts, notes, false).map(JobPlan::Compact);
        if let Some(plan) = l0.or_else(|| for_space(facts, below, notes, facts.families_with_work().iter())) {
            return Some(plan);
        }
    }
    if leaves_room_for_log(facts, notes) {
        return compaction::pick(facts, notes, false).map(JobPlan::Compact);
    }
    let has_slot = running.merges() < slots.compactions;
    if let Some(job) = to_help(has_slot) {
        return Some(JobPlan::Help(job));
    }
    if let Some(compact) = compaction::pick(facts, notes, deeper && has_slot) {
        return Some(JobPlan::Compact(compact));
    }
    if below > JobClass::Gc
        && collection::may_start(facts, &slots)
        && let Some(collection) = collection::pick(facts)
    {
        return Some(JobPlan::Collect(collection));
    }
    // Collection has no use for its threads.
    let spare = running.collections == 0 && running.merges() < merges_max(facts);
    if let Some(job) = to_help(spare) {
        return Some(JobPlan::Help(job));
    }
    if deeper
        && spare
        && !has_slot
        && let Some(compact) = compaction::pick(facts, notes, true)
    {
        return Some(JobPlan::Compact(compact));
    }
    if JobClass::Gc < below { relocation::pick(facts, notes).map(JobPlan::Compact) } else { None }
}

/// Returns the maximum number of compactions if no other work needs a thread. One thread is
/// reserved for flush and level 0, unless writers wait for background work: flush and level 0 run
/// between two steps of a compaction anyway.
fn merges_max(facts: &dyn Facts) -> usize {
    let options = facts.options();
    match options.expert.compactions_max {
        0 if facts.is_hurried() => options.background_threads,
        _ => options.compaction_slots(),
    }
}

/// Picks a job that frees space where garbage is far above its bound. `Some(None)`: no job starts,
/// and level 0 waits.
fn before_level_0(facts: &dyn Facts, below: JobClass, notes: &mut PlanNotes) -> Option<Option<JobPlan>> {
    let far = collection::before_level_0(facts);
    if far.is_empty() {
        return None;
    }
    // A collection may be suspended below a compaction on the stack of a thread.
    let urgent = facts.in_progress().running.urgent_collections;
    let most = all_but_one(facts.options().background_threads);
    // Level 0 takes no thread from a collection that frees space.
    let is_held = below == JobClass::UrgentGc || below == JobClass::Gc && urgent < most;
    if is_held && collection::is_collected(facts, &far) {
        return Some(None);
    }
    // A compaction is preempted only where level 0 would preempt it, since level 0 may be waiting
    // for it.
    let may_collect = below > JobClass::UrgentGc && urgent < most;
    if !may_collect || below <= JobClass::Compaction && compaction::pick(facts, notes, false).is_none() {
        return None;
    }
    for_space(facts, below, notes, far.iter().copied()).map(Some)
}

/// Picks a job that frees space in these families: a compaction that exposes garbage, which writes
/// little and makes the following collections cheaper, or a collection.
fn for_space<'a>(
    facts: &dyn Facts,
    below: JobClass,
    notes: &mut PlanNotes,
    families: impl Iterator<Item = &'a FamilyFacts> + Clone,
) -> Option<JobPlan> {
    let may_expose = below > JobClass::Compaction && facts.in_progress().running.merges() == 0;
    let exposes = if may_expose { compaction::exposing(facts, families.clone(), notes) } else { None };
    let collect = || collection::pick_among(facts, families, Purpose::UrgentGarbage).map(JobPlan::Collect);
    exposes.map(JobPlan::Compact).or_else(collect)
}

/// Returns whether the limit of jobs beside a busy log is reached.
fn leaves_room_for_log(facts: &dyn Facts, notes: &mut PlanNotes) -> bool {
    let options = facts.options();
    if !options.expert.ablation.log_first {
        return false;
    }
    let load = facts.in_progress().learned.log_load.seen(facts.now_ns(), facts.log_taken_ns());
    notes.log_load = Some(load);
    let running = &facts.in_progress().running;
    let all = load.jobs_max(options.background_threads);
    let is_full = all.is_some_and(|max| running.merges() + running.collections >= max);
    // A writer that waits for background work loses more than the log gains.
    let may_wait = !facts.is_hurried() && !facts.is_short_of_space();
    notes.leaves_room_for_log = is_full && may_wait;
    notes.leaves_room_for_log
}

/// Returns the job slots.
fn slots(facts: &dyn Facts, notes: &mut PlanNotes) -> Slots {
    let options = facts.options();
    let (threads, compactions_max) = (options.background_threads, options.expert.compactions_max);
    if !options.expert.ablation.gc_threads {
        return Slots::fixed(threads).limited(threads, compactions_max);
    }
    let mut pressure = Pressure::default();
    let with_work = facts.families_with_work().iter();
    with_work.for_each(|family| pressure.add(&family.read_state.summary.pressure));
    pressure.add_settled(facts.settled_trees());
    let slots = Slots::of(&pressure, threads, facts.fill_percent(), facts.in_progress().learned.gc_slots);
    notes.gc_slots = Some(slots.by_pressure);
    slots.limited(threads, compactions_max)
}

#[cfg(all(test, not(loom)))]
mod tests;
