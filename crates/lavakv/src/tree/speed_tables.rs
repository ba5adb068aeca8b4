//! What is known of the speed disk by who makes tables: which levels belong there, and whether it has refused one.
//!
//! Estimates, under no lock: who has an older answer makes a table on the other disk, and no more.

use crate::context::Context;
use crate::context::options::Options;
use base::sync::statistic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::volumes::Volume;
use version::LevelSums;
use version::placed::{Misplaced, PLACES, spread};

/// The room on the speed disk beside what the log needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is none, or the disk refuses what it said that it has.
    Short,
    /// What is there may stay, and no more should come.
    #[default]
    Enough,
    /// More may come.
    Plenty,
}

/// For so long nothing is made on a disk that has refused a table.
pub(crate) const REFUSED_NS: u64 = 10_000_000_000;

/// A whole level, as the pointer counts.
pub(crate) const LEVEL: u32 = PLACES;

/// True if a table of this level and number belongs on the speed disk. What belongs there at one place of the pointer does so at any higher one.
pub(crate) fn belongs(pointer: u32, level: usize, number: u64) -> bool {
    let below = u32::try_from(level).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    let part = pointer.saturating_sub(below);
    part >= LEVEL || spread(number) < part
}

/// Tables of a level, whose sums these are, that are not where they belong: how many at most.
pub(crate) fn misplaced(pointer: u32, level: usize, sums: &LevelSums) -> Misplaced {
    let below = u32::try_from(level).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    sums.placed.misplaced(pointer.saturating_sub(below).min(LEVEL))
}

/// Where a table belongs.
pub(crate) fn home(pointer: u32, level: usize, number: u64) -> Volume {
    if belongs(pointer, level, number) { Volume::SPEED } else { Volume::DIRECTORY }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpeedTables {
    /// It has refused a table, and is not asked before that, in clock nanoseconds.
    refused_until_ns: AtomicU64,
    /// Levels that are to be there, in thousandths, where that moves.
    pointer: AtomicU64,
    /// When the disks are looked at again, in clock nanoseconds.
    look_ns: AtomicU64,
}

impl SpeedTables {
    /// Of a store that is being opened: where placement moves it begins with no level there.
    pub fn new(context: &Context) -> SpeedTables {
        let speed = SpeedTables::default();
        let is_there = context.env.fs.disks(&context.dir).is_some();
        let milli = if is_there { speed.pointer(&context.options) } else { 0 };
        context.stats.speed_levels_milli.set(milli.into());
        speed
    }

    /// The disk had said that it has room for a table, and refused it.
    pub fn refused(&self, context: &Context) {
        context.stats.speed_refusals.add(1);
        self.refused_until_ns.store(context.now_ns().saturating_add(REFUSED_NS), Relaxed);
    }

    /// Levels that are to be there, in thousandths.
    pub fn pointer(&self, options: &Options) -> u32 {
        if options.expert.speed_moving {
            return u32::try_from(self.pointer.load(Relaxed)).unwrap_or(u32::MAX);
        }
        u32::try_from(options.expert.speed_levels).unwrap_or(u32::MAX).saturating_mul(LEVEL)
    }

    /// The pointer is here from now on.
    pub fn set_pointer(&self, context: &Context, milli: u32) {
        self.pointer.store(milli.into(), Relaxed);
        context.stats.speed_levels_milli.set(milli.into());
    }

    /// True for one who asks, once in a while.
    pub fn takes_turn(&self, now_ns: u64, every: Duration) -> bool {
        let next_ns = now_ns.saturating_add(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
        let due_ns = self.look_ns.load(Relaxed);
        now_ns >= due_ns && self.look_ns.compare_exchange(due_ns, next_ns, Relaxed, Relaxed).is_ok()
    }

    /// True if that was not long ago.
    pub fn is_refusing(&self, now_ns: u64) -> bool {
        now_ns < self.refused_until_ns.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_there_only_grows_with_the_pointer_and_is_its_part_of_a_level() {
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
