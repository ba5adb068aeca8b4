//! Row `io-errors`: a short script runs once for each of its system calls, and that call fails.
//!
//! Further scripts inject errors between two steps of a job.
//!
//! A call fails once or permanently: with EIO, with ENOSPC, with EMFILE if it opens a file, or
//! after part of its work. EMFILE also lasts for some seconds; then the same process must continue
//! with everything, and no job may have been given up. Every result must be a typed error or a
//! success. Afterwards the faults are lifted, the process (sometimes the machine) restarts, and the
//! store must open with every acknowledged write. A failed write is there as a whole or not at all.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing};
use crate::crash::{TRACE, check_verify, go_on};
use crate::driver::{Driver, DriverParameters, scan};
use crate::history::Loss;
use crate::machine;
use crate::machine::DIR;
use crate::plan::{self, Data};
use io::Rng;
use lavastore::testing::{CrashKind, FaultEffect, FaultPlan, SimEnv};
use lavastore::{Db, Durability, Options};

/// Maximum number of failing calls per script.
const CALLS_MAX: u64 = 400;

const EFFECTS: [(FaultEffect, &str); 3] =
    [(FaultEffect::Eio, "EIO"), (FaultEffect::NoSpace, "ENOSPC"), (FaultEffect::Short, "a short transfer")];

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let descriptors = (FaultEffect::NoDescriptor, "EMFILE");
    let mut ways: Vec<_> = EFFECTS
        .into_iter()
        .flat_map(|effect| [(effect, FailureDuration::Once, 1), (effect, FailureDuration::ForEver, 1)])
        .collect();
    ways.push((descriptors, FailureDuration::Once, 1));
    // Lasting failures are drawn for some calls only, since only the clock ends them.
    ways.extend([(descriptors, FailureDuration::ForAWhile, 4), (descriptors, FailureDuration::ForEver, 4)]);
    for ((effect, name), lasts, one_in) in ways {
        for call in (seed % one_in..CALLS_MAX).step_by(one_in as usize) {
            let ran = guarded(|| fail_one(seed, call, effect, lasts)).and_then(|r| r);
            match ran {
                Ok(true) => {
                    outcome.note("EMFILE for a while", u64::from(lasts == FailureDuration::ForAWhile));
                    outcome.take(Ok(()));
                }
                Ok(false) => break,
                Err(why) => outcome.take(Err(format!("{name} at call {call}, {lasts:?}: {why}"))),
            }
            if outcome.failures.len() > 4 {
                return outcome;
            }
        }
    }
    between_steps(seed, &mut outcome);
    outcome
}

/// Duration of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureDuration {
    /// One call.
    Once,
    /// Some simulated time.
    ForAWhile,
    /// Until the store is opened again.
    ForEver,
}

/// Longest failure in nanoseconds; jobs report to their waiters long before.
const WHILE_NS_MAX: u64 = 5_000_000_000;

/// Number of further scripts per seed in which the calls between two steps of a job fail: its own,
/// those of other jobs, or those of writers.
const SCRIPTS: u64 = 12;

/// Checks jobs whose state changed by a failure after they began; see [`SCRIPTS`].
fn between_steps(seed: u64, outcome: &mut Outcome) {
    for script in 0..SCRIPTS {
        let seed = seed.wrapping_mul(SCRIPTS) + script + (1 << 32);
        let mut moments = match guarded(|| moments_between_steps(seed)).and_then(|r| r) {
            Ok(moments) => moments,
            Err(why) => {
                outcome.take(Err(format!("script {seed}, without a failure: {why}")));
                continue;
            }
        };
        let mut rng = Rng::new(seed ^ 0x6d6f_6d65_6e74);
        for _ in 0..3.min(moments.len()) {
            let call = moments.swap_remove(rng.below(moments.len() as u64) as usize);
            let (effect, name) = EFFECTS[rng.below(EFFECTS.len() as u64) as usize];
            let lasts = if rng.one_in(3) { FailureDuration::ForEver } else { FailureDuration::Once };
            let ran = guarded(|| fail_one(seed, call, effect, lasts)).and_then(|r| r);
            outcome.note("failures between two steps of a job", u64::from(ran == Ok(true)));
            if ran != Ok(false) {
                let at =
                    || format!("script {seed}, {name} at call {call}, {lasts:?}, between two steps of a job");
                outcome.take(ran.map(drop).map_err(|why| format!("{}: {why}", at())));
            }
        }
    }
}

/// Returns the first call after each moment between two steps of a job, in a run without failures.
fn moments_between_steps(seed: u64) -> Check<Vec<u64>> {
    let (mut driver, _) = script(seed);
    driver.open()?;
    driver.steps(driver.knobs.steps)?;
    let moments = std::mem::take(&mut driver.between_steps);
    driver.abandon();
    Ok(moments)
}

