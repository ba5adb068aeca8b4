//! Row `log-joint-io-errors`: a store with both engines and a past is opened and used, and operations of the file system fail: EIO, ENOSPC,
//! a part of the work is done; once, or everything from it on. EMFILE comes once, for some seconds, or until the session is over, where
//! something is opened: then nothing may be given up, and all goes on in the same process.
//!
//! What must hold is said in the tests of `lavalog` (`domain/strikes`), which try the operations of one life; here, some of many.

use super::past;
use super::strikes::Struck;
use crate::case::{Context, Outcome, guarded};
use crate::io_errors::a_sync_failed;
use crate::logs::seen;
use crate::machine;
use io::Rng;
use lavastore::testing::{FaultEffect, FaultPlan, SimEnv};

/// How long a failure lasts.
#[derive(Clone, Copy, Debug)]
enum Lasts {
    Once,
    ForSeconds,
    ForGood,
}

const EFFECTS: [(FaultEffect, Lasts, &str); 8] = [
    (FaultEffect::Eio, Lasts::Once, "EIO"),
    (FaultEffect::Eio, Lasts::ForGood, "EIO for good"),
    (FaultEffect::Short, Lasts::Once, "a short transfer"),
    (FaultEffect::NoSpace, Lasts::Once, "ENOSPC"),
    (FaultEffect::NoSpace, Lasts::ForGood, "ENOSPC for good"),
    (FaultEffect::NoDescriptor, Lasts::Once, "EMFILE"),
    (FaultEffect::NoDescriptor, Lasts::ForSeconds, "EMFILE for seconds"),
    (FaultEffect::NoDescriptor, Lasts::ForGood, "EMFILE for good"),
];

/// Of the operations of a life one in so many fails.
const ONE_IN: u64 = 60;
/// Of those that open something.
const OPENS_ONE_IN: u64 = 10;
/// How long descriptors are away.
const WHILE_NS: u64 = 3_000_000_000;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7469);
    let Some((past, _)) = outcome.made(|| Ok(past(seed, &mut rng))) else { return outcome };
    // On LavaFS the scratch file, in which writes wait that are not to be durable, is under the device's sync like everything else.
    let loses = |sim: &SimEnv| machine::is_lavafs() && a_sync_failed(sim);
    for (nth, (effect, lasts, name)) in EFFECTS.into_iter().enumerate() {
        let passes = effect == FaultEffect::NoDescriptor;
        let one_in = if passes { OPENS_ONE_IN } else { ONE_IN };
        for call in ((seed * 7 + nth as u64) % one_in..).step_by(one_in as usize) {
            let plan = FaultPlan::nth(call, effect);
            let plan = match lasts {
                Lasts::Once => plan,
                Lasts::ForSeconds => plan.lasting_ns(WHILE_NS),
                Lasts::ForGood => plan.sticky(),
            };
            let struck = guarded(|| past.strikes(seed ^ call, plan, passes, &loses));
            match struck {
                Ok(Struck::Nothing) => break,
                Ok(struck) => {
                    outcome.note(seen::STRUCK, 1);
                    outcome.note(seen::STOPPED, u64::from(struck == Struck::Stopped));
                    outcome.note(seen::LACKED, u64::from(passes));
                    outcome.take(Ok(()));
                }
                Err(why) => outcome.take(Err(format!("{name} at operation {call}: {why}"))),
            }
            if outcome.failures.len() > 4 {
                return outcome;
            }
        }
    }
    outcome
}
