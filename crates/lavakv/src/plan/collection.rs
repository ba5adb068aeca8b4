//! When garbage is collected, and with how much effort.
//!
//! **By garbage.** Collecting a file with garbage ratio `g` writes `(1 - g) / g` bytes for each
//! byte freed, so garbage-rich files are the cheapest. The threshold falls as exposed garbage
//! grows: from [`LAZY_RATIO_PERCENT`] of a file with little garbage to the family's
//! `gc_ratio_percent` at [`EXPOSED_FULL_PERCENT`] of the live bytes. The write throttle starts when
//! exposed and unexposed garbage together reach [`GARBAGE_SLOW_PERCENT`]. Even files with equal
//! garbage are above the threshold there, so throttled writers can rely on collection. Under random
//! overwrites with exposed garbage of a third of the live bytes, the fullest files are half
//! garbage. Collection then writes one byte for each byte freed. An idle store is collected down to
//! the family's ratio, then rests. For small values both bounds are higher, by up to
//! [`SMALL_VALUES_PERCENT`].
//!
//! **By limit.** A space limit states how much garbage is acceptable: as much as fits. Writers are
//! then throttled by the limit (`space_limit`) instead, and the threshold falls with the remaining
//! room. Far from the limit [`EXPOSED_LIMITED_PERCENT`] and [`LIMITED_SLOW_PERCENT`] still hold.
//!
//! **By fill** (LavaKV's adaptive garbage collection, figure 9 of LavaStore). With a configured
//! limit, fill works in both directions. Below [`FILL_ROOMY_PERCENT`] of the limit, garbage
//! included, collection is lazier the less space is used. It begins with files of up to
//! [`ROOMY_RATIO_PERCENT`] garbage, and the threshold reaches the family's ratio only at
//! [`EXPOSED_ROOMY_PERCENT`] of the live bytes. That is still less than the bound of the write
//! throttle. Without a limit the engine stays small even if space is plentiful, since other
//! programs may need it. Garbage alone decides there while less than [`FILL_LAZY_PERCENT`] of the
//! volume is used, and fill can only make collection more eager. From there to
//! [`FILL_URGENT_PERCENT`] the threshold falls from the garbage-based value to the family's ratio.
//! Beyond that it falls to [`FULL_RATIO_PERCENT`]: on a full volume, a file that frees a twentieth
//! of itself is still a gain. The number of threads rises along with fill (`slots`).
//!
//! **Threads.** With little garbage and active writers, collection keeps to its slots; a delay
//! costs nothing. Under garbage pressure, in an idle store, or for a manual collection, it takes
//! every idle thread. Compactions go first: with separated values they move few bytes, and they
//! expose garbage for collection. Only from [`FILL_URGENT_PERCENT`] on does collection go before
//! all compactions but one.
//!
//! **Unexposed before exposed** garbage (`exposing_first`). Unexposed garbage is still referenced
//! by superseded entries in tables, so no collection can free it, yet it takes the same space. The
//! larger its share of the garbage that throttles writers, the less collections can free. Exposing
//! it rewrites tables, which are small where values are long. So shortly before writers are
//! throttled, a compaction may go before collections. Near the end of the space less garbage is
//! enough for that. It must expose more bytes than it writes by the ratio of exposed to unexposed
//! garbage (`lsm::policy::exposing`), and no level has to ask for it. Where most garbage is
//! unexposed it only has to expose more than it writes.
//!
//! **Space before level 0** (`space_first`). Level 0 goes before collections, because writers stop
//! when level 0 is full. But preferring level 0 starves collection, and the families throttled for
//! garbage may not be the ones that fill level 0. So families with garbage of [`FAR_PERCENT`] of
//! the throttle bound go first; with throttle and collection in balance, garbage stays below that.
//! Exposing and collecting their garbage gets all threads but one ahead of level 0
//! ([`before_level_0`]), the family farthest above its bound first. The exceptions are:
//!
//! * A level 0 is at least half way from its slowdown to its stop.
//! * There is a single background thread, and levels are farther above their throttle bound than
//!   garbage is above its own. So neither starves the other.
//! * None of the space of these families can be freed. The order is then the usual one, whatever
//!   other families have to collect.
//!
//! **Garbage pressure** is the distance to harm, in percent: garbage relative to the throttle
//! bound, or fill, which counts as half at [`FILL_LAZY_PERCENT`] and as full at
//! [`FILL_URGENT_PERCENT`]. The pressure lifts the pace (`gc_pace`).

use super::answer::{Collection, Purpose};
use super::facts::{Facts, FamilyFacts};
use super::relocation;
use super::slots::{FILL_LAZY_PERCENT, FILL_URGENT_PERCENT, Slots};
use crate::context::ablation::Ablation;
use crate::tree::compaction_debt::EXCESS_SLOW_PERCENT;
use crate::tree::family::ReadState;
use crate::tree::summary::VersionSummary;
use base::HashSet;
use std::cmp::Reverse;
use values::{Gc, GcOptions, Ledger, Lookups};
use version::VsstMeta;

