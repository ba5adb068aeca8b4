//! When values are put back into the order of their keys.
//!
//! Nobody reads ahead in a store that is not scanned, so nothing is relocated there: the mechanism costs a store that only
//! writes and gets nothing at all. Scans tell what they lose (`tree::demand`): each request beyond the fewest that would do.
//! Once that is [`PAYS_PART`] of the bytes that a walk would rewrite, it begins: from there on scans are expected to lose as
//! much again. A walk does not begin, nor go on, while anybody writes (under random overwrites what is put in order is soon
//! out of order, and its room is needed), while collections are paused, or while anything more urgent is to be done. What it
//! takes, and why whole vSSTs, says `lsm::policy::relocation`.

use super::answer::{Compact, Notes};
use super::facts::{Facts, FamilyFacts};
use super::room::fits;
use base::HashSet;
use lsm::policy::{Compaction, Relocation, RelocationOptions, RelocationStep};

/// vSSTs that the values of a stretch of keys may be spread over: 8 requests for the two megabytes that a scan reads
/// together are of 256 KiB, and longer ones are not made.
const SPREAD_MAX: u64 = 8;
/// A walk takes this part of what all vSSTs hold: that is the room it needs, and the inverse of how many walks put all
/// of a store in order.
const STORE_PART: u64 = 5;
/// A walk takes this many vSSTs' worth at least.
const FILES_MIN: u64 = 4;
/// A walk begins when scans have lost this part of what it will rewrite.
const PAYS_PART: u64 = 2;

/// The next step of a walk, if a family has one to go on with, or one to begin.
pub(super) fn pick(facts: &dyn Facts, notes: &mut Notes) -> Option<Compact> {
    if !facts.options().ablation.correlated || facts.in_progress().running.relocation || facts.gc_is_paused()
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
    if known.is_none() && family.family.demand.bytes() == 0 || !facts.is_quiet() {
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

/// A walk that scans have paid for.
fn begin(facts: &dyn Facts, notes: &mut Notes, family: &FamilyFacts) -> Option<Relocation> {
    let (read_state, vsst_bytes) = (&family.read_state, family.options.vsst_bytes);
    let bytes_max = (read_state.ledger.referenced_bytes() / STORE_PART).max(FILES_MIN * vsst_bytes);
    let price = bytes_max / PAYS_PART;
    if read_state.version.vssts.is_empty() || family.family.demand.bytes() < price.max(1) {
        return None;
    }
    // Also if nothing is scattered: then scans lost it to something else, and it is not asked for each time anew.
    notes.spent.push((family.family.clone(), price));
    let options = RelocationOptions { spread_max: SPREAD_MAX, bytes_max, job_bytes: vsst_bytes };
    let walk = Relocation::choose(&read_state.version, &options, facts.in_progress().of(family.family.id))?;
    notes.walks.push((family.family.id, Some(walk.clone())));
    Some(walk)
}

/// The vSSTs of a walk under way: collecting them would be for nothing.
pub(super) fn taken(facts: &dyn Facts, family: &FamilyFacts) -> HashSet<u64> {
    match facts.in_progress().learned.walks.get(&family.family.id) {
        Some(walk) if facts.is_quiet() => walk.vssts().iter().copied().collect(),
        _ => HashSet::default(),
    }
}
