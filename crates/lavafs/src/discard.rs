//! Free blocks that await a discard, and the limit on the discard rate.
//!
//! A large discard occupies a device for a while, and reads and syncs wait for it. Therefore the
//! device gets one run at a time, and at most a configured number of bytes per second. Up to one
//! second of unused rate may be made up at once. So the discards of any period stay within the rate
//! for that period, plus one second, plus one run.
//!
//! Pending discards are hints. An unmount drops them.

use crate::alloc::FreeMap;
use crate::geometry::{Role, Roles, SECOND, role_of};
use crate::layout::{BLOCK, Extent};

/// Maximum number of blocks of one discard.
const RUN_BLOCKS_MAX: u32 = 4096;
/// Number of runs per second; a run is at most this part of the rate.
const RUNS_A_SECOND: u64 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// Pending discards; see the module documentation.
#[derive(Debug)]
pub(crate) struct Discards {
    runs: FreeMap,
    bytes_per_second: u64,
    /// Time at which all issued discards would end if they ran one after the other at the
    /// configured rate.
    told_ns: u64,
    /// Devices of a two-device volume that get no discards.
    refused: Roles,
}

impl Discards {
    /// Creates an empty set.
    pub(crate) fn new(bytes_per_second: u64) -> Discards {
        Discards {
            runs: FreeMap::default(),
            bytes_per_second: bytes_per_second.max(1),
            told_ns: 0,
            refused: Roles::default(),
        }
    }

    /// Returns true if no discard is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.blocks() == 0
    }

    /// Adds blocks that became free.
    pub(crate) fn note(&mut self, extent: Extent) {
        self.forget(extent);
        if self.refused.has(role_of(true, extent)) {
            return;
        }
        let noted = self.runs.release(extent);
        debug_assert!(noted, "it was forgotten a moment ago");
    }

    /// Removes blocks that are not free any more.
    pub(crate) fn forget(&mut self, extent: Extent) {
        for run in self.runs.overlapping(extent) {
            let claimed = self.runs.claim(run);
            debug_assert!(claimed, "the run was found in the map");
        }
    }

    /// Stops the discards on one device of a two-device volume.
    pub(crate) fn refuse(&mut self, role: Role) {
        self.refused = self.refused.and(Roles::only(role));
        self.forget(match role {
            Role::Fast => Extent::new(0, SECOND),
            Role::Capacity => Extent::new(SECOND, u32::MAX - SECOND),
        });
    }

    /// Returns the time until the next discard is allowed, in nanoseconds.
    pub(crate) fn wait_ns(&self, now_ns: u64) -> u64 {
        self.told_ns.saturating_sub(now_ns.saturating_add(SECOND_NS))
    }

    /// Takes a long run to discard now, if the rate allows it.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Extent> {
        if self.wait_ns(now_ns) > 0 {
            return None;
        }
        let most = (self.bytes_per_second / RUNS_A_SECOND / BLOCK).clamp(1, u64::from(RUN_BLOCKS_MAX)) as u32;
        let extent = self.runs.allocate(self.runs.longest().min(most).max(1), None)?.into_iter().next()?;
        let takes_ns = u128::from(extent.len()) * u128::from(SECOND_NS) / u128::from(self.bytes_per_second);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        self.told_ns = self.told_ns.max(now_ns).saturating_add(takes_ns);
        Some(extent)
    }
}

#[cfg(test)]
mod tests;
