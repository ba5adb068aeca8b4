//! Clock jumps: an administrator sets the clock, or the machine is suspended.

use io::Rng;
use lavastore::testing::SimEnv;

const NS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// Sets the wall clock forward or back by up to a century (not before 1970), or lets up to a year
/// pass at once.
pub(super) fn jump(sim: &SimEnv, rng: &mut Rng) {
    let seconds = [60, 3_600, SECONDS_PER_DAY, 365 * SECONDS_PER_DAY][rng.below(4) as usize];
    match rng.below(3) {
        0 => sim.jump_wall_clock(rng.range(1, seconds * 100) as i64),
        1 => sim.jump_wall_clock(-(rng.range(1, seconds * 100) as i64)),
        _ => sim.advance_ns(rng.range(1, seconds) * NS_PER_SECOND),
    }
}