fn knobs(rng: &mut Rng, churn: bool) -> DriverParameters {
    DriverParameters {
        steps: rng.range(8, 24),
        reads: true,
        kills: false,
        volatile: false,
        families: true,
        checkpoints: rng.one_in(2),
        reopen: true,
        faults: true,
        first_number: 1,
        upkeep_one_in: 3,
        options: if churn { plan::churn_options } else { plan::options },
    }
}

/// Returns the script of a seed, and the generator behind its draws.
fn script(seed: u64) -> (Driver, Rng) {
    let mut rng = Rng::new(seed ^ 0x6572_726f_7273);
    let churn = rng.one_in(2);
    let knobs = knobs(&mut rng, churn);
    let data = if churn { Data::churn(&mut rng) } else { Data::small(&mut rng) };
    (Driver::new(seed, knobs, data), rng)
}

/// Runs the script with one failing call. Returns false if it makes fewer calls.
fn fail_one(seed: u64, call: u64, effect: FaultEffect, lasts: FailureDuration) -> Check<bool> {
    let (mut driver, rng) = script(seed);
    let mut rng = rng.clone_with(call);
    let plan = FaultPlan::nth(call, effect);
    driver.sim.inject(match lasts {
        FailureDuration::Once => plan,
        FailureDuration::ForAWhile => plan.lasting_ns(rng.range(1, WHILE_NS_MAX)),
        FailureDuration::ForEver => plan.sticky(),
    });
    // A failed open leaves no store or an empty one.
    match driver.open() {
        Ok(()) => driver.steps(driver.knobs.steps)?,
        Err(_) => remove_leftover(&driver),
    }
    if driver.sim.faults_fired() == 0 {
        return Ok(false);
    }
    if lasts == FailureDuration::ForAWhile {
        driver.sim.advance_ns(WHILE_NS_MAX);
        driver.works_again().map_err(|why| format!("the descriptors are back, and {why}"))?;
    }
    end_and_check(&mut driver, &mut rng)?;
    Ok(true)
}

/// An open may fail to make its directory's name durable and then fail to remove the directory. An
/// operator has to remove that unconfirmed name.
fn remove_leftover(driver: &Driver) {
    driver.sim.clear_faults();
    if driver.sim.files().is_empty() {
        let _ = driver.sim.env().fs.remove_dir(DIR.as_ref());
    }
}

/// Derives a generator for a call.
trait CloneWith {
    fn clone_with(&self, number: u64) -> Rng;
}

impl CloneWith for Rng {
    fn clone_with(&self, number: u64) -> Rng {
        Rng::new(self.clone().next_u64() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Returns true if a data sync failed on a machine.
pub(crate) fn a_sync_failed(sim: &SimEnv) -> bool {
    let trace = sim.trace();
    trace.lines().any(|line| line.contains("SyncData") && line.contains(" -> "))
}

fn end_and_check(driver: &mut Driver, rng: &mut Rng) -> Check {
    let op = driver.sim.op_count();
    let (sim, loss, how) = match rng.below(3) {
        0 => {
            driver.sim.clear_faults();
            driver.abandon();
            (driver.sim.clone(), Loss::Process, "closed")
        }
        1 => (driver.sim.crash(CrashKind::ProcessKill, rng.next_u64()), Loss::Process, "killed"),
        _ => (driver.sim.crash(CrashKind::PowerLoss, rng.next_u64()), Loss::Power, "after a power loss"),
    };
    // Data covered by a failed sync may be lost. On LavaFS that is the whole device, including the
    // scratch file of non-durable writes.
    let loss = if machine::is_lavafs() && a_sync_failed(&driver.sim) { Loss::Power } else { loss };
    driver.sim.clear_faults();
    driver.abandon();
    let again = || -> Check {
        let options = Options { durability: Durability::Durable, ..plan::options(rng) };
        let db = Db::open_in(&machine::env(&sim)?, DIR, &options).doing(|| "refused to open".into())?;
        let found = scan(&db)?;
        driver.history.check_with_failures(op, loss, &found)?;
        check_verify(&db)?;
        go_on(db, &options, &sim, &driver.data, found, rng)
    };
    let checked = guarded(again).and_then(|r| r);
    if checked.is_err() && std::env::var_os(TRACE).is_some() {
        driver.history.writes.iter().for_each(|w| println!("write: {}", w.describe()));
        println!("the run:\n{}\nafterwards:\n{}", driver.sim.trace(), sim.trace());
    }
    checked.map_err(|why| format!("{how}, then opened without faults: {why}"))
}
