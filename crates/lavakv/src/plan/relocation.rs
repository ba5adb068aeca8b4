//! When values are relocated into key order.
//!
//! Without scans there is no read-ahead, so no values are relocated: the mechanism costs write-only
//! and point-read stores nothing. Scans report their losses (`tree::scan_cost`): each read request
//! above the minimum. Once the loss is [`PAYS_PART`] of the bytes that a walk rewrites, the walk
//! begins, since scans are expected to lose as much again. A walk neither begins nor continues
//! while collections are paused or more urgent work exists. `lsm::policy::relocation` describes the
//! inputs of a walk, and why it takes whole vSSTs.
//!
//! **During writes** new order decays soon, and the space is needed. So a walk begins only if the
//! losses of scans, minus twice the bytes written meanwhile, cover the bytes that the walk reads
//! and writes. (Ordering a store reads and writes each byte; writes of its own size disorder the
//! store again.) All walks together rewrite no more bytes than were written
//! (`ScanCost::disordered`). So scans and writers on the same few keys do not cause endless
//! rewrites of these keys and their neighbors. Such a walk is half as long ([`BUSY_PART`]), since
//! its copied values are garbage until its end. It suspends, and releases its files to collections,
//! when garbage is at half of the throttle bound or space is short. The same holds when a writer
//! had to wait, a memtable is frozen, or level 0 needs compaction.

use super::answer::{Compact, PlanNotes};
use super::collection;
use super::facts::{Facts, FamilyFacts};
use super::room::fits;
use crate::tree::scan_cost::Spent;
use base::HashSet;
use lsm::policy::{Compaction, Relocation, RelocationOptions, RelocationStep};

/// Maximum number of vSSTs that the values of a key range may be spread over. A scan reads two
/// megabytes ahead; 8 requests for them are 256 KiB each, the maximum request length.
const SPREAD_MAX: u64 = 8;
/// Divisor: the part of all vSST bytes that a walk takes. It bounds the space for a walk, and is
/// the number of walks that order the whole store.
const STORE_PART: u64 = 5;
/// The same divisor during writes.
const BUSY_PART: u64 = 10;
/// Minimum length of a walk, in vSSTs.
const FILES_MIN: u64 = 4;
/// Minimum length of a walk during writes, in vSSTs.
const BUSY_FILES_MIN: u64 = 2;
/// Divisor: a walk begins when scans have lost this part of the bytes to rewrite.
const PAYS_PART: u64 = 2;
/// The factor during writes: bytes are counted when read and when written.
const BUSY_PAYS_FACTOR: u64 = 2;

/// Returns the next step of a running walk, or the first one of a new walk.
pub(super) fn pick(facts: &dyn Facts, notes: &mut PlanNotes) -> Option<Compact> {
    if !facts.options().expert.ablation.correlated
        || facts.in_progress().running.relocation
        || facts.gc_is_paused()
    {
        return None;
    }
    // A walk needs space for all bytes that it rewrites.
    if facts.room().is_some_and(|(room, margin)| room < 2 * margin) {
        return None;
    }
    facts.families_with_work().iter().find_map(|family| {
        let (compaction, walk) = pick_in(facts, notes, family)?;
        fits(facts, family, &compaction)
            .then(|| Compact::Step(family.family.clone(), Box::new(compaction), Box::new(walk)))
    })
}

fn pick_in(
    facts: &dyn Facts,
    notes: &mut PlanNotes,
    family: &FamilyFacts,
) -> Option<(Compaction, Relocation)> {
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

/// Returns whether a walk may continue: the store is idle, or scans lose more than writes undo and
/// no writer is delayed.
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

/// Returns the length of a new walk, if scan losses pay for it.
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

/// Begins a walk, if scan losses pay for it.
fn begin(facts: &dyn Facts, notes: &mut PlanNotes, family: &FamilyFacts) -> Option<Relocation> {
    let (read_state, vsst_bytes) = (&family.read_state, family.options.expert.vsst_bytes);
    if read_state.version.vssts.is_empty() {
        return None;
    }
    let spent = paid(facts, family)?;
    let options = RelocationOptions { spread_max: SPREAD_MAX, bytes_max: spent.taken, job_bytes: vsst_bytes };
    let walk = Relocation::choose(&read_state.version, &options, facts.in_progress().of(family.family.id));
    // The loss is spent even without scattered values: it then has another cause, and is not
    // evaluated again each time.
    let taken = if walk.is_some() { spent.taken } else { 0 };
    notes.spent.push((family.family.clone(), Spent { taken, ..spent }));
    let walk = walk?;
    notes.walks.push((family.family.id, Some(walk.clone())));
    Some(walk)
}

/// Returns the vSSTs of a running walk, which collections should skip.
pub(super) fn taken(facts: &dyn Facts, family: &FamilyFacts) -> HashSet<u64> {
    match facts.in_progress().learned.walks.get(&family.family.id) {
        Some(walk) if may_go_on(facts, family) => walk.vssts().iter().copied().collect(),
        _ => HashSet::default(),
    }
}
