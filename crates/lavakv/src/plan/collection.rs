//! When garbage is collected, and with how much effort.
//!
//! **By garbage.** Garbage is worth collecting the more of a file it is: a file with garbage ratio `g` costs
//! `(1 - g) / g` bytes written for each byte freed. So the threshold falls as exposed garbage grows, from
//! [`LAZY_RATIO_PERCENT`] of a file while there is little of it to the family's `gc_ratio_percent` at
//! [`EXPOSED_FULL_PERCENT`] of the live bytes. Writers begin to be slowed down when exposed and hidden garbage together
//! are [`GARBAGE_SLOW_PERCENT`]. (There even files that are all alike have garbage above the threshold: whoever is slowed
//! down can rely on its being collected.) Under random overwrites with exposed garbage of a third of the live bytes, the
//! fullest files are half garbage, and collection writes a byte for each that it frees. A quiet store collects down to
//! the family's ratio, then rests. Where values are small both bounds are higher, by up to [`SMALL_VALUES_PERCENT`].
//!
//! **By limit.** Who sets a space limit has said how much garbage there may be: as much as it has room for. There writers
//! are slowed down by the limit (`space_limit`) instead, and the threshold falls with the room that is left; only where
//! the limit is far away [`EXPOSED_LIMITED_PERCENT`] and [`LIMITED_SLOW_PERCENT`] still hold.
//!
//! **By fill** (LavaKV's adaptive garbage collection, figure 9 of LavaStore), in both directions where somebody set a limit. Less than [`FILL_ROOMY_PERCENT`] of it used, garbage included:
//! then collection is lazier, the more so the less is used. It begins with files of which up to [`ROOMY_RATIO_PERCENT`] are garbage, and up to [`EXPOSED_ROOMY_PERCENT`] of the live bytes
//! are garbage before the threshold has fallen to the family's: that is still less than what writers are slowed down for, and once it fills the limit there is no room any more. Where nobody set a
//! limit the engine promises to stay small also where there is plenty of room (others may want it), so there garbage alone decides as long as less than [`FILL_LAZY_PERCENT`] of the volume is used,
//! and fill can only make collection more eager. From there to [`FILL_URGENT_PERCENT`] the threshold falls from what garbage says to the
//! family's ratio, and beyond it, at the end of the room, to [`FULL_RATIO_PERCENT`]: with nothing left, a file that frees
//! a twentieth of itself is still a gain. The number of threads rises along with it (`slots`).
//!
//! **Threads.** With little garbage and writers at work, collection keeps to its slots: nothing is lost by taking longer.
//! Under garbage pressure, or when nobody writes, or when somebody asked for it, it takes every thread that has nothing better
//! to do. Compactions go first: where values are separated they move little, and they expose what collection can free.
//! Only from [`FILL_URGENT_PERCENT`] on collection goes before all of them but one.
//!
//! **Hidden before exposed** garbage (`exposing_first`). Garbage that a reference still leads to takes as much room as any, and no collection gets it; the more of the garbage that
//! writers pay for is hidden, the less is in the files that collections take. To expose it costs tables, which are little where values are long. So where writers are about to be slowed down
//! (towards the end of the room: with the less garbage the less room is left), a compaction goes before collections that exposes as many times what it writes as exposed garbage
//! is more than hidden (`lsm::policy::exposing`), also one that no level asks for. Where most is hidden it need only expose more than it writes.
//!
//! **Space before level 0** (`space_first`). Level 0 goes before collections, since writers stop where it is full. But who only ever compacts level 0 leaves garbage where it is, and
//! who fills level 0 need not be who pays for that garbage. So for families with garbage of [`FAR_PERCENT`] of the bound from which writers are slowed down (where price and collection are
//! in balance there is less) what exposes and collects it has all threads but one before level 0 ([`before_level_0`]), the family farthest above its bound first. Not where
//!
//! * a level 0 is half way from its slow-down to its stop or nearer;
//! * there is one thread for all, and levels are farther above the bound from which they slow writers down than garbage is above its own: so neither starves the other;
//! * nothing of these families can be freed: then all is as usual, whatever others have to collect.
//!
//! **Strain** is how near the space is to where somebody suffers, in percent: garbage of the bound at which writers are
//! slowed down, or fill, half at the first of its bounds and full at the second. It lifts the pace (`gc_pace`).

