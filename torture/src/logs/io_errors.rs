//! Row `log-io-errors`: a store of logs with a past is opened and used, once for each operation of the file system that it makes, and
//! that one fails: EIO, ENOSPC, EMFILE, or a part of its work is done; once, or everything from it on.
//!
//! What must hold is said in the tests of `lavalog` (`strikes`), which try every operation of one life; here, some of many.

use super::strikes::Lived;
use super::{options, seen};
use crate::case::{Context, Outcome, guarded};
use crate::check::Check;
use crate::io_errors::a_sync_failed;
use crate::machine::{self, DIR};
use io::Rng;
use lavalog::LogStore;
use lavastore::testing::{FaultEffect, FaultPlan, SimEnv};
use std::path::Path;

const EFFECTS: [(FaultEffect, bool, &str); 6] = [
    (FaultEffect::Eio, false, "EIO"),
    (FaultEffect::Eio, true, "EIO for good"),
    (FaultEffect::Short, false, "a short transfer"),
    (FaultEffect::NoSpace, false, "ENOSPC"),
    (FaultEffect::NoSpace, true, "ENOSPC for good"),
    (FaultEffect::NoDescriptor, false, "EMFILE"),
];

/// Of the operations of a life one in so many fails.
const ONE_IN: u64 = 40;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let options = options(&mut Rng::new(seed ^ 0x6c6f_672d_696f));
    let open = |sim: &SimEnv| LogStore::open(&machine::try_env(sim)?, Path::new(DIR), &options);
    let Some(lived) = outcome.made(|| Ok(Lived::on(machine::new(seed), seed, &open))) else {
        return outcome;
    };
    // On LavaFS the scratch file, in which writes wait that are not to be durable, is under the device's sync like everything else.
    let loses = |sim: &SimEnv| machine::is_lavafs() && a_sync_failed(sim);
    for (nth, (effect, sticky, name)) in EFFECTS.into_iter().enumerate() {
        for call in ((seed * 7 + nth as u64) % ONE_IN..).step_by(ONE_IN as usize) {
            let plan = FaultPlan::nth(call, effect);
            let plan = if sticky { plan.sticky() } else { plan };
            let struck: Check<bool> = guarded(|| lived.strikes(seed, plan, &open, &loses, name));
            match struck {
                Ok(false) => break,
                struck => {
                    outcome.note(seen::STRUCK, 1);
                    outcome.take(struck.map(drop).map_err(|why| format!("operation {call}: {why}")));
                }
            }
            if outcome.failures.len() > 4 {
                return outcome;
            }
        }
    }
    outcome
}
