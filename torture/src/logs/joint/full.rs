//! Row `log-joint-full`: a store with both engines has no space, on a full volume or under a limit.
//! A refused call has no effect in either engine. Reads and trims work. Acknowledged writes survive
//! a crash at that point. With space again, or without the limit, everything continues. The limit
//! is never exceeded, checked at each file system operation.

use super::past;
use super::strikes::Room;
use crate::case::{Context, Outcome, guarded};
use crate::logs::seen;
use crate::machine::{self, room};
use crate::plan::pick;
use io::Rng;
use lavastore::testing::SimEnv;

/// Number of consecutive processes that open the store at its limit.
const LIVES: u64 = 8;

/// The machine of the row.
struct OfMachine;

impl Room for OfMachine {
    fn set(&self, sim: &SimEnv, more: Option<u64>) {
        let used = room::used(sim).expect("the volume says what is in use");
        room::set_capacity(sim, more.map(|more| used + more)).expect("the volume can be bounded");
    }

    fn watch(&self, sim: &SimEnv) {
        room::watch(sim);
    }

    fn peak(&self, sim: &SimEnv) -> u64 {
        room::peak(sim).expect("the volume says what files occupy")
    }

    /// On LavaFS one in four hundred stores refuses some trims: each file of a job takes a block,
    /// and the freed reserved space is used up before the jobs have freed the trimmed data.
    fn trims_pass(&self) -> bool {
        !machine::is_lavafs()
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7466);
    let Some((past, _)) = outcome.made(|| Ok(past(seed, &mut rng))) else { return outcome };
    let more = pick(&mut rng, &[0, 30 << 10, 100 << 10, 300 << 10, 900 << 10]);
    let is_limit = rng.one_in(2);
    let refused = guarded(|| match is_limit {
        true => past.reaches_limit(seed, &OfMachine, more, LIVES),
        false => past.fills_up(seed, &OfMachine, more),
    });
    if let Ok((all, of_both)) = refused {
        outcome.note(seen::REFUSED, all);
        outcome.note(seen::REFUSED_BOTH, of_both);
    }
    let what = if is_limit { "a limit" } else { "a volume" };
    outcome.take(refused.map(drop).map_err(|why| format!("{what} with {more} bytes more: {why}")));
    outcome
}
