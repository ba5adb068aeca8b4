//! When values are put back into the order of their keys.
//!
//! Nobody reads ahead in a store that is not scanned, so nothing is relocated there: the mechanism costs a store that only
//! writes and gets nothing at all. Scans tell what they lose (`tree::demand`): each request beyond the fewest that would do.
//! Once that is [`PAYS_PART`] of the bytes that a walk would rewrite, it begins: from there on scans are expected to lose as
//! much again. A walk does not begin, nor go on, while collections are paused, or while anything more urgent is to be done. What it
//! takes, and why whole vSSTs, says `lsm::policy::relocation`.
//!
//! **While somebody writes** what is put in order is soon out of order, and its room is needed. So there it begins only if scans have lost what a
//! walk reads and writes, and that beyond twice what writers wrote meanwhile: a store that is put in order (each byte read and written) is out of order
//! when as much was written as it holds. And all walks together take no more than was written (`Demand::disordered`): so scans and writers that
//! meet at the same few keys, again and again, have nobody rewrite these, and what lies beside them, for ever. A walk is half as long
//! then ([`BUSY_PART`]), since what it has copied is garbage until its end; and it rests, and lets collections have its files, as soon as garbage is at half of
//! the bound from which writers are slowed down, room is short, a writer had to wait, a memtable is frozen, or level 0 is to go down.

use super::answer::{Compact, Notes};
use super::collection;
use super::facts::{Facts, FamilyFacts};
use super::room::fits;
use crate::tree::demand::Spent;
use base::HashSet;
use lsm::policy::{Compaction, Relocation, RelocationOptions, RelocationStep};

/// vSSTs that the values of a stretch of keys may be spread over: 8 requests for the two megabytes that a scan reads
/// together are of 256 KiB, and longer ones are not made.
const SPREAD_MAX: u64 = 8;
/// A walk takes this part of what all vSSTs hold: that is the room it needs, and the inverse of how many walks put all
/// of a store in order.
const STORE_PART: u64 = 5;
/// The same while somebody writes.
const BUSY_PART: u64 = 10;
/// A walk takes this many vSSTs' worth at least.
const FILES_MIN: u64 = 4;
/// A walk while somebody writes, which makes no sense of fewer.
const BUSY_FILES_MIN: u64 = 2;
/// A walk begins when scans have lost this part of what it will rewrite.
const PAYS_PART: u64 = 2;
/// The same while somebody writes: so many times as much, for it is read and written.
const BUSY_PAYS_FACTOR: u64 = 2;

/// The next step of a walk, if a family has one to go on with, or one to begin.
pub(super) fn pick(facts: &dyn Facts, notes: &mut Notes) -> Option<Compact> {
    if !facts.options().expert.ablation.correlated
        || facts.in_progress().running.relocation
        || facts.gc_is_paused()
    {
        return None;
    }
    // A walk needs room for all it rewrites.
    if facts.room().is_some_and(|(room, margin)| room < 2 * margin) {
        return None;
    }
    facts.families().iter().find_map(|family| {
        let (compaction, walk) = pick_in(facts, notes, family)?;
        fits(facts, family, &compaction)
            .then(|| Compact::Step(family.family.clone(), Box::new(compaction), Box::new(walk)))
    })
}

fn pick_in(facts: &dyn Facts, notes: &mut Notes, family: &FamilyFacts) -> Option<(Compaction, Relocation)> {
    let id = family.family.id;
    let known = facts.in_progress().learned.walks.get(&id);
    if known.is_none() && family.family.demand.bytes() == 0 || !may_go_on(facts, family) {
        return None;
    }
    let mut walk = match known {
        Some(walk) => walk.clone(),
        None => begin(facts, notes, family)?,
    };
    let policy = family.policy.as_ref()?;
    match policy.relocation(&family.of_tree(facts.in_progress().of(id)), &mut walk) {
        RelocationStep::Start(compaction) => Some((*compaction, walk)),
        RelocationStep::Wait => None,
        RelocationStep::Done => {
            notes.walks.push((id, None));
            None
        }
    }
}

/// True if nothing is in the way of a walk: nobody writes, or scans lose more than that undoes, and nobody who writes suffers.
fn may_go_on(facts: &dyn Facts, family: &FamilyFacts) -> bool {
    if facts.is_quiet() {
        return true;
    }
    let in_the_way = family.family.demand.beyond_writes() == 0
        || facts.is_hurried()
        || facts.is_short_of_space()
        || collection::is_pressing(facts)
        || !family.read_state.frozen.is_empty();
    let policy = family.policy.as_ref().filter(|_| !in_the_way);
    policy.is_some_and(|policy| !policy.l0_wants_compaction(&family.read_state.version, &family.set_aside))
}

/// What a walk that begins now takes, if scans have paid for it.
fn paid(facts: &dyn Facts, family: &FamilyFacts) -> Option<Spent> {
    let (demand, vsst_bytes) = (&family.family.demand, family.options.expert.vsst_bytes);
    let all = family.read_state.ledger.referenced_bytes();
    if facts.is_quiet() {
        let taken = (all / STORE_PART).max(FILES_MIN * vsst_bytes);
        let lost = taken / PAYS_PART;
        return (demand.bytes() >= lost.max(1)).then_some(Spent { lost, taken, all });
    }
    let taken = all / BUSY_PART;
    let lost = taken.saturating_mul(BUSY_PAYS_FACTOR);
    let pays = taken >= BUSY_FILES_MIN * vsst_bytes
        && demand.bytes().min(demand.beyond_writes()) >= lost
        && demand.disordered(all) >= taken;
    pays.then_some(Spent { lost, taken, all })
}

/// A walk that scans have paid for.
fn begin(facts: &dyn Facts, notes: &mut Notes, family: &FamilyFacts) -> Option<Relocation> {
    let (read_state, vsst_bytes) = (&family.read_state, family.options.expert.vsst_bytes);
    if read_state.version.vssts.is_empty() {
        return None;
    }
    let spent = paid(facts, family)?;
    let options = RelocationOptions { spread_max: SPREAD_MAX, bytes_max: spent.taken, job_bytes: vsst_bytes };
    let walk = Relocation::choose(&read_state.version, &options, facts.in_progress().of(family.family.id));
    // Also if nothing is scattered: then scans lost it to something else, and it is not asked for each time anew.
    let taken = if walk.is_some() { spent.taken } else { 0 };
    notes.spent.push((family.family.clone(), Spent { taken, ..spent }));
    let walk = walk?;
    notes.walks.push((family.family.id, Some(walk.clone())));
    Some(walk)
}

/// The vSSTs of a walk under way: collecting them would be for nothing.
pub(super) fn taken(facts: &dyn Facts, family: &FamilyFacts) -> HashSet<u64> {
    match facts.in_progress().learned.walks.get(&family.family.id) {
        Some(walk) if may_go_on(facts, family) => walk.vssts().iter().copied().collect(),
        _ => HashSet::default(),
    }
}
