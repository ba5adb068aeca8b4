//! State of the fast tier for the creation of tables: the levels that belong there, and whether the
//! tier has refused a file.
//!
//! The values are estimates under no lock: a stale read only places a table on the other tier.

use crate::context::Context;
use crate::context::options::Options;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::volumes::Volume;
use version::LevelSums;
use version::placed::{Misplaced, PLACES, spread};

/// Room on the fast tier beyond the log's reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FastTierRoom {
    /// None, or the tier refuses files in spite of its reported free space.
    Short,
    /// Enough for the files that are there, not for more.
    #[default]
    Enough,
    /// Enough for more files.
    Plenty,
}

/// Time without new files on the fast tier after a refusal.
pub(crate) const REFUSED_NS: u64 = 10_000_000_000;

/// One whole level in units of the pointer.
pub(crate) const LEVEL: u32 = PLACES;

/// True if a table of this level and number belongs on the fast tier. If it belongs there at one
/// pointer, it does at every higher one.
pub(crate) fn belongs(pointer: u32, level: usize, number: u64) -> bool {
    let below = u32::try_from(level).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    let part = pointer.saturating_sub(below);
    part >= LEVEL || spread(number) < part
}

/// Returns an upper bound of the misplaced tables of a level with these sums.
pub(crate) fn misplaced(pointer: u32, level: usize, sums: &LevelSums) -> Misplaced {
    let below = u32::try_from(level).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    sums.placed.misplaced(pointer.saturating_sub(below).min(LEVEL))
}

/// Returns the volume on which a table belongs.
pub(crate) fn home(pointer: u32, level: usize, number: u64) -> Volume {
    if belongs(pointer, level, number) { Volume::FAST } else { Volume::DIRECTORY }
}

/// State of the fast tier: see the module.
#[derive(Debug, Default)]
pub(crate) struct FastTierTables {
    /// End of the pause after a refusal, in clock nanoseconds.
    refused_until_ns: AtomicU64,
    /// Levels that belong on the fast tier, in thousandths, with moving placement.
    pointer: AtomicU64,
    /// Time of the next look at the disks, in clock nanoseconds.
    look_ns: AtomicU64,
}

impl FastTierTables {
    /// Creates the state for an open. Moving placement begins with no level on the fast tier.
    pub fn new(context: &Context) -> FastTierTables {
        let speed = FastTierTables::default();
        let is_there = context.env.fs.disks(&context.dir).is_some();
        let milli = if is_there { speed.pointer(&context.options) } else { 0 };
        context.stats.fast_tier_levels_milli.set(milli.into());
        speed
    }

    /// Records that the fast tier refused a table in spite of its reported free space.
    pub fn refused(&self, context: &Context) {
        context.stats.fast_tier_refusals.add(1);
        self.refused_until_ns.store(context.now_ns().saturating_add(REFUSED_NS), Relaxed);
    }

    /// Returns the number of levels that belong on the fast tier, in thousandths.
    pub fn pointer(&self, options: &Options) -> u32 {
        if options.expert.fast_tier_adaptive {
            return u32::try_from(self.pointer.load(Relaxed)).unwrap_or(u32::MAX);
        }
        u32::try_from(options.expert.fast_tier_levels).unwrap_or(u32::MAX).saturating_mul(LEVEL)
    }

    pub fn set_pointer(&self, context: &Context, milli: u32) {
        self.pointer.store(milli.into(), Relaxed);
        context.stats.fast_tier_levels_milli.set(milli.into());
    }

    /// True for one caller per `every`.
    pub fn takes_turn(&self, now_ns: u64, every: Duration) -> bool {
        let next_ns = now_ns.saturating_add(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
        let due_ns = self.look_ns.load(Relaxed);
        now_ns >= due_ns && self.look_ns.compare_exchange(due_ns, next_ns, Relaxed, Relaxed).is_ok()
    }

    /// True if the fast tier refused a file less than [`REFUSED_NS`] ago.
    pub fn is_refusing(&self, now_ns: u64) -> bool {
        now_ns < self.refused_until_ns.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_tier_placement_grows_monotonically_with_the_pointer() {
        for level in 0..5 {
            for number in 0..500 {
                let first = (0..=5 * LEVEL).step_by(50).position(|pointer| belongs(pointer, level, number));
                let all: Vec<bool> =
                    (0..=5 * LEVEL).step_by(50).map(|pointer| belongs(pointer, level, number)).collect();
                assert!(all.iter().skip(first.unwrap_or(0)).all(|is| *is));
                assert!(
                    !belongs(level as u32 * LEVEL, level, number)
                        && belongs((level as u32 + 1) * LEVEL, level, number)
                );
            }
        }
        let count = (1000..2000).filter(|number| belongs(2 * LEVEL + 250, 2, *number)).count();
        assert!((200..300).contains(&count), "{count}");
    }
}