use super::answer::{Collection, Purpose};
use super::facts::{Facts, FamilyFacts};
use super::relocation;
use super::slots::{FILL_LAZY_PERCENT, FILL_URGENT_PERCENT, Slots};
use crate::context::ablation::Ablation;
use crate::tree::chain::EXCESS_SLOW_PERCENT;
use crate::tree::family::ReadState;
use crate::tree::summary::VersionSummary;
use base::HashSet;
use std::cmp::Reverse;
use values::{Gc, GcOptions, Ledger, Lookups};
use version::VsstMeta;

/// Exposed garbage, in percent of live bytes, at which the threshold has fallen to the family's.
const EXPOSED_FULL_PERCENT: u64 = 21;
/// The same at most where a space limit leaves room for more.
const EXPOSED_LIMITED_PERCENT: u64 = 60;
/// The threshold while there is little garbage.
const LAZY_RATIO_PERCENT: u64 = 60;
/// Both with most of a space limit unused.
const EXPOSED_ROOMY_PERCENT: u64 = 80;
const ROOMY_RATIO_PERCENT: u64 = 80;
/// So much of a limit is used, in percent, where collection begins to be as if it were used; up to half of that it is as lazy as can be.
const FILL_ROOMY_PERCENT: u64 = 60;
/// The threshold when there is no room left.
const FULL_RATIO_PERCENT: u64 = 5;
/// Strain from which collection takes every free thread.
const STRAIN_BUSY: u64 = 50;
/// Garbage is far above its bound with so much of that, in percent.
const FAR_PERCENT: u64 = 130;
/// Hidden garbage that is a smaller part of what is exposed is not worth a compaction that no level asks for.
const WORTH_MAX: u64 = 8;
/// The threshold where the space limit is near: less would free less than the keys of the output take.
const SHORT_RATIO_PERCENT: u32 = 3;
/// An output is read in so many batches at least, and its keys are judged in windows of one for each so many of its bytes: so reading overlaps with judging and
/// copying also where files are small.
const BATCHES_MIN: u64 = 4;
const BYTES_PER_KEY: u64 = 256;
/// Where there is no room for the output of a collection, so many others are considered that write less, or elsewhere.
pub(crate) const CANDIDATES_MAX: usize = 8;

/// How many times what it writes a compaction must expose to go before collections of this family. `None`: none has to. See the module. A store that nobody
/// writes has time for either (`lsm::policy::quiet`).
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

/// The families whose garbage goes before the compaction of level 0, the one farthest above its bound first. See the module.
pub(super) fn before_level_0(facts: &dyn Facts) -> Vec<&FamilyFacts> {
    let is_on = facts.options().expert.ablation.space_first;
    if !is_on || facts.gc_is_paused() {
        return Vec::new();
    }
    let limited = facts.has_own_limit();
    let pressure = |family: &&FamilyFacts| match family.read_state.is_damaged {
        // What damaged files keep nobody can free, and nobody pays for it.
        true => 0,
        false => family.read_state.summary.garbage_pressure_percent(limited),
    };
    let mut far: Vec<_> = facts.families().iter().filter(|family| pressure(family) >= FAR_PERCENT).collect();
    far.sort_by_key(|family| Reverse(pressure(family)));
    let Some(farthest) = far.first().map(pressure) else { return far };
    let has_one_thread = facts.options().background_threads == 1;
    let is_behind = |family: &FamilyFacts| {
        is_near_its_stop(family) || has_one_thread && levels_pressure_percent(family) > farthest
    };
    if facts.families().iter().any(is_behind) { Vec::new() } else { far }
}

/// True if level 0 of a family is half way from its slow-down to its stop, with what comes there next.
fn is_near_its_stop(family: &FamilyFacts) -> bool {
    let (read_state, options) = (&family.read_state, &family.options);
    let depth = read_state.chain.l0_depth + read_state.frozen.len();
    2 * depth >= options.expert.l0_slowdown_files + options.expert.l0_stop_files
}

/// How far levels are above their targets, in percent of the bound from which writers are slowed down for them.
fn levels_pressure_percent(family: &FamilyFacts) -> u64 {
    family.read_state.chain.excess_percent.saturating_mul(100) / EXCESS_SLOW_PERCENT
}

