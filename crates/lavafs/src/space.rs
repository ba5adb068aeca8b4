//! Free blocks of all devices, and the choice of blocks for a file.
//!
//! Each device has a [`FreeMap`]. A file requests blocks on a device and gets them there, in one
//! run if a long enough run exists. If that device has too few blocks, the request *falls back* to
//! the other device: completely if possible, otherwise in parts on both devices. Therefore a volume
//! is full only when both devices are. A caller may disable the fallback, in order to wait for
//! blocks on its device.
//!
//! The journal uses the speed device, and falls back like a file. Its reserve ([`crate::core`])
//! covers both devices together, and stays on the speed device as far as possible. Therefore a
//! speed device full of files still has its reserve. The journal never runs out of space while the
//! other device has some.

use crate::alloc::FreeMap;
use crate::geometry::{Geometry, Role, role_of};
use crate::layout::{Extent, push};

/// Device preference of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocationRequest {
    pub role: Role,
    /// If true, the other device may provide blocks that this one lacks.
    pub falls_over: bool,
}

impl AllocationRequest {
    pub(crate) fn on(role: Role) -> AllocationRequest {
        AllocationRequest { role, falls_over: true }
    }
}

/// Free blocks of all devices; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSpace {
    first: FreeMap,
    /// `None` on a volume of one device.
    second: Option<FreeMap>,
}

impl FreeSpace {
    /// Creates the state without free blocks.
    pub(crate) fn none_of(geometry: Geometry) -> FreeSpace {
        FreeSpace { first: FreeMap::default(), second: geometry.is_two().then(FreeMap::default) }
    }

    /// Creates the state in which all blocks after the heads are free.
    pub(crate) fn all_of(geometry: Geometry) -> FreeSpace {
        let mut free = FreeSpace::none_of(geometry);
        for area in geometry.areas() {
            let released = free.release(area);
            debug_assert!(released, "nothing was free before");
        }
        free
    }

    fn maps(&self) -> impl Iterator<Item = &FreeMap> {
        std::iter::once(&self.first).chain(&self.second)
    }

    fn map(&self, role: Role) -> Option<&FreeMap> {
        match role {
            Role::Fast => Some(&self.first),
            Role::Capacity => self.second.as_ref(),
        }
    }

    fn map_mut(&mut self, role: Role) -> Option<&mut FreeMap> {
        match role {
            Role::Fast => Some(&mut self.first),
            Role::Capacity => self.second.as_mut(),
        }
    }

    fn map_at(&mut self, extent: Extent) -> &mut FreeMap {
        match (&mut self.second, role_of(true, extent)) {
            (Some(second), Role::Capacity) => second,
            _ => &mut self.first,
        }
    }