/// Exposed garbage, in percent of live bytes, at which the threshold reaches the family's ratio.
const EXPOSED_FULL_PERCENT: u64 = 21;
/// Upper bound of that percentage when a space limit leaves room for more garbage.
const EXPOSED_LIMITED_PERCENT: u64 = 60;
/// Threshold with little garbage.
const LAZY_RATIO_PERCENT: u64 = 60;
/// `EXPOSED_LIMITED_PERCENT` and `LAZY_RATIO_PERCENT` while most of a space limit is unused.
const EXPOSED_ROOMY_PERCENT: u64 = 80;
const ROOMY_RATIO_PERCENT: u64 = 80;
/// Fill of a limit, in percent, from which unused room no longer makes collection lazier.
/// Collection is laziest up to half of it.
const FILL_ROOMY_PERCENT: u64 = 60;
/// Threshold on a full volume.
const FULL_RATIO_PERCENT: u64 = 5;
/// Garbage pressure from which collection takes every free thread.
const STRAIN_BUSY: u64 = 50;
/// Garbage, in percent of the throttle bound, that counts as far above the bound.
const FAR_PERCENT: u64 = 130;
/// Largest ratio of exposed to unexposed garbage that justifies a compaction that no level asks
/// for.
const WORTH_MAX: u64 = 8;
/// Threshold when space is short. A lower threshold frees less than the keys of the output take.
const SHORT_RATIO_PERCENT: u32 = 3;
/// Minimum number of read batches per output, and output bytes per key in a window of liveness
/// checks. Small files thus also overlap reading with liveness checks and copying.
const BATCHES_MIN: u64 = 4;
const BYTES_PER_KEY: u64 = 256;
/// Candidates considered when the output of a collection does not fit: they write less, or
/// elsewhere.
pub(crate) const CANDIDATES_MAX: usize = 8;

/// Returns the ratio of bytes exposed to bytes written from which a compaction precedes collections
/// of this family, or `None`. See the module. An idle store has time for both
/// (`lsm::policy::quiet`).
pub(super) fn exposing_is_worth(facts: &dyn Facts, family: &FamilyFacts) -> Option<f64> {
    let summary = &family.read_state.summary;
    let is_on = facts.options().expert.ablation.exposing_first;
    let (hidden, exposed) = (summary.hidden_bytes, summary.exposed_bytes);
    if !is_on || hidden.saturating_mul(WORTH_MAX) <= exposed || facts.gc_is_paused() {
        return None;
    }
    let by_fill = part_of(100, facts.fill_percent(), FILL_LAZY_PERCENT, FILL_URGENT_PERCENT);
    let is_due = summary.garbage_pressure_percent(facts.has_own_limit()).saturating_add(by_fill) >= 100;
    (is_due && !facts.is_quiet()).then(|| exposed as f64 / hidden as f64)
}

/// Returns the families whose garbage precedes compactions of level 0, the farthest above its bound
/// first. See the module.
pub(super) fn before_level_0(facts: &dyn Facts) -> Vec<&FamilyFacts> {
    let is_on = facts.options().expert.ablation.space_first;
    if !is_on || facts.gc_is_paused() {
        return Vec::new();
    }
    let limited = facts.has_own_limit();
    let pressure = |family: &&FamilyFacts| match family.read_state.is_damaged {
        // Garbage held by damaged files cannot be freed, and does not throttle writers.
        true => 0,
        false => family.read_state.summary.garbage_pressure_percent(limited),
    };
    let mut far: Vec<_> =
        facts.families_with_work().iter().filter(|family| pressure(family) >= FAR_PERCENT).collect();
    far.sort_by_key(|family| Reverse(pressure(family)));
    let Some(farthest) = far.first().map(pressure) else { return far };
    let has_one_thread = facts.options().background_threads == 1;
    let is_behind = |family: &FamilyFacts| {
        is_near_its_stop(family) || has_one_thread && levels_pressure_percent(family) > farthest
    };
    if facts.families_with_work().iter().any(is_behind) { Vec::new() } else { far }
}

/// Returns whether level 0 of a family, with its frozen memtables, is half way from its slowdown to
/// its stop.
fn is_near_its_stop(family: &FamilyFacts) -> bool {
    let (read_state, options) = (&family.read_state, &family.options);
    let depth = read_state.chain.l0_depth + read_state.frozen.len();
    2 * depth >= options.expert.l0_slowdown_files + options.expert.l0_stop_files
}

