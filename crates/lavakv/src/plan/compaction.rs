//! Picks compactions: the choice of each family's policy, if outputs fit and no running job
//! conflicts.

use super::answer::{Compact, PlanNotes};
use super::collection;
use super::facts::{Facts, FamilyFacts};
use super::rest::Rest;
use super::room::fits;
use lsm::policy::{Compaction, CompactionPolicy, Reason, RequiredBenefit, RestRequest};
use std::sync::{Arc, Weak};
use version::Version;

/// Bytes that a compaction may write per byte freed near the space limit. Collection there takes
/// files of at least a quarter garbage: it copies three bytes for one.
const WORTH_BYTES: u32 = 3;

/// Returns the next compaction. With `deeper`: of any level, or the manual one; otherwise of level
/// 0 only.
pub(super) fn pick(facts: &dyn Facts, notes: &mut PlanNotes, deeper: bool) -> Option<Compact> {
    if deeper && let Some(asked) = facts.in_progress().manual.as_ref().filter(|_| !notes.manual_is_void) {
        let asked = &asked.compaction;
        let family = facts.families().iter().find(|of| of.family.id == asked.family);
        match family.filter(|family| family.policy.is_some()) {
            Some(family) if !fits(facts, family, asked) => {}
            Some(family) => return Some(Compact::Asked(family.family.clone())),
            None => notes.manual_is_void = true,
        }
    }
    let candidates = if facts.is_short_of_space() { facts.families() } else { facts.families_with_work() };
    for family in candidates {
        let Some(compaction) = find(facts, family, notes, !deeper) else { continue };
        return Some(Compact::Picked(family.family.clone(), Box::new(compaction)));
    }
    if !deeper {
        return None;
    }
    let (family, compaction) = quiet(facts, notes)?;
    Some(Compact::Picked(family.family.clone(), Box::new(compaction)))
}

/// Returns a compaction that exposes garbage, in the first family where exposing precedes
/// collection.
pub(super) fn exposing<'a>(
    facts: &dyn Facts,
    mut families: impl Iterator<Item = &'a FamilyFacts>,
    notes: &mut PlanNotes,
) -> Option<Compact> {
    families.find_map(|family| {
        let compaction = exposing_in(facts, family, notes)?;
        Some(Compact::Picked(family.family.clone(), Box::new(compaction)))
    })
}

/// Evaluating this reads the overlap statistics of all tables above the last level. So a version
/// without a worthwhile compaction is remembered. The required ratio follows from the version.
fn exposing_in(facts: &dyn Facts, family: &FamilyFacts, notes: &mut PlanNotes) -> Option<Compaction> {
    let worth = collection::exposing_is_worth(facts, family)?;
    let (id, version) = (family.family.id, &family.read_state.version);
    let known = facts.in_progress().learned.exposes_none.get(&id);
    let noted = notes.exposes_none.iter().find(|(noted, _)| *noted == id).map(|(_, version)| version);
    if known.into_iter().chain(noted).any(|known| is_same(known, version)) {
        return None;
    }
    let busy = facts.in_progress().of(id);
    let met = family.read_state.met()?;
    let found = family.policy.as_ref()?.exposing(&family.of_tree(busy), met, worth);
    if found.is_none() && !busy.has_tables() {
        notes.exposes_none.push((id, Arc::downgrade(version)));
    }
    found.filter(|compaction| fits(facts, family, compaction))
}

fn is_same(known: &Weak<Version>, version: &Arc<Version>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(version))
}