    /// Number of free blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.maps().map(FreeMap::blocks).sum()
    }

    /// Number of free blocks of one device.
    pub(crate) fn blocks_of(&self, role: Role) -> u64 {
        self.map(role).map_or(0, FreeMap::blocks)
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.maps().map(FreeMap::runs).sum()
    }

    /// Length of the longest run, in blocks.
    pub(crate) fn longest(&self) -> u32 {
        self.maps().map(FreeMap::longest).max().unwrap_or(0)
    }

    /// Frees blocks. Returns false, without a change, if some of the blocks are already free.
    #[must_use]
    pub(crate) fn release(&mut self, extent: Extent) -> bool {
        self.map_at(extent).release(extent)
    }

    /// Allocates exactly the blocks of `extent`. Returns false, without a change, if one of them is
    /// not free.
    #[must_use]
    pub(crate) fn claim(&mut self, extent: Extent) -> bool {
        self.map_at(extent).claim(extent)
    }

    /// Returns the free parts of `extent`.
    pub(crate) fn overlapping(&self, extent: Extent) -> Vec<Extent> {
        match &self.second {
            Some(second) if role_of(true, extent) == Role::Capacity => second.overlapping(extent),
            _ => self.first.overlapping(extent),
        }
    }

    /// Returns the number of blocks of a device that files may get while `reserve` blocks are kept
    /// for the journal.
    pub(crate) fn available(&self, role: Role, reserve: u64) -> u64 {
        let on_speed = self.blocks_of(Role::Fast);
        match role {
            Role::Fast => on_speed.saturating_sub(reserve),
            Role::Capacity => self.blocks_of(role).saturating_sub(reserve.saturating_sub(on_speed)),
        }
    }

    /// Allocates blocks for a file, near `goal` if possible, and keeps `reserve`. Returns `None`,
    /// without a change, if too few blocks match `wish`.
    pub(crate) fn allocate(
        &mut self,
        blocks: u32,
        goal: Option<u32>,
        wish: AllocationRequest,
        reserve: u64,
    ) -> Option<Vec<Extent>> {
        let role = if self.second.is_some() { wish.role } else { Role::Fast };
        if let Some(taken) = self.take(role, blocks, goal, reserve) {
            return Some(taken);
        }
        if self.second.is_none() || !wish.falls_over {
            return None;
        }
        if let Some(taken) = self.take(role.other(), blocks, goal, reserve) {
            return Some(taken);
        }
        let here = u32::try_from(self.available(role, reserve)).unwrap_or(u32::MAX).min(blocks);
        let mut taken = self.take(role, here, goal, reserve)?;
        match self.take(role.other(), blocks - here, None, reserve) {
            Some(rest) => rest.into_iter().for_each(|e| push(&mut taken, e)),
            None => {
                self.give_back(&taken);
                return None;
            }
        }
        Some(taken)
    }

    fn take(&mut self, role: Role, blocks: u32, goal: Option<u32>, reserve: u64) -> Option<Vec<Extent>> {
        if u64::from(blocks) > self.available(role, reserve) {
            return None;
        }
        self.map_mut(role)?.allocate(blocks, goal)
    }

    fn give_back(&mut self, taken: &[Extent]) {
        for &extent in taken {
            let released = self.release(extent);
            debug_assert!(released, "it was taken a moment ago");
        }
    }

    /// Allocates blocks for the journal, in any number of runs, also from the reserve.
    pub(crate) fn allocate_any(&mut self, blocks: u64) -> Option<Vec<Extent>> {
        let here = self.first.blocks();
        let Some(second) = self.second.as_mut().filter(|_| here < blocks) else {
            return self.first.allocate_any(blocks);
        };
        if second.blocks() >= blocks {
            return second.allocate_any(blocks);
        }
        let rest = second.allocate_any(blocks - here)?;
        let mut taken = self.first.allocate_any(here)?;
        rest.into_iter().for_each(|e| push(&mut taken, e));
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::SECOND;

    const SPEED: AllocationRequest = AllocationRequest { role: Role::Fast, falls_over: true };
    const CAPACITY: AllocationRequest = AllocationRequest { role: Role::Capacity, falls_over: true };

    /// Returns two devices with 68 and 268 free blocks.
    fn two() -> FreeSpace {
        FreeSpace::all_of(Geometry::two(100, 300))
    }

    fn blocks(extents: &[Extent]) -> [u64; 2] {
        Role::ALL.map(|role| {
            extents.iter().filter(|e| role_of(true, **e) == role).map(|e| u64::from(e.blocks)).sum()
        })
    }

    #[test]
    fn files_prefer_a_device_and_fall_over_when_it_is_full() {
        let mut free = two();
        let at = |start, blocks| vec![Extent::new(start, blocks)];
        assert_eq!(free.allocate(20, None, SPEED, 0), Some(at(32, 20)));
        assert_eq!(free.allocate(20, None, CAPACITY, 0), Some(at(SECOND + 32, 20)));
        assert_eq!(free.allocate(10, Some(52), SPEED, 0), Some(at(52, 10)), "it goes on where it ends");
        let strict = AllocationRequest { falls_over: false, ..SPEED };
        assert_eq!(free.allocate(39, None, strict, 0), None, "38 are left");
        assert_eq!(free.allocate(39, None, SPEED, 0), Some(at(SECOND + 52, 39)), "whole on the other one");
        let both = free.allocate(240, None, CAPACITY, 0).unwrap();
        assert_eq!(blocks(&both), [240 - 209, 209], "only both have enough");
        assert_eq!(free.allocate(8, None, SPEED, 0), None);
        assert_eq!((free.blocks(), free.runs()), (7, 1));
        both.iter().for_each(|&e| assert!(free.release(e)));
        assert_eq!(Role::ALL.map(|role| free.blocks_of(role)), [38, 209]);
    }

    #[test]
    fn the_reserve_is_kept_on_the_speed_device_first() {
        let mut free = two();
        assert_eq!(Role::ALL.map(|role| free.available(role, 60)), [8, 268]);
        assert_eq!(Role::ALL.map(|role| free.available(role, 100)), [0, 236]);
        let all = free.allocate(276, None, CAPACITY, 60).unwrap();
        assert_eq!((blocks(&all), free.blocks()), ([8, 268], 60));
        assert_eq!(free.allocate(1, None, CAPACITY, 60), None);
        assert_eq!(blocks(&free.allocate_any(60).unwrap()), [60, 0], "the journal may have it");
    }

    #[test]
    fn the_journal_falls_over_to_the_other_device() {
        let mut free = two();
        assert_eq!(blocks(&free.allocate_any(60).unwrap()), [60, 0]);
        assert_eq!(blocks(&free.allocate_any(60).unwrap()), [0, 60], "in one place if there is one");
        assert_eq!(blocks(&free.allocate_any(216).unwrap()), [8, 208]);
        assert_eq!((free.allocate_any(1), free.blocks()), (None, 0));
    }
}