/// Returns the largest distance of a level above its target, in percent of the throttle bound.
fn levels_pressure_percent(family: &FamilyFacts) -> u64 {
    family.read_state.chain.excess_percent.saturating_mul(100) / EXCESS_SLOW_PERCENT
}

/// Returns whether a running job collects garbage of one of these families.
pub(super) fn is_collected(facts: &dyn Facts, families: &[&FamilyFacts]) -> bool {
    let in_progress = facts.in_progress();
    families.iter().any(|family| in_progress.of(family.family.id).vssts().next().is_some())
}

/// Returns the next collection, if no more urgent job exists.
pub(super) fn pick(facts: &dyn Facts) -> Option<Box<Collection>> {
    pick_among(facts, facts.families_with_work().iter(), Purpose::Garbage)
}

/// Returns the next collection among these families, in their order.
pub(super) fn pick_among<'a>(
    facts: &dyn Facts,
    mut families: impl Iterator<Item = &'a FamilyFacts>,
    purpose: Purpose,
) -> Option<Box<Collection>> {
    if facts.gc_is_paused() {
        return None;
    }
    families.find_map(|family| {
        let (gc, options) = pick_in(facts, family)?;
        let (family, read_state) = (family.family.clone(), family.read_state.clone());
        Some(Box::new(Collection { family, read_state, gc, options, purpose }))
    })
}

/// Returns whether a collection could start.
pub(crate) fn is_wanted(facts: &dyn Facts) -> bool {
    !facts.gc_is_paused() && facts.families_with_work().iter().any(|family| pick_in(facts, family).is_some())
}

/// Returns whether another collection may start.
pub(super) fn may_start(facts: &dyn Facts, slots: &Slots) -> bool {
    let (running, requests) = (&facts.in_progress().running, &facts.in_progress().gc_requests);
    let free = running.merges() + running.collections < facts.options().background_threads;
    let busy = || !requests.is_empty() || facts.is_quiet() || is_pressing(facts);
    running.collections < slots.collections || (free && busy())
}

/// Returns whether collection takes every free thread.
pub(crate) fn is_pressing(facts: &dyn Facts) -> bool {
    let digests = facts.families_with_work().iter().map(|family| &family.read_state.summary);
    garbage_pressure_percent(digests, facts.has_own_limit(), facts.fill_percent()) >= STRAIN_BUSY
}

/// Returns the collection options of a family for this threshold of garbage per file.
pub(crate) fn options(ablation: Ablation, read_state: &ReadState, ratio_percent: u32) -> GcOptions {
    let (file_bytes, most) = (read_state.summary.file_bytes, GcOptions::default());
    GcOptions {
        ratio_percent,
        file_bytes,
        step_bytes: (file_bytes / BATCHES_MIN).min(most.step_bytes),
        window_keys: usize::try_from(file_bytes / BYTES_PER_KEY).unwrap_or(usize::MAX).min(most.window_keys),
        lookups: if ablation.joined_lookups { Lookups::Cheaper } else { Lookups::Points },
        gap_bytes: (!ablation.readahead).then_some(0),
        lazy_read: ablation.lazy_read,
        pipelined: ablation.pipelined_collection,
        warm_survivors: ablation.warm_survivors,
        ..most
    }
}

/// Returns the collection to run in a family now, with its options.
fn pick_in(facts: &dyn Facts, family: &FamilyFacts) -> Option<(Gc, GcOptions)> {
    if family.read_state.version.vssts.is_empty() {
        return None;
    }
    let usual = threshold(facts, family);
    let own = if facts.is_short_of_space() { SHORT_RATIO_PERCENT.min(usual) } else { usual };
    let asked = facts.in_progress().gc_requests.threshold(facts.families(), &family.options);
    let ratio = asked.map_or(own, |asked| asked.min(own));
    let options = options(facts.options().expert.ablation, &family.read_state, ratio);
    // A manual collection takes every file. Otherwise files that a relocation will drop without
    // copying are left alone.
    let all = asked.is_some() || facts.is_short_of_space();
    let mut passed_over = if all { HashSet::default() } else { relocation::taken(facts, family) };
    for _ in 0..CANDIDATES_MAX {
        let gc = pick_at(facts, family, &options, &passed_over)?;
        if facts.would_grant(gc.expected_write) {
            return Some((gc, options));
        }
        passed_over.extend(gc.numbers());
    }
    None
}

/// Returns a collection in a family, leaving out the files `planned`.
pub(crate) fn pick_at(
    facts: &dyn Facts,
    family: &FamilyFacts,
    options: &GcOptions,
    planned: &HashSet<u64>,
) -> Option<Gc> {
    pick_of(facts, family, &family.read_state.ledger, options, planned)
}

