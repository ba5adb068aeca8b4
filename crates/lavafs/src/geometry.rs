//! Mapping of block numbers to devices.
//!
//! A volume has one space of block numbers. On a one-device volume they are the block numbers of
//! the device. On a two-device volume, numbers below [`SECOND`] denote blocks of the speed device.
//! Numbers from `SECOND` on denote blocks of the capacity device, whose block 0 has the number
//! `SECOND`. Therefore the number of an extent identifies its device in dumps, in the journal and
//! in memory. Either device can grow without changing a number. The head of a device is never
//! allocated, so no extent spans both devices.

use crate::layout::{self, Extent, HEAD_BLOCKS};
use base::{Error, Result};

/// Number of the capacity device's block 0.
pub const SECOND: u32 = 1 << 31;
/// Maximum number of blocks of a device in a two-device volume. The largest block number is
/// reserved as the mark of holes.
pub const DEVICE_BLOCKS_MAX: u64 = (1 << 31) - 1;

/// Names the purpose of a device in a two-device volume, for statistics and growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Holds the superblock, the journal, and files of small latency-critical writes. The only
    /// device of a one-device volume has this role, too.
    Fast,
    /// Holds all other files.
    Capacity,
}

impl Role {
    /// Both roles, in the order of their blocks.
    pub const ALL: [Role; 2] = [Role::Fast, Role::Capacity];

    /// Returns the other role.
    pub fn other(self) -> Role {
        match self {
            Role::Fast => Role::Capacity,
            Role::Capacity => Role::Fast,
        }
    }

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::Fast => "speed",
            Role::Capacity => "capacity",
        }
    }
}

/// Set of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    pub(crate) const ALL: Roles = Roles(3);

    pub(crate) fn only(role: Role) -> Roles {
        Roles(1 << role as u8)
    }

    pub(crate) fn and(self, other: Roles) -> Roles {
        Roles(self.0 | other.0)
    }

    pub(crate) fn has(self, role: Role) -> bool {
        self.0 & Roles::only(role).0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Number of blocks of each device of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    first: u64,
    second: Option<u64>,
}

impl From<u64> for Geometry {
    /// Returns the geometry of one device.
    fn from(blocks: u64) -> Self {
        Geometry { first: blocks, second: None }
    }
}

impl Geometry {
    /// Returns the geometry of two devices.
    pub(crate) fn two(speed: u64, capacity: u64) -> Self {
        Geometry { first: speed, second: Some(capacity) }
    }

    pub(crate) fn is_two(self) -> bool {
        self.second.is_some()
    }

    /// Returns the number of blocks of a device, 0 if the device does not exist.
    pub(crate) fn blocks_of(self, role: Role) -> u64 {
        match role {
            Role::Fast => self.first,
            Role::Capacity => self.second.unwrap_or(0),
        }
    }

    /// Returns the number of blocks of the volume.
    pub(crate) fn blocks(self) -> u64 {
        self.first + self.second.unwrap_or(0)
    }

    /// Returns the geometry with `blocks` blocks on an existing device, but never fewer than
    /// before.
    pub(crate) fn grown(self, role: Role, blocks: u64) -> Geometry {
        match role {
            Role::Fast => Geometry { first: self.first.max(blocks), ..self },
            Role::Capacity => Geometry { second: self.second.map(|has| has.max(blocks)), ..self },
        }
    }

    /// Returns the allocatable area of each device.
    pub(crate) fn areas(self) -> impl Iterator<Item = Extent> {
        let area = |start: u32, blocks: u64| {
            let most = u32::try_from(blocks).unwrap_or(u32::MAX);
            Extent::new(start + HEAD_BLOCKS, most.saturating_sub(HEAD_BLOCKS))
        };
        std::iter::once(area(0, self.first)).chain(self.second.map(|blocks| area(SECOND, blocks)))
    }

    /// Checks an extent read from a device: it must hold at least one block and lie after the head
    /// of a device.
    pub(crate) fn check(self, extent: Extent) -> Result<()> {
        let inside = |area: Extent| extent.start >= area.start && extent.end() <= area.end();
        if extent.blocks > 0 && self.areas().any(inside) {
            return Ok(());
        }
        let (start, blocks, all) = (extent.start, extent.blocks, self.blocks());
        Err(Error::corruption(format!(
            "the metadata of the volume names {blocks} blocks from block {start}, which are outside the {all} blocks of the volume"
        )))
    }
}

/// Returns the device of an extent, on a volume of one or two devices.
pub(crate) fn role_of(is_two: bool, extent: Extent) -> Role {
    if is_two && extent.start >= SECOND { Role::Capacity } else { Role::Fast }
}

/// Returns the devices of a file's extents.
pub(crate) fn roles_of(is_two: bool, extents: &[Extent]) -> Roles {
    let on = extents.iter().filter(|e| !e.is_hole()).map(|&e| Roles::only(role_of(is_two, e)));
    on.fold(Roles::default(), Roles::and)
}

/// Offset of the capacity device's first byte in the address space of the volume.
pub(crate) const SECOND_OFFSET: u64 = SECOND as u64 * layout::BLOCK;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_outside_the_volume_are_refused() {
        let one = Geometry::from(100);
        for (start, blocks, sound) in [
            (HEAD_BLOCKS, 1, true),
            (0, 1, false),
            (99, 1, true),
            (99, 2, false),
            (50, 0, false),
            (u32::MAX, 9, false),
            (SECOND + 40, 1, false),
        ] {
            assert_eq!(one.check(Extent::new(start, blocks)).is_ok(), sound, "{start}+{blocks}");
        }
        let two = Geometry::two(100, 300);
        for (start, blocks, sound) in [
            (99, 1, true),
            (100, 1, false),
            (99, 2, false),
            (SECOND - 1, 40, false),
            (SECOND, 1, false),
            (SECOND + HEAD_BLOCKS, 268, true),
            (SECOND + HEAD_BLOCKS, 269, false),
            (u32::MAX, 1, false),
        ] {
            assert_eq!(two.check(Extent::new(start, blocks)).is_ok(), sound, "{start}+{blocks}");
        }
    }

    #[test]
    fn block_numbers_encode_the_device() {
        let (low, high) = (Extent::new(40, 2), Extent::new(SECOND + 40, 2));
        assert_eq!((role_of(true, low), role_of(true, high)), (Role::Fast, Role::Capacity));
        assert_eq!(role_of(false, high), Role::Fast, "one device of more than 8 TiB");
        let on = roles_of(true, &[low, Extent::hole(3)]);
        assert_eq!(on, Roles::only(Role::Fast));
        assert_eq!(on.and(roles_of(true, &[high])), Roles::ALL);
        assert!(roles_of(true, &[Extent::hole(1)]).is_empty());
        let grown = Geometry::two(100, 300).grown(Role::Capacity, 400).grown(Role::Fast, 50);
        assert_eq!((grown, grown.blocks()), (Geometry::two(100, 400), 500));
        assert_eq!(Geometry::from(9).grown(Role::Capacity, 400), Geometry::from(9));
    }
}
