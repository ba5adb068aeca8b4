//! Free blocks that the device is to be told of, and how fast it is.
//!
//! A device that is told of much at once is busy with it for a while, and reads and syncs wait behind that. So it is told a run at a time,
//! and of no more bytes a second than are allowed: what was not told in the last second may be made up for at once, and no more, so that in any
//! stretch of time it is told of what that allows, of one second's more, and of one run.
//!
//! Which blocks are told of is a hint, and is forgotten where the volume is unmounted before it was told.

use crate::alloc::FreeMap;
use crate::geometry::{Role, Roles, SECOND, role_of};
use crate::layout::{BLOCK, Extent};

/// The most blocks told to the device at once.
const RUN_BLOCKS_MAX: u32 = 4096;
/// A run is what this part of a second allows.
const RUNS_A_SECOND: u64 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Discards {
    runs: FreeMap,
    bytes_per_second: u64,
    /// When all that the device was told of would have been told at the rate, one after the other.
    told_ns: u64,
    /// Devices of a volume of two that are not told.
    refused: Roles,
}

impl Discards {
    /// None yet.
    pub(crate) fn new(bytes_per_second: u64) -> Discards {
        Discards {
            runs: FreeMap::default(),
            bytes_per_second: bytes_per_second.max(1),
            told_ns: 0,
            refused: Roles::default(),
        }
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.blocks() == 0
    }

    /// Blocks are free.
    pub(crate) fn note(&mut self, extent: Extent) {
        self.forget(extent);
        if self.refused.has(role_of(true, extent)) {
            return;
        }
        let noted = self.runs.release(extent);
        debug_assert!(noted, "it was forgotten a moment ago");
    }

    /// Blocks are not free any more.
    pub(crate) fn forget(&mut self, extent: Extent) {
        for run in self.runs.overlapping(extent) {
            let claimed = self.runs.claim(run);
            debug_assert!(claimed, "the run was found in the map");
        }
    }

    /// A device of a volume of two is not told of anything any more.
    pub(crate) fn refuse(&mut self, role: Role) {
        self.refused = self.refused.and(Roles::only(role));
        self.forget(match role {
            Role::Speed => Extent::new(0, SECOND),
            Role::Capacity => Extent::new(SECOND, u32::MAX - SECOND),
        });
    }

    /// How long nothing may be told yet.
    pub(crate) fn wait_ns(&self, now_ns: u64) -> u64 {
        self.told_ns.saturating_sub(now_ns.saturating_add(SECOND_NS))
    }

    /// Takes a long run to be told of now, if that is allowed.
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
