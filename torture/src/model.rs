//! Row `model`: random operations, with every answer compared with a sorted map.

use crate::case::{Context, Outcome};
use crate::check::Check;
use crate::driver::{Driver, DriverParameters, compare, scan};
use crate::plan::{self, Data};
use io::Rng;

/// First number in the row `numbers`: a hundred operations cross 2^32 in sequence, file and page
/// numbers.
const FIRST_NUMBER: u64 = (1 << 32) - 10;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let checked = run(seed, 1, &mut outcome);
    outcome.take(checked);
    outcome
}

pub(crate) fn case_numbers(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let checked = run(seed, FIRST_NUMBER, &mut outcome);
    outcome.take(checked);
    outcome
}

fn run(seed: u64, first_number: u64, outcome: &mut Outcome) -> Check {
    let mut rng = Rng::new(seed ^ 0x6d6f_6465_6c00);
    let knobs = DriverParameters {
        steps: rng.range(60, 140),
        reads: true,
        kills: true,
        volatile: rng.one_in(4),
        families: !rng.one_in(3),
        checkpoints: true,
        reopen: true,
        faults: false,
        first_number,
        upkeep_one_in: [4, 8, 16][rng.below(3) as usize],
        options,
    };
    let data = Data::new(&mut rng);
    let mut driver = Driver::new(seed, knobs, data);
    driver.run()?;
    outcome.note("writes refused as busy", driver.busy);
    outcome.note("limits changed", driver.limit_changes);
    ends_well(&mut driver)
}

fn options(rng: &mut Rng) -> lavastore::Options {
    let options = plan::options(rng);
    plan::scrubbed(rng, options)
}

/// Checks that the store equals the model, is intact, and is the same after a close.
pub(crate) fn ends_well(driver: &mut Driver) -> Check {
    driver.compare_all()?;
    driver.verify()?;
    driver.close()?;
    driver.open()?;
    compare(&driver.model, &scan(driver.db())?)?;
    driver.verify()
}
