//! Row `log-joint`: a store with both engines lives, and then the machine dies in the middle of that many times over.
//!
//! Lives and what must be left of them are those of the tests of `lavalog` (`domain/life`): puts, appends, batches of both, flushes, trims,
//! groups that become storage and are collected, reopened and closed stores. After a death the store opens, with both engines or first
//! with one of them alone; each holds a prefix of what was done to it, a batch of both is there with both halves or not at all; and the
//! store lives on, dies once more, and is judged again.
//!
//! Below are the rows in which something else goes wrong under both engines: operations that fail (`io_errors`), no room (`full`), damage
//! to files (`flip`), which is repaired (`repair`). `verify` looks for damage beside writers.

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

/// Pages of LavaKV's log wait for flushes from now on, in all lives.
pub(crate) fn all_keep_pages() {
    life::ALL_KEEP_PAGES.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Lives some sessions.
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

/// A store with some past that was closed.
pub(crate) fn past(seed: u64, rng: &mut Rng) -> (Past, Done) {
    let mut life = Life::new(machine::new(seed), machine::try_env, seed, Found::NOTHING);
    life.live(rng.range(20, 100));
    life.live_on(rng.range(20, 100), true);
    (Past { sim: life.sim.clone(), found: life.now, env: machine::try_env }, life.done)
}

/// Opens what a crash left, judges it, and goes on with it. True if an engine was opened alone.
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
        // The loggers of these lives are always above one.
        let image = Image { hash: left.state_hash(), is_wide: true };
        let checked: Check<bool> = guarded(|| recover(&life, &left, (op, kind), rng));
        alone += u64::from(checked == Ok(true));
        (image, checked.map(drop).map_err(|why| format!("{kind:?} at operation {op}: {why}")))
    });
    outcome.note(seen::ALONE, alone);
    outcome
}