/// Returns a compaction for an idle store: one that frees more than it writes, or one that frees
/// deleted data. A version without either is remembered.
fn quiet<'a>(facts: &'a dyn Facts, notes: &mut PlanNotes) -> Option<(&'a FamilyFacts, Compaction)> {
    let is_on = facts.options().expert.ablation.quiet_compaction && facts.is_quiet();
    let rest = facts.rest();
    if !is_on || matches!(rest, Rest::Suspended(_)) {
        return None;
    }
    let mut is_over = rest == Rest::On && is_flushed_of_tombstones(facts);
    for family in facts.families() {
        let (id, version) = (family.family.id, &family.read_state.version);
        let known = facts.in_progress().learned.at_rest.get(&id);
        if known.is_some_and(|known| is_same(known, version)) {
            continue;
        }
        let Some(policy) = &family.policy else { continue };
        let busy = facts.in_progress().of(id);
        let tree = family.of_tree(busy);
        match policy.quiet(&tree).or_else(|| at_rest(facts, policy.as_ref(), &tree)) {
            Some(compaction) if fits(facts, family, &compaction) => return Some((family, compaction)),
            Some(_) => is_over = false,
            // A running job that conflicts with a compaction may end without a new version.
            None if busy.is_empty() && rest == Rest::On && facts.knows_retained(id) => {
                notes.at_rest.push((id, Arc::downgrade(version)));
                if of_rest(facts, policy.as_ref(), &tree, u64::MAX).is_some() {
                    notes.unaffordable.push((id, Arc::downgrade(version)));
                }
            }
            None => is_over = false,
        }
    }
    notes.rest_ends_at = (is_over && !notes.at_rest.is_empty()).then(|| facts.written_bytes());
    None
}

/// Returns whether no memtable has tombstones, and no running job adds tombstones to tables or
/// removes them.
fn is_flushed_of_tombstones(facts: &dyn Facts) -> bool {
    let running = &facts.in_progress().running;
    !running.flush
        && !running.survey
        && !running.rewrites()
        && !facts.has_frozen()
        && !facts.has_tombstones_in_memory()
}

/// Returns a compaction that frees deleted data, within the budget of rest work.
fn at_rest(
    facts: &dyn Facts,
    policy: &dyn CompactionPolicy,
    tree: &lsm::policy::PickInputs<'_>,
) -> Option<Compaction> {
    if facts.rest() != Rest::On {
        return None;
    }
    let account = &facts.in_progress().learned.rest;
    let rewrite_bytes_max = account.left_bytes(facts.written_bytes(), facts.used_bytes());
    of_rest(facts, policy, tree, rewrite_bytes_max)
}

fn of_rest(
    facts: &dyn Facts,
    policy: &dyn CompactionPolicy,
    tree: &lsm::policy::PickInputs<'_>,
    rewrite_bytes_max: u64,
) -> Option<Compaction> {
    let has_released = &|table| facts.has_released(table);
    policy.rest(tree, &RestRequest { reason: Reason::Rest, rewrite_bytes_max, has_released })
}

/// Returns a compaction of tombstones that iterators have passed, within the bytes that the skipped
/// entries pay for. Open snapshots would retain these tombstones, so there must be none.
fn passed(facts: &dyn Facts, family: &FamilyFacts, tree: &lsm::policy::PickInputs<'_>) -> Option<Compaction> {
    let rewrite_bytes_max = family.family.demand.passed_bytes().filter(|_| !facts.has_snapshots())?;
    let request = RestRequest { reason: Reason::Passed, rewrite_bytes_max, has_released: &|_| false };
    family.policy.as_ref()?.rest(tree, &request)
}

/// Returns the compaction to run in a family now, if its outputs fit. When space is short, levels
/// below their targets qualify as well.
fn find(facts: &dyn Facts, family: &FamilyFacts, notes: &mut PlanNotes, only_l0: bool) -> Option<Compaction> {
    let policy = family.policy.as_ref()?;
    let fitting = |compaction: &Compaction| fits(facts, family, compaction);
    let in_progress = facts.in_progress();
    let tree = family.of_tree(in_progress.of(family.family.id));
    let wanted = if only_l0 { policy.l0(&tree) } else { policy.levels(&tree) }.filter(fitting);
    let wanted = wanted.or_else(|| if only_l0 { None } else { exposing_in(facts, family, notes) });
    let wanted = wanted.or_else(|| if only_l0 { None } else { passed(facts, family, &tree).filter(fitting) });
    if wanted.is_some() || only_l0 || !facts.is_short_of_space() {
        return wanted;
    }
    // While collection frees space, a compaction must do so at no higher cost.
    let collected = in_progress.running.collections > 0 || collection::is_wanted(facts);
    let need = if collected { RequiredBenefit::Worth(WORTH_BYTES) } else { RequiredBenefit::Any };
    policy.for_space(&tree, need, &|table| facts.has_released(table)).filter(fitting)
}
