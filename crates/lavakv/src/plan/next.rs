//! What to do next: a pure function of the facts.
//!
//! There are no queues that could disagree with the state of the store: frozen memtables mean a flush, a level over its
//! target means a compaction, and so on. Who asks claims what the answer works on before anybody else may ask, and takes note
//! of what was learned on the way.

use super::answer::{Collection, Compact, Flushed, Notes, Purpose};
use super::facts::{Facts, FamilyFacts};
use super::moves;
use super::placement::Wanted;
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

/// The memtables of several families that share a flush have this part of a memtable at most, all together.
const SHARED_PART: usize = 4;
/// Most families that share a flush.
const SHARED_MAX: usize = 256;

/// What is to be done.
pub(crate) enum Plan {
    /// These memtables become tables, in one edit.
    Flush(Vec<Flushed>),
    /// Files go that nobody needs; `prune`: also names.
    Cleanup { prune: bool },
    /// A compaction.
    Compact(Compact),
    /// Pieces of a compaction that runs: that of this number.
    Help(u64),
    /// A collection.
    Collect(Box<Collection>),
    /// A table goes to the other disk.
    Move(Arc<Family>, Arc<FileMeta>, Wanted),
    /// Samples of keys are read, to estimate what tables of this family hide.
    Survey(Arc<Family>),
    /// Memtables with tombstones are frozen, since the store is at rest.
    FreezeTombstones,
    /// Properties of tables of this family are read, since the store is at rest.
    ReadRetained(Arc<Family>),
    /// A pass of the scrub.
    Scrub,
}

/// The most urgent thing to do of a class above `below`, but for the log, whose thread looks for itself.
pub(crate) fn next(facts: &dyn Facts, below: JobClass, notes: &mut Notes) -> Option<Plan> {
    let running = &facts.in_progress().running;
    if JobClass::Flush < below && !running.flush {
        let flushed = flush(facts);
        if !flushed.is_empty() {
            return Some(Plan::Flush(flushed));
        }
        if facts.rest() == Rest::On && facts.has_tombstones_in_memory() {
            return Some(Plan::FreezeTombstones);
        }
    }
    if JobClass::Cleanup < below
        && !running.cleanup
        && let Some(prune) = facts.cleanup()
    {
        return Some(Plan::Cleanup { prune });
    }
    // Before compactions: what they are to expose, and limits, depend on it.
    if JobClass::Compaction < below
        && !running.survey
        && let Some(family) = facts.to_survey()
    {
        return Some(Plan::Survey(family));
    }
    if JobClass::Compaction < below
        && !running.survey
        && facts.rest() == Rest::On
        && let Some(unread) = facts.families().iter().find(|of| !facts.knows_retained(of.family.id))
    {
        return Some(Plan::ReadRetained(unread.family.clone()));
    }
    if let Some(plan) = within_slots(facts, below, notes) {
        return Some(plan);
    }
    if JobClass::Move < below
        && let Some((family, table, wanted)) = moves::pick(facts)
    {
        return Some(Plan::Move(family, table, wanted));
    }
    // Nobody waits for room for values: it can wait until the log is written less.
    if JobClass::Move < below
        && !notes.leaves_room_for_log
        && let Some(collection) = moves::pick_values(facts)
    {
        return Some(Plan::Collect(collection));
    }
    let scrubs = JobClass::Scrub < below && facts.options().expert.scrub_bytes_per_s > 0;
    (scrubs && facts.in_progress().scrub.is_due(facts.now_ns())).then_some(Plan::Scrub)
}

/// All frozen memtables of all families.
pub(crate) fn flush_together(facts: &dyn Facts) -> Vec<Flushed> {
    facts.frozen().ready.into_iter().map(|(_, family, memtables)| (family, memtables)).collect()
}

