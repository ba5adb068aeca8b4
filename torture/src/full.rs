//! Row `full`: a store without free space, under a limit or on a full volume.
//!
//! A run of random operations is squeezed several times: by a limit that its data reaches, or by a
//! nearly full volume (with and without a limit above that). Then it writes until writes are
//! refused. A refused write has no effect, not even in part; reads and deletes work. The
//! simulator's own count never exceeds the limit. The machine dies, and no acknowledged write is
//! lost. Once there is space, from deletes or from outside, writes resume without a reopen.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing};
use crate::crash::check_verify;
use crate::driver::{Driver, DriverParameters, scan};
use crate::history::Loss;
use crate::machine::DIR;
use crate::plan::{self, Data, pick};
use crate::tally;
use crate::{machine, model};
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Db, Options, SpaceLimit};

/// Maximum number of writes until one is refused: a store may hold less than it is given.
const WRITES_MAX: u64 = 400;
/// Maximum number of writes until one succeeds again: the store notices external space with a
/// delay.
const TRIES_MAX: u64 = 400;
/// Simulated time between two of these writes in nanoseconds.
const TRY_NS: u64 = 20_000_000;

/// The scarce resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Squeeze {
    /// The limit.
    Limit,
    /// The volume, without a limit.
    Volume,
    /// The volume, with a limit that is never reached.
    Both,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6675_6c6c_0000);
    let squeeze = pick(&mut rng, &[Squeeze::Limit, Squeeze::Limit, Squeeze::Volume, Squeeze::Both]);
    let knobs = DriverParameters {
        steps: rng.range(10, 60),
        reads: true,
        kills: false,
        volatile: squeeze == Squeeze::Limit && rng.one_in(4),
        families: rng.one_in(2),
        checkpoints: squeeze == Squeeze::Limit && rng.one_in(4),
        reopen: true,
        faults: false,
        first_number: 1,
        upkeep_one_in: pick(&mut rng, &[4, 8, 16]),
        options: match squeeze {
            Squeeze::Limit => limited,
            Squeeze::Volume => unlimited,
            Squeeze::Both => limited_far_off,
        },
    };
    let data = Data::churn(&mut rng);
    let mut driver = Driver::new(seed, knobs, data);
    let ran = run(&mut driver, squeeze, &mut rng);
    if ran.is_err() && std::env::var_os(crate::crash::TRACE).is_some() {
        println!("the run:\n{}\n{}", driver.sim.trace(), driver.db().describe());
    }
    outcome.note("calls refused", driver.refused);
    outcome.note("limits changed", driver.limit_changes);
    outcome.take(ran.map_err(|why| format!("{squeeze:?}, {}: {why}", plan::describe(&driver.options))));
    driver.abandon();
    outcome
}

fn limited(rng: &mut Rng) -> Options {
    let drawn = plan::churn_options(rng);
    plan::tight(rng, drawn)
}

fn unlimited(rng: &mut Rng) -> Options {
    Options { space_limit: None, ..plan::churn_options(rng) }
}

fn limited_far_off(rng: &mut Rng) -> Options {
    Options { space_limit: Some(SpaceLimit::Bytes(1 << 40)), ..plan::churn_options(rng) }
}

fn run(driver: &mut Driver, squeeze: Squeeze, rng: &mut Rng) -> Check {
    driver.run()?;
    for round in 0..rng.range(1, 4) {
        squeezed(driver, squeeze, rng).map_err(|why| format!("round {round}: {why}"))?;
    }
    driver.let_readers_go();
    driver.settle()?;
    model::ends_well(driver)
}

/// Fills the store, crashes it, and waits until there is space again.
fn squeezed(driver: &mut Driver, squeeze: Squeeze, rng: &mut Rng) -> Check {
    let room = pick(rng, &[0, 8 << 10, 100 << 10, 400 << 10]);
    // On a volume, deletes free space only if the store had enough for its reserve before.
    let by_deletes = squeeze == Squeeze::Limit || squeeze == Squeeze::Both && rng.one_in(2);
    let reserve = if by_deletes { 2 * plan::least_limit(&driver.options) } else { 0 };
    if squeeze != Squeeze::Limit {
        driver.set_capacity(Some(machine::room::used(&driver.sim)? + room + reserve))?;
    }
    let before = driver.refused;
    for _ in 0..WRITES_MAX {
        driver.write()?;
        if driver.refused > before {
            break;
        }
    }
    driver.compare_all()?;
    driver.steps(rng.below(40))?;
    if rng.one_in(2) {
        crash(driver, rng).map_err(|why| format!("a crash without room: {why}"))?;
    }
    driver.let_readers_go();
    if by_deletes {
        driver.delete_all()?;
    } else {
        driver.set_capacity(None)?;
    }
    resume(driver)?;
    driver.has_room_again()?;
    driver.steps(rng.below(20))
}

/// Checks that writes succeed again after a while.
fn resume(driver: &mut Driver) -> Check {
    for _ in 0..TRIES_MAX {
        if driver.put_small()? {
            return Ok(());
        }
        driver.sim.advance_ns(TRY_NS);
        driver.db().engine().run_background_step();
    }
    Err(format!("writes do not resume: {}", driver.db().describe()))
}

/// Crashes the machine at this point: the store must open on the equally full volume with all
/// promised data.
pub(crate) fn crash(driver: &mut Driver, rng: &mut Rng) -> Check {
    let (kind, loss) = if rng.one_in(2) {
        (CrashKind::ProcessKill, Loss::Process)
    } else {
        (CrashKind::PowerLoss, Loss::Power)
    };
    driver.history.changed();
    let after = driver.sim.crash(kind, rng.next_u64());
    machine::room::set_capacity_after_crash(&after, driver.capacity());
    guarded(|| check_crashed(driver, &after, loss)).and_then(|check| check)
}

fn check_crashed(driver: &Driver, after: &SimEnv, loss: Loss) -> Check {
    let env = machine::env(after)?;
    machine::room::watch(after);
    // The store opens with any amount of space.
    let db = Db::open_in(&env, DIR, &driver.options).doing(|| "refused to open".into())?;
    driver.check_peak_of(after)?;
    driver.history.check(driver.sim.op_count(), loss, &scan(&db)?)?;
    tally::add(&db);
    check_verify(&db)
}
