//! Row `engines`: a store shared by LavaKV and a toy log engine (the example of crate `store`),
//! opened with both or with either one.
//!
//! A workload of several sessions is recorded, each with other engines. In each session the log
//! rolls, manifests roll, the volume may be full for a while, and checkpoints are taken. Then the
//! machine dies at many points of it, and the remains are opened with varying engines and more
//! crashes. Each engine must find all data that it was promised, as if it were alone. While an
//! engine is closed, its files and its part of the manifest must not change by a byte.
//!
//! `session` opens and closes the store with some engines and reports the data of the closed ones.
//! `life` makes the operations in between and tracks the expected state.

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
use life::{EngineWorkload, Pending};
use session::OpenEngines;

/// Crash states tested per workload.
const STATES: u64 = 16;
/// Maximum number of sessions after a crash.
const SESSIONS_MAX: u64 = 4;

/// Runs some sessions that end with a close.
fn live(life: &mut EngineWorkload) -> Check {
    for session in 0..life.rng.range(2, 6) {
        let who = OpenEngines::draw(&mut life.rng);
        let steps = life.rng.range(4, 40);
        life.session(who, steps).map_err(|why| format!("session {session}: {why}"))?;
    }
    Ok(())
}

/// Crashes at an operation of a recorded workload; after some sessions all promised data must be
/// there.
fn after_crash(
    life: &EngineWorkload,
    op: u64,
    kind: CrashKind,
    sim: SimEnv,
    mut rng: Rng,
) -> (String, Check) {
    let sessions = rng.range(1, SESSIONS_MAX + 1);
    let mut next = life.after(sim, rng, Pending::of(op, loss(kind)));
    let mut story = format!("{kind:?} at operation {op}");
    for _ in 1..sessions {
        let who = OpenEngines::draw(&mut next.rng);
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
        let session = next.open(OpenEngines::Both)?;
        session.db.as_ref().map_or(Ok(()), check_verify)
    });
    let checked = last.and_then(|last| last);
    story += ", Both";
    (if checked.is_err() { told(story, &next) } else { story }, checked)
}

/// Prints the history if requested.
fn told(story: String, life: &EngineWorkload) -> String {
    if std::env::var_os(TRACE).is_some() {
        println!("after the crash:\n{}", life.sim.trace());
    }
    story
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut life = EngineWorkload::new(seed);
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