/// All memtables of the family with the oldest data, and those of the next oldest that are short together; those of all families where
/// a volatile batch spans several, or where they were frozen together and there is room for the tables of all at once.
pub(crate) fn flush(facts: &dyn Facts) -> Vec<Flushed> {
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

/// How many of these, the oldest first, share a flush: as many as are short together, so that none waits long for the others' tables.
/// Where room is short the first has it alone.
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

/// Compactions and collections: within their slots, and then whatever a thread can be spared for.
fn within_slots(facts: &dyn Facts, below: JobClass, notes: &mut Notes) -> Option<Plan> {
    if below <= JobClass::L0 {
        return None;
    }
    let running = &facts.in_progress().running;
    let slots = slots(facts, notes);
    if let Some(plan) = before_level_0(facts, below, notes) {
        return plan;
    }
    // Level 0 asks for no slot: it may use a thread of its own, or run on top of a deeper compaction. What has begun ends before
    // anything else of its kind begins.
    if let Some(job) = facts.in_progress().to_help(JobClass::L0) {
        return Some(Plan::Help(job));
    }
    let deeper = below > JobClass::Compaction;
    let to_help =
        |may_start: bool| facts.in_progress().to_help(JobClass::Compaction).filter(|_| deeper && may_start);
    if below > JobClass::UrgentGc && running.collections < slots.urgent {
        let l0 = compaction::pick(facts, notes, false).map(Plan::Compact);
        if let Some(plan) = l0.or_else(|| for_space(facts, below, notes, facts.families().iter())) {
            return Some(plan);
        }
    }
    if leaves_room_for_log(facts, notes) {
        return compaction::pick(facts, notes, false).map(Plan::Compact);
    }
    let has_slot = running.merges() < slots.compactions;
    if let Some(job) = to_help(has_slot) {
        return Some(Plan::Help(job));
    }
    if let Some(compact) = compaction::pick(facts, notes, deeper && has_slot) {
        return Some(Plan::Compact(compact));
    }
    if below > JobClass::Gc
        && collection::may_start(facts, &slots)
        && let Some(collection) = collection::pick(facts)
    {
        return Some(Plan::Collect(collection));
    }
    // Collection has no use for its threads.
    let spare = running.collections == 0 && running.merges() < merges_max(facts);
    if let Some(job) = to_help(spare) {
        return Some(Plan::Help(job));
    }
    if deeper
        && spare
        && !has_slot
        && let Some(compact) = compaction::pick(facts, notes, true)
    {
        return Some(Plan::Compact(compact));
    }
    if JobClass::Gc < below { relocation::pick(facts, notes).map(Plan::Compact) } else { None }
}

/// How many compactions may run where nothing else has work for a thread. One thread is kept for flush and level 0, but not while writers wait for what it
/// could do: these come between two of its steps in any case.
fn merges_max(facts: &dyn Facts) -> usize {
    let options = facts.options();
    match options.expert.compactions_max {
        0 if facts.is_hurried() => options.background_threads,
        _ => options.compaction_slots(),
    }
}

/// What frees space where garbage is far above its bound. `Some(None)`: nothing begins, and level 0 waits.
fn before_level_0(facts: &dyn Facts, below: JobClass, notes: &mut Notes) -> Option<Option<Plan>> {
    let far = collection::before_level_0(facts);
    if far.is_empty() {
        return None;
    }
    // Others may wait below a compaction, on the stack of a thread.
    let urgent = facts.in_progress().running.urgent_collections;
    let most = all_but_one(facts.options().background_threads);
    // Level 0 takes no thread of a collection that frees space.
    let is_held = below == JobClass::UrgentGc || below == JobClass::Gc && urgent < most;
    if is_held && collection::is_collected(facts, &far) {
        return Some(None);
    }
    // A compaction is interrupted where level 0 would interrupt it, and not else: level 0 may wait for it.
    let may_collect = below > JobClass::UrgentGc && urgent < most;
    if !may_collect || below <= JobClass::Compaction && compaction::pick(facts, notes, false).is_none() {
        return None;
    }
    for_space(facts, below, notes, far.iter().copied()).map(Some)
}

/// What frees space in these families: a compaction that exposes what is hidden, which writes little, and the collections after it less; or a collection.
fn for_space<'a>(
    facts: &dyn Facts,
    below: JobClass,
    notes: &mut Notes,
    families: impl Iterator<Item = &'a FamilyFacts> + Clone,
) -> Option<Plan> {
    let may_expose = below > JobClass::Compaction && facts.in_progress().running.merges() == 0;
    let exposes = if may_expose { compaction::exposing(facts, families.clone(), notes) } else { None };
    let collect = || collection::pick_among(facts, families, Purpose::UrgentGarbage).map(Plan::Collect);
    exposes.map(Plan::Compact).or_else(collect)
}

/// True if as many jobs run as may beside a log that is written much.
fn leaves_room_for_log(facts: &dyn Facts, notes: &mut Notes) -> bool {
    let options = facts.options();
    if !options.expert.ablation.log_first {
        return false;
    }
    let load = facts.in_progress().learned.log_load.seen(facts.now_ns(), facts.log_taken_ns());
    notes.log_load = Some(load);
    let running = &facts.in_progress().running;
    let all = load.jobs_max(options.background_threads);
    let is_full = all.is_some_and(|max| running.merges() + running.collections >= max);
    // Whoever waits for background work waits longer than the log saves.
    let may_wait = !facts.is_hurried() && !facts.is_short_of_space();
    notes.leaves_room_for_log = is_full && may_wait;
    notes.leaves_room_for_log
}

/// What may run at once.
fn slots(facts: &dyn Facts, notes: &mut Notes) -> Slots {
    let options = facts.options();
    let (threads, compactions_max) = (options.background_threads, options.expert.compactions_max);
    if !options.expert.ablation.gc_threads {
        return Slots::fixed(threads).limited(threads, compactions_max);
    }
    let mut pressure = Pressure::default();
    facts.families().iter().for_each(|family| pressure.add(&family.read_state.summary.pressure));
    let slots = Slots::of(&pressure, threads, facts.fill_percent(), facts.in_progress().learned.gc_slots);
    notes.gc_slots = Some(slots.by_pressure);
    slots.limited(threads, compactions_max)
}

#[cfg(all(test, not(loom)))]
mod tests;
