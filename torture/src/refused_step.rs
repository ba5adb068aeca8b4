//! Row `refused-step`: a step of background work is refused, and the same process continues.
//!
//! A manifest edit finds no space, a checkpoint fails in the middle, or a job is abandoned because
//! an output finds no space. The refusal ends at once, and from then on no call may fail. Contents
//! equal the model, and flushes and jobs complete. Jobs leave nothing in the sums of the space
//! budget. The store opens again after a close, a kill and a loss of power. Enough data is written
//! in between for the log to release several groups.
//!
//! One case in four uses both engines, whose collections and seals commit edits as well.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, ensure};
use crate::driver::{Driver, DriverParameters, compare_checkpoint};
use crate::logs::joint;
use crate::machine::{self, DIR};
use crate::plan::{self, Data, pick};
use crate::tally::{STEP_CHECKPOINT, STEP_EDIT, STEP_JOB};
use crate::{files, full, model};
use io::Rng;
use lavastore::testing::{FaultEffect, FaultPlan, OpKind};
use lavastore::{ErrorKind, Options};

/// Calls that allocate space on the volume.
const TAKES_ROOM: [OpKind; 3] = [OpKind::Create, OpKind::Append, OpKind::Reserve];
/// Refusals in one case with both engines.
const STRIKES: u64 = 6;

/// The refused step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Edit,
    Checkpoint,
    Job,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7374_6570_0000);
    if rng.one_in(4) {
        of_both(seed, &mut rng, &mut outcome);
        return outcome;
    }
    let knobs = DriverParameters {
        steps: rng.range(10, 50),
        reads: true,
        kills: false,
        volatile: false,
        families: rng.one_in(2),
        checkpoints: false,
        reopen: false,
        faults: false,
        first_number: 1,
        upkeep_one_in: pick(&mut rng, &[4, 8, 16]),
        options: if rng.one_in(2) { limited } else { plan::churn_options },
    };
    let data = Data::churn(&mut rng);
    let mut driver = Driver::new(seed, knobs, data);
    let ran = guarded(|| run(&mut driver, &mut rng, &mut outcome)).and_then(|ran| ran);
    if ran.is_err() && std::env::var_os(crate::crash::TRACE).is_some() {
        println!("the run:\n{}\n{}", driver.sim.trace(), driver.db().describe());
    }
    outcome.take(ran.map_err(|why| format!("{why}; {}", plan::describe(&driver.options))));
    driver.abandon();
    outcome
}

fn limited(rng: &mut Rng) -> Options {
    let drawn = plan::churn_options(rng);
    plan::tight(rng, drawn)
}

/// Refuses edits of a store with both engines.
fn of_both(seed: u64, rng: &mut Rng, outcome: &mut Outcome) {
    let Some((past, _)) = outcome.made(|| Ok(joint::past(seed, rng))) else { return };
    for nth in 0..STRIKES {
        let plan = refusal(Step::Edit, rng.below(30), rng);
        let struck = guarded(|| past.strikes(seed ^ nth, plan, true, &|_| false));
        let is_refused = struck.as_ref().is_ok_and(|struck| *struck != joint::Struck::Nothing);
        outcome.note(STEP_EDIT, u64::from(is_refused));
        outcome.take(struck.map(drop).map_err(|why| format!("both engines, strike {nth}: {why}")));
    }
}

fn run(driver: &mut Driver, rng: &mut Rng, outcome: &mut Outcome) -> Check {
    driver.run()?;
    for round in 0..rng.range(2, 5) {
        let step = pick(rng, &[Step::Edit, Step::Edit, Step::Checkpoint, Step::Job]);
        let count = refused(driver, step, rng)
            .and_then(|count| goes_on(driver, rng).map(|()| count))
            .map_err(|why| format!("round {round}, {step:?}: {why}"))?;
        let name = match step {
            Step::Edit => STEP_EDIT,
            Step::Checkpoint => STEP_CHECKPOINT,
            Step::Job => STEP_JOB,
        };
        outcome.note(name, count);
    }
    driver.let_readers_go();
    driver.settle()?;
    model::ends_well(driver)
}

/// Returns the fault plan that refuses the `nth` call of such a step.
fn refusal(step: Step, nth: u64, rng: &mut Rng) -> FaultPlan {
    let outputs = [".ksst", ".vsst"];
    let path = match step {
        Step::Edit => format!("{DIR}/MANIFEST"),
        Step::Job => pick(rng, &outputs).to_owned(),
        Step::Checkpoint if rng.one_in(2) => pick(rng, &outputs).to_owned(),
        Step::Checkpoint => format!("{DIR}/MANIFEST"),
    };
    FaultPlan::nth(nth, FaultEffect::NoSpace).kinds(&TAKES_ROOM).path(&path)
}

/// Refuses steps one at a time. Returns the number of refusals.
fn refused(driver: &mut Driver, step: Step, rng: &mut Rng) -> Check<u64> {
    driver.expects_refusals();
    let mut count = 0;
    for _ in 0..rng.range(1, 4) {
        let before = driver.sim.faults_fired();
        let nth = if step == Step::Checkpoint { rng.below(3) } else { rng.below(12) };
        driver.sim.inject(refusal(step, nth, rng));
        if step == Step::Checkpoint {
            checkpoint(driver)?;
        }
        driver.steps(rng.range(4, 20))?;
        count += driver.sim.faults_fired() - before;
        driver.sim.clear_faults();
    }
    Ok(count)
}

/// Takes a checkpoint: it fails with `NoSpace`, or its contents equal the model.
fn checkpoint(driver: &mut Driver) -> Check {
    driver.write()?;
    let dir = format!("/checkpoint-at-{}", driver.sim.op_count());
    let taken = driver.db().checkpoint(&dir);
    // The open of the checkpoint must not be refused.
    driver.sim.clear_faults();
    match taken {
        Ok(()) => compare_checkpoint(&driver.sim, &dir, plan::options(&mut driver.rng), &driver.model),
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        Err(e) => Err(format!("a checkpoint that was refused a step: {e}")),
    }
}

/// After the refusal: no other call may fail, and the refused step has left nothing behind.
fn goes_on(driver: &mut Driver, rng: &mut Rng) -> Check {
    driver.has_room_again()?;
    for _ in 0..4 {
        for _ in 0..rng.range(20, 50) {
            driver.write()?;
        }
        driver.flush()?;
    }
    driver.let_readers_go();
    files::check_files_at_rest(driver.db(), &machine::env(&driver.sim)?, DIR.as_ref(), false)?;
    driver.compare_all()?;
    let failed = driver.db().verify().map(|report| report.errors);
    ensure!(failed.as_ref().is_ok_and(Vec::is_empty), "verify: {failed:?}");
    match rng.below(3) {
        0 => full::crash(driver, rng).map_err(|why| format!("a crash after refusals: {why}")),
        1 => driver.reopen(),
        _ => Ok(()),
    }
}
