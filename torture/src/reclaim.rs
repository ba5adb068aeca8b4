//! Row `reclaim`: every table and vSST is deleted exactly when it is unreachable.
//!
//! A run of flushes, compactions and collections, with snapshots and iterators held across many of
//! them, families created and dropped, checkpoints, and changing options. Whenever the store is
//! idle, its directory holds the files of the manifest and of readers ([`crate::files`]), and every
//! read is compared with the model. Then the machine dies at each sync and each removal of the run.
//! The reopened store must hold the promised data, become idle with exactly the files it names, and
//! still hold the same data.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing};
use crate::crash::{check_verify, kind, loss};
use crate::driver::{Driver, DriverParameters, compare, scan};
use crate::files::check_at_rest;
use crate::history::Loss;
use crate::machine;
use crate::machine::DIR;
use crate::plan::{self, Data, pick};
use crate::tally;
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Db, Durability, Options};

/// Maximum number of crashes per run; of more sync points some are drawn.
const DEATHS_MAX: usize = 60;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7265_636c_6169_6d00);
    let knobs = DriverParameters {
        steps: rng.range(30, 120),
        reads: true,
        kills: false,
        volatile: rng.one_in(6),
        families: rng.one_in(2),
        checkpoints: rng.one_in(3),
        reopen: rng.one_in(2),
        faults: false,
        first_number: 1,
        upkeep_one_in: pick(&mut rng, &[2, 3, 6]),
        options: if rng.one_in(4) { plan::options } else { plan::churn_options },
    };
    let data = Data::churn(&mut rng);
    let mut driver = Driver::new(seed, knobs, data);
    let ran = run(&mut driver);
    outcome.note("limits changed", driver.limit_changes);
    let failed = ran.is_err();
    outcome.take(ran);
    if failed {
        return outcome;
    }
    driver.history.changed();
    let record = driver.sim.record();
    driver.abandon();
    let mut barriers = record.barriers();
    while barriers.len() > DEATHS_MAX {
        barriers.swap_remove(rng.below(barriers.len() as u64) as usize);
    }
    for op in barriers {
        let mut rng = rng.fork();
        let (kind, seed) = (kind(&mut rng), rng.next_u64());
        let sim =
            if rng.one_in(2) { record.crash_before(op, kind, seed) } else { record.crash_at(op, kind, seed) };
        let checked = guarded(|| recover(&driver, &sim, op, kind, &mut rng)).and_then(|check| check);
        outcome.take(checked.map_err(|why| format!("{kind:?} at operation {op}: {why}")));
        if outcome.failures.len() > 2 {
            break;
        }
    }
    outcome
}

/// Runs to the end, without readers.
fn run(driver: &mut Driver) -> Check {
    driver.run()?;
    driver.settle()?;
    driver.let_readers_go();
    check_at_rest(driver.db(), &machine::env(&driver.sim)?, DIR.as_ref(), false)?;
    driver.compare_all()?;
    driver.verify()
}

fn recover(driver: &Driver, sim: &SimEnv, op: u64, kind: CrashKind, rng: &mut Rng) -> Check {
    let options = Options { durability: Durability::Durable, ..plan::churn_options(rng) };
    let db = Db::open_in(&machine::env(sim)?, DIR, &options)
        .doing(|| format!("refused to open with {}", plan::describe(&options)))?;
    let found = scan(&db)?;
    let loss: Loss = loss(kind);
    driver.history.check(op, loss, &found)?;
    let model = found.into_iter().map(|(id, e)| (id, crate::state::Contents::from_entries(e))).collect();
    if rng.one_in(2) {
        let all = db.default_family();
        all.compact_range(..).doing(|| "compact_range after recovery".into())?;
    }
    check_at_rest(&db, &machine::env(sim)?, DIR.as_ref(), false)?;
    compare(&model, &scan(&db)?).map_err(|why| format!("at rest: {why}"))?;
    tally::add(&db);
    check_verify(&db)
}