/// True if a job runs that collects garbage of one of these families.
pub(super) fn is_collected(facts: &dyn Facts, families: &[&FamilyFacts]) -> bool {
    let in_progress = facts.in_progress();
    families.iter().any(|family| in_progress.of(family.family.id).vssts().next().is_some())
}

/// The next collection, where nothing more urgent is to be done.
pub(super) fn pick(facts: &dyn Facts) -> Option<Box<Collection>> {
    pick_among(facts, facts.families().iter(), Purpose::Garbage)
}

/// The next collection of one of these families, in their order.
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

/// True if a collection could start.
pub(crate) fn is_wanted(facts: &dyn Facts) -> bool {
    !facts.gc_is_paused() && facts.families().iter().any(|family| pick_in(facts, family).is_some())
}

/// True if another collection may start.
pub(super) fn may_start(facts: &dyn Facts, slots: &Slots) -> bool {
    let (running, requests) = (&facts.in_progress().running, &facts.in_progress().gc_requests);
    let free = running.merges() + running.collections < facts.options().background_threads;
    let busy = || !requests.is_empty() || facts.is_quiet() || is_pressing(facts);
    running.collections < slots.collections || (free && busy())
}

/// True if collection takes every free thread.
pub(crate) fn is_pressing(facts: &dyn Facts) -> bool {
    let digests = facts.families().iter().map(|family| &family.read_state.summary);
    garbage_pressure_percent(digests, facts.has_own_limit(), facts.fill_percent()) >= STRAIN_BUSY
}

/// How a family is collected from so much garbage in a file on.
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

/// What could be collected in a family now, and how.
fn pick_in(facts: &dyn Facts, family: &FamilyFacts) -> Option<(Gc, GcOptions)> {
    if family.read_state.version.vssts.is_empty() {
        return None;
    }
    let usual = threshold(facts, family);
    let own = if facts.is_short_of_space() { SHORT_RATIO_PERCENT.min(usual) } else { usual };
    let asked = facts.in_progress().gc_requests.threshold(facts.families(), &family.options);
    let ratio = asked.map_or(own, |asked| asked.min(own));
    let options = options(facts.options().expert.ablation, &family.read_state, ratio);
    // Whoever asks for a collection gets it; else what will be dropped for nothing is left alone.
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

/// What could be collected in a family, leaving out the files `planned`.
pub(crate) fn pick_at(
    facts: &dyn Facts,
    family: &FamilyFacts,
    options: &GcOptions,
    planned: &HashSet<u64>,
) -> Option<Gc> {
    pick_of(facts, family, &family.read_state.ledger, options, planned)
}

/// As [`pick_at`], by a ledger of the family in which some files have no garbage any more.
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
        // A segment has one record: it is live, or pruned. Nothing is gained by copying it.
        meta.segment
            || busy.has_vsst(meta.number)
            || planned.contains(&meta.number)
            || facts.is_uncollected(meta.number)
            || known.is_some_and(|&g| ledger.garbage_of(meta.number).garbage_bytes <= g)
    };
    values::pick(&family.read_state.version, ledger, options, &skip)
}

/// The threshold of a family now.
fn threshold(facts: &dyn Facts, family: &FamilyFacts) -> u32 {
    // Asked in any case: it is a comparison with what was seen last.
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

/// The threshold while there is little garbage, and how much there is at most, in percent of the live bytes, when it has fallen. `is_lazier`: somebody set a
/// limit, so the more the less of it is used.
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

/// What part of `span` percent points is passed at `fill_percent` between `from` and `to`.
fn part_of(span: u64, fill_percent: u64, from: u64, to: u64) -> u64 {
    span * (fill_percent.clamp(from, to) - from) / (to - from)
}

/// From how much garbage on a file is rewritten, in percent of the file. `floor` is the family's ratio, to which the
/// threshold has fallen from `lazy` at `full` percent of exposed garbage.
fn threshold_percent(
    exposed_percent: u64,
    full: u64,
    (floor, lazy): (u64, u64),
    quiet: bool,
    fill_percent: u64,
) -> u32 {
    let lazy = lazy.max(floor);
    // By the square: collection starts late, and then in earnest.
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

/// How near the space is to where somebody suffers, by all families: 100 is there. See the module.
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
