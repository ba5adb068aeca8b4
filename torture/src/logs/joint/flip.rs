//! Row `log-joint-flip`: a file of a store with both engines is damaged, and the store is opened
//! with both.
//!
//! Damage is as in the row `flip`, to any file of either engine or of both. Every answer is
//! correct, or an error that names a file. A batch of both engines never has one half there and the
//! other reported as absent. One store in six was killed: then the end of the log or of the
//! manifest cannot be distinguished from a torn one. So each engine must hold a prefix, with
//! agreeing halves. Then jobs meet the damage, the store continues as far as possible, and is
//! opened once more.

use super::answers::{Answered, ask, names_a_file};
use super::life::{Found, Life, open};
use crate::case::{Context, Outcome, guarded};
use crate::check::Check;
use crate::flip::{DAMAGES, Damage, break_a_file, mounted};
use crate::logs::seen;
use crate::machine;
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};

pub(super) const KINDS: [&str; 12] = [
    ".log",
    ".log",
    ".log",
    ".ksst",
    ".vsst",
    ".e1-1",
    ".e1-2",
    ".e1-3",
    "/MANIFEST",
    "/CURRENT",
    "/STAGING",
    "/LOCK",
];

struct JointFlipStore {
    life: Life,
    /// The final and an earlier state.
    sim: SimEnv,
    older: SimEnv,
    closed: bool,
}

impl JointFlipStore {
    fn make(seed: u64, rng: &mut Rng) -> JointFlipStore {
        let mut life = Life::new(machine::new(seed), machine::try_env, seed, Found::NOTHING);
        let closed = !rng.one_in(6);
        for _ in 0..rng.range(1, 3) {
            life.live(rng.range(20, 160));
        }
        let older = life.sim.fork(seed);
        life.live_on(rng.range(20, 160), closed);
        let sim = if closed { life.sim.fork(seed) } else { life.sim.crash(CrashKind::ProcessKill, seed) };
        JointFlipStore { life, sim, older, closed }
    }

    /// Opens the store and reads everything. `None`: the open was refused.
    fn look(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<Answered>> {
        let Some(env) = mounted(sim)? else { return Ok(None) };
        let (db, logs) = match open(&env) {
            Ok(opened) => opened,
            Err(e) => {
                names_a_file(&e, "open");
                return Ok(None);
            }
        };
        if rng.one_in(3) {
            // Background work that meets the damage must not propagate it.
            (0..rng.below(60)).for_each(|_| _ = db.run_background_step());
        }
        let answered = ask(&self.life, &db, &logs, self.closed);
        for done in [logs.seal().and_then(|()| logs.wait_idle()), db.flush()] {
            done.unwrap_or_else(|e| names_a_file(&e, "work in the background"));
        }
        let again = ask(&self.life, &db, &logs, self.closed);
        assert!(again.cut <= answered.cut, "{} writes were absent, then {}", answered.cut, again.cut);
        let left = sim.crash(CrashKind::ProcessKill, rng.next_u64());
        drop((db, logs));
        match open(&machine::env(&left)?) {
            Ok((db, logs)) => _ = ask(&self.life, &db, &logs, self.closed),
            Err(e) => names_a_file(&e, "open, the second time,"),
        }
        Ok(Some(answered))
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7470);
    let Some(store) = outcome.made(|| Ok(JointFlipStore::make(seed, &mut rng))) else { return outcome };
    super::note(store.life.done, &mut outcome);
    let break_it = |sim: &SimEnv, rng: &mut Rng| break_a_file(sim, &store.older, &KINDS, rng);
    let image = store.sim.state_hash();
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damage: &Damage, rng| {
        if sim.state_hash() == image {
            return;
        }
        let looked = guarded(|| store.look(sim, rng)).and_then(|looked| looked);
        match &looked {
            Ok(None) => outcome.note("refused to open", 1),
            Ok(Some(answered)) => {
                outcome.note(seen::LOST, answered.damaged);
                outcome.note(seen::CUT, u64::from(answered.cut > 0));
            }
            Err(_) => {}
        }
        let state = if store.closed { "closed" } else { "killed" };
        outcome
            .take(looked.map(drop).map_err(|why| format!("{state}, damage {nth}, {}: {why}", damage.text)));
    });
    outcome
}
