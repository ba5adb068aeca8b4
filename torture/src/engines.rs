//! Row `engines`: a store of two engines, LavaKV and a log of entries (the example of crate `store`), opened with both, with
//! one, with the other.
//!
//! A life of some sessions is recorded, each with other engines; in every one of them the log rolls, manifests roll, the
//! volume may be full for a while, checkpoints are taken. Then the machine dies in the middle of it, many times over, and
//! what it left is opened in some order of engines, with more deaths in between. Whatever happens, each engine finds all
//! that it was promised, as if it had been alone; and while it is away, its files and its part of the manifest stay as they
//! were, to the byte.
//!
//! `session` opens and closes with these engines or those, and says what belongs to those who are away; `life` is what is done in
//! between, beside what is to be found afterwards.

#[path = "../../crates/store/examples/toy_log/engine.rs"]
mod engine;
mod life;
#[path = "../../crates/store/tests/toy_log/model.rs"]
mod model;
mod session;

use crate::case::{Context, Outcome, guarded};
use crate::check::Check;
use crate::crash::{TRACE, check_verify, kind, loss};
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use life::{Life, Pending};
use session::Who;

/// Crash states tried of one life.
const STATES: u64 = 16;
/// Sessions after a crash, at most.
const SESSIONS_MAX: u64 = 4;

/// Some sessions that end with a close.
fn live(life: &mut Life) -> Check {
    for session in 0..life.rng.range(2, 6) {
        let who = Who::draw(&mut life.rng);
        let steps = life.rng.range(4, 40);
        life.session(who, steps).map_err(|why| format!("session {session}: {why}"))?;
    }
    Ok(())
}

/// The machine dies at an operation of a recorded life; some sessions later everything is there that was promised.
fn after_crash(life: &Life, op: u64, kind: CrashKind, sim: SimEnv, mut rng: Rng) -> (String, Check) {
    let sessions = rng.range(1, SESSIONS_MAX + 1);
    let mut next = life.after(sim, rng, Pending::of(op, loss(kind)));
    let mut story = format!("{kind:?} at operation {op}");
    for _ in 1..sessions {
        let who = Who::draw(&mut next.rng);
        story += &format!(", {who:?}");
        let steps = next.rng.below(12);
        let closes = next.rng.one_in(2);
        let lived =
            guarded(|| if closes { next.session(who, steps) } else { next.session_cut_off(who, steps) });
        if let Err(why) = lived.and_then(|lived| lived) {
            return (told(story, &next), Err(why));
        }
    }
    let last = guarded(|| {
        let session = next.open(Who::Both)?;
        session.db.as_ref().map_or(Ok(()), check_verify)
    });
    let checked = last.and_then(|last| last);
    story += ", Both";
    (if checked.is_err() { told(story, &next) } else { story }, checked)
}

/// With what was done, if somebody wants it.
fn told(story: String, life: &Life) -> String {
    if std::env::var_os(TRACE).is_some() {
        println!("after the crash:\n{}", life.sim.trace());
    }
    story
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut life = Life::new(seed);
    let lived = guarded(|| live(&mut life)).and_then(|lived| lived);
    let traces = std::env::var_os(TRACE).is_some();
    if let Err(why) = lived {
        if traces {
            println!("the life:\n{}", life.sim.trace());
        }
        outcome.failures.push(format!("while recording: {why}"));
        return outcome;
    }
    outcome.note("calls refused", life.counts.refused);
    outcome.note("checkpoints compared", life.counts.checkpoints);
    outcome.note("checkpoints refused for the sake of the other engine", life.counts.checkpoints_refused);
    let record = life.sim.record();
    let ops = record.mutations();
    let mut rng = Rng::new(seed ^ 0x7374_6174_6573);
    for state in 0..STATES {
        let mut rng = rng.fork();
        let (op, kind) = (ops[rng.below(ops.len() as u64) as usize], kind(&mut rng));
        let sim = record.crash_at(op, kind, rng.next_u64());
        outcome.images.push(sim.state_hash().into());
        let (story, checked) = after_crash(&life, op, kind, sim, rng);
        if checked.is_err() && traces {
            println!("the life:\n{}", life.sim.trace());
        }
        outcome.take(checked.map_err(|why| format!("state {state}: {story}: {why}")));
        if outcome.failures.len() > 2 {
            break;
        }
    }
    outcome
}