/// Like [`pick_at`], with a ledger that no longer counts the garbage of some files.
pub(crate) fn pick_of(
    facts: &dyn Facts,
    family: &FamilyFacts,
    ledger: &Ledger,
    options: &GcOptions,
    planned: &HashSet<u64>,
) -> Option<Gc> {
    let in_progress = facts.in_progress();
    let busy = in_progress.of(family.family.id);
    let skip = |meta: &VsstMeta| {
        let known = in_progress.learned.abandoned.get(&meta.number);
        // A segment has one record, either live or pruned. Copying a segment gains nothing.
        meta.segment
            || busy.has_vsst(meta.number)
            || planned.contains(&meta.number)
            || facts.is_uncollected(meta.number)
            || known.is_some_and(|&g| ledger.garbage_of(meta.number).garbage_bytes <= g)
    };
    values::pick(&family.read_state.version, ledger, options, &skip)
}

/// Returns the current threshold of a family.
fn threshold(facts: &dyn Facts, family: &FamilyFacts) -> u32 {
    // Evaluated unconditionally: the call compares with the counters of the previous call.
    let quiet = facts.is_quiet();
    let ratio = family.options.expert.gc_ratio_percent;
    if !facts.options().expert.ablation.gc_threshold {
        return ratio;
    }
    let (summary, floor) = (&family.read_state.summary, u64::from(ratio));
    let usual = EXPOSED_FULL_PERCENT + summary.allowance_percent;
    let (room, fill) = (facts.room().filter(|_| facts.has_own_limit()), facts.fill_percent());
    let is_lazier = room.is_some() && facts.options().expert.ablation.lazy_with_room;
    let (lazy, most) = lazy_percents(fill, is_lazier);
    let full = room.map_or(usual, |(room, _)| {
        let more = room.saturating_mul(100) / facts.used_bytes().max(1);
        summary.exposed_percent.saturating_add(more).clamp(usual, usual.max(most))
    });
    threshold_percent(summary.exposed_percent, full, (floor, lazy), quiet, fill)
}

/// Returns the threshold with little garbage, and the exposed garbage in percent of the live bytes
/// at which the threshold stops falling. `is_lazier`: a limit is configured, and unused room raises
/// both.
fn lazy_percents(fill_percent: u64, is_lazier: bool) -> (u64, u64) {
    let usual = (LAZY_RATIO_PERCENT, EXPOSED_LIMITED_PERCENT);
    if !is_lazier {
        return usual;
    }
    let less = |roomy: u64, usual: u64| {
        roomy - part_of(roomy - usual, fill_percent, FILL_ROOMY_PERCENT / 2, FILL_ROOMY_PERCENT)
    };
    (less(ROOMY_RATIO_PERCENT, usual.0), less(EXPOSED_ROOMY_PERCENT, usual.1))
}

/// Returns the share of `span` percent points passed at `fill_percent` between `from` and `to`.
fn part_of(span: u64, fill_percent: u64, from: u64, to: u64) -> u64 {
    span * (fill_percent.clamp(from, to) - from) / (to - from)
}

/// Returns the garbage threshold for rewriting a file, in percent of the file. `floor` is the
/// family's ratio. The threshold falls from `lazy` to `floor` as exposed garbage rises to `full`
/// percent.
fn threshold_percent(
    exposed_percent: u64,
    full: u64,
    (floor, lazy): (u64, u64),
    quiet: bool,
    fill_percent: u64,
) -> u32 {
    let lazy = lazy.max(floor);
    // Quadratic: collection starts late, and then with full effort.
    let fallen = (lazy - floor) * exposed_percent.min(full).pow(2) / full.pow(2);
    let by_garbage = if quiet { floor } else { lazy - fallen };
    let eager = part_of(by_garbage - floor, fill_percent, FILL_LAZY_PERCENT, FILL_URGENT_PERCENT);
    let spare = floor.saturating_sub(FULL_RATIO_PERCENT);
    let last = part_of(spare, fill_percent, FILL_URGENT_PERCENT, 100);
    (by_garbage - eager - last) as u32
}

fn garbage_pressure(by_garbage: u64, fill_percent: u64) -> u64 {
    let by_fill = match fill_percent {
        0..FILL_LAZY_PERCENT => 0,
        fill => 50 + part_of(50, fill, FILL_LAZY_PERCENT, FILL_URGENT_PERCENT),
    };
    by_garbage.max(by_fill)
}

/// Returns the garbage pressure of all families in percent; at 100 writers are throttled or space
/// runs out. See the module.
pub(crate) fn garbage_pressure_percent<'a>(
    digests: impl Iterator<Item = &'a VersionSummary>,
    limited: bool,
    fill_percent: u64,
) -> u64 {
    let garbage = digests.map(|summary| summary.garbage_pressure_percent(limited)).max();
    garbage_pressure(garbage.unwrap_or(0), fill_percent)
}

#[cfg(test)]
mod tests;
