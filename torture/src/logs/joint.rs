//! Row `log-joint`: a workload on a store with both engines, and then crashes at many points of it.
//!
//! Workloads and checks are those of the tests of `lavalog` (`domain/life`): puts, appends, batches
//! of both engines, flushes, trims, sealing and collection of log groups, reopens and closes. After
//! a crash the store opens with both engines, or with one of them first. Each engine holds a prefix
//! of its operations, and a batch of both is there with both halves or not at all. Then the store
//! continues, crashes once more, and is checked again.
//!
//! The submodules are rows with other faults under both engines: failing operations (`io_errors`),
//! lack of space (`full`), damage to files (`flip`) and its repair (`repair`). `verify` searches
//! for damage during writes.

#[path = "../../../crates/lavalog/tests/domain/answers.rs"]
mod answers;
pub(crate) mod flip;
pub(crate) mod full;
pub(crate) mod io_errors;
#[path = "../../../crates/lavalog/tests/domain/life.rs"]
mod life;
pub(crate) mod repair;
#[path = "../../../crates/lavalog/tests/domain/strikes.rs"]
mod strikes;
pub(crate) mod verify;

use super::seen;
use crate::case::{Context, Outcome, guarded};
use crate::check::Check;
use crate::crash::{crash, each_state};
use crate::machine;
use crate::wide::Image;
use io::Rng;
use lavastore::testing::SimEnv;
use life::{Done, Found, Life, find_left};
use strikes::Past;
pub(crate) use strikes::Struck;

/// Makes all later workloads defer LavaKV's log pages for flushes.
pub(crate) fn all_keep_pages() {
    life::ALL_KEEP_PAGES.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Runs some sessions.
fn live(life: &mut Life, rng: &mut Rng) {
    for _ in 0..rng.range(1, 4) {
        life.live(rng.range(20, 160));
    }
}

fn note(done: Done, outcome: &mut Outcome) {
    outcome.note(seen::JOINT, done.batches_of_both);
    outcome.note(seen::FLUSHED, done.flushes);
    outcome.note(seen::TRIMS, done.trims);
    outcome.note(seen::SEALED, done.sealed);
    outcome.note(seen::COLLECTED, done.collected);
    outcome.note("stores closed as they should be", done.closes);
}

/// Returns a closed store with existing data.
pub(crate) fn past(seed: u64, rng: &mut Rng) -> (Past, Done) {
    let mut life = Life::new(machine::new(seed), machine::try_env, seed, Found::NOTHING);
    life.live(rng.range(20, 100));
    life.live_on(rng.range(20, 100), true);
    (Past { sim: life.sim.clone(), found: life.now, env: machine::try_env }, life.done)
}

/// Opens the store after a crash, checks it, and continues. Returns true if an engine was opened
/// alone.
fn recover(life: &Life, left: &SimEnv, at: (u64, lavastore::testing::CrashKind), rng: &mut Rng) -> bool {
    let (found, alone) = find_left(left, machine::try_env, rng.below(8));
    life.judge(found, at.0, at.1);
    if rng.one_in(4) {
        let mut next = Life::new(left.fork(rng.next_u64()), machine::try_env, rng.next_u64(), found);
        next.live(rng.range(5, 40));
        let record = next.sim.record();
        let (op, kind, again) = crash(&record, &record.mutations(), rng);
        next.judge(find_left(&again, machine::try_env, rng.below(8)).0, op, kind);
    }
    alone
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6c6f_672d_6a6f);
    let mut life = Life::new(machine::new(seed), machine::try_env, seed, Found::NOTHING);
    if let Err(why) = guarded(|| live(&mut life, &mut rng)) {
        outcome.failures.push(format!("while recording: {why}"));
        return outcome;
    }
    note(life.done, &mut outcome);
    let record = life.sim.record();
    let ops = record.mutations();
    let mut alone = 0;
    let mut outcome = each_state(seed, outcome, |rng| {
        let (op, kind, left) = crash(&record, &ops, rng);
        // These workloads always have more than one logger.
        let image = Image { hash: left.state_hash(), is_wide: true };
        let checked: Check<bool> = guarded(|| recover(&life, &left, (op, kind), rng));
        alone += u64::from(checked == Ok(true));
        (image, checked.map(drop).map_err(|why| format!("{kind:?} at operation {op}: {why}")))
    });
    outcome.note(seen::ALONE, alone);
    outcome
}
