//! Row `log-io-errors`: a store of logs with existing data is opened and used once for each of its
//! file system operations. That operation fails with EIO, ENOSPC, EMFILE or a short transfer, once
//! or permanently. Lasting EMFILE, for seconds or until the end of the session, affects operations
//! that open files: no job may be given up, and the same process continues.
//!
//! The tests of `lavalog` (`strikes`) define the requirements and cover every operation of one
//! workload; this row samples many.

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

/// One in this many operations of a workload fails.
const ONE_IN: u64 = 40;
/// The same for operations that open files.
const OPENS_ONE_IN: u64 = 8;
/// Duration of the lack of descriptors in nanoseconds.
const WHILE_NS: u64 = 3_000_000_000;

/// Kinds of the lack of descriptors: whether it ends after seconds.
const LACKS: [(bool, &str); 2] = [(true, "EMFILE for seconds"), (false, "EMFILE for good")];

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let options = options(&mut Rng::new(seed ^ 0x6c6f_672d_696f));
    let open = |sim: &SimEnv| LogStore::open(&machine::try_env(sim)?, Path::new(DIR), &options);
    let Some(lived) = outcome.made(|| Ok(Lived::on(machine::new(seed), seed, &open))) else {
        return outcome;
    };
    // On LavaFS the device's sync also covers the scratch file of non-durable writes.
    let loses = |sim: &SimEnv| machine::is_lavafs() && a_sync_failed(sim);
    let mut strike = |from: u64, one_in: u64, name: &str, plan: &dyn Fn(u64) -> (FaultPlan, bool)| {
        for call in (from % one_in..).step_by(one_in as usize) {
            let struck: Check<bool> = guarded(|| lived.strikes(seed, plan(call), &open, &loses, name));
            match struck {
                Ok(false) => break,
                struck => {
                    outcome.note(seen::STRUCK, 1);
                    outcome.note(seen::LACKED, u64::from(plan(call).1));
                    outcome.take(struck.map(drop).map_err(|why| format!("operation {call}: {why}")));
                }
            }
            if outcome.failures.len() > 4 {
                break;
            }
        }
    };
    for (nth, (effect, sticky, name)) in EFFECTS.into_iter().enumerate() {
        strike(seed * 7 + nth as u64, ONE_IN, name, &|call| {
            let plan = FaultPlan::nth(call, effect);
            (if sticky { plan.sticky() } else { plan }, false)
        });
    }
    for (for_seconds, name) in LACKS {
        strike(seed, OPENS_ONE_IN, name, &|call| {
            let plan = FaultPlan::nth(call, FaultEffect::NoDescriptor);
            (if for_seconds { plan.lasting_ns(WHILE_NS) } else { plan.sticky() }, true)
        });
    }
    outcome
}
