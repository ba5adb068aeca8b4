//! Row `log-joint-io-errors`: a store with both engines and existing data is opened and used while
//! file system operations fail. They fail with EIO, ENOSPC or a short transfer, once or
//! permanently. EMFILE affects opens once, for some seconds, or until the session ends: no job may
//! be given up, and the same process continues.
//!
//! The tests of `lavalog` (`domain/strikes`) define the requirements and cover the operations of
//! one workload; this row samples many.

use super::past;
use super::strikes::Struck;
use crate::case::{Context, Outcome, guarded};
use crate::io_errors::a_sync_failed;
use crate::logs::seen;
use crate::machine;
use io::Rng;
use lavastore::testing::{FaultEffect, FaultPlan, SimEnv};

/// Duration of a failure.
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

/// One in this many operations of a workload fails.
const ONE_IN: u64 = 60;
/// The same for operations that open files.
const OPENS_ONE_IN: u64 = 10;
/// Duration of the lack of descriptors in nanoseconds.
const WHILE_NS: u64 = 3_000_000_000;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7469);
    let Some((past, _)) = outcome.made(|| Ok(past(seed, &mut rng))) else { return outcome };
    // On LavaFS the device's sync also covers the scratch file of non-durable writes.
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
