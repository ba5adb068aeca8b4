//! Which device a block is on.
//!
//! A volume has one line of block numbers. On a volume of one device they are the device's. On one of two the numbers below [`SECOND`]
//! are the blocks of the speed device, and those from there on the blocks of the capacity device, whose block 0 has the number `SECOND`. So a run says
//! by its number which device it is on, in dumps, journal and memory alike; either device can grow without a number that changes; and as
//! the head of a device is never handed out, no run goes over from one to the other.

use crate::layout::{self, Extent, HEAD_BLOCKS};
use base::{Error, Result};

/// The number of the capacity device's block 0.
pub const SECOND: u32 = 1 << 31;
/// The most blocks that a device of a volume of two has: the largest number is kept to mark holes.
pub const DEVICE_BLOCKS_MAX: u64 = (1 << 31) - 1;

/// What a device of a volume of two is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Superblock, journal, and what is written in small pieces and waited for. The one device of a volume of one, too.
    Speed,
    /// Everything else.
    Capacity,
}

impl Role {
    /// Both, in the order of their blocks.
    pub const ALL: [Role; 2] = [Role::Speed, Role::Capacity];

    /// The other one.
    pub fn other(self) -> Role {
        match self {
            Role::Speed => Role::Capacity,
            Role::Capacity => Role::Speed,
        }
    }

    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Role::Speed => "speed",
            Role::Capacity => "capacity",
        }
    }
}

/// Some of the devices.
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

/// How many blocks the devices of a volume have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    first: u64,
    second: Option<u64>,
}

impl From<u64> for Geometry {
    /// One device.
    fn from(blocks: u64) -> Self {
        Geometry { first: blocks, second: None }
    }
}

impl Geometry {
    /// Two devices.
    pub(crate) fn two(speed: u64, capacity: u64) -> Self {
        Geometry { first: speed, second: Some(capacity) }
    }

    pub(crate) fn is_two(self) -> bool {
        self.second.is_some()
    }

    /// Blocks of a device; none of one that there is not.
    pub(crate) fn blocks_of(self, role: Role) -> u64 {
        match role {
            Role::Speed => self.first,
            Role::Capacity => self.second.unwrap_or(0),
        }
    }

    /// Blocks of the volume.
    pub(crate) fn blocks(self) -> u64 {
        self.first + self.second.unwrap_or(0)
    }

    /// The same with so many blocks on a device that there is; never fewer.
    pub(crate) fn grown(self, role: Role, blocks: u64) -> Geometry {
        match role {
            Role::Speed => Geometry { first: self.first.max(blocks), ..self },
            Role::Capacity => Geometry { second: self.second.map(|has| has.max(blocks)), ..self },
        }
    }

    /// What can be handed out of each device.
    pub(crate) fn areas(self) -> impl Iterator<Item = Extent> {
        let area = |start: u32, blocks: u64| {
            let most = u32::try_from(blocks).unwrap_or(u32::MAX);
            Extent::new(start + HEAD_BLOCKS, most.saturating_sub(HEAD_BLOCKS))
        };
        std::iter::once(area(0, self.first)).chain(self.second.map(|blocks| area(SECOND, blocks)))
    }

    /// Checks numbers from a device: a run of at least one block behind the head of a device.
    pub(crate) fn check(self, extent: Extent) -> Result<()> {
        let inside = |area: Extent| extent.start >= area.start && extent.end() <= area.end();
        if extent.blocks > 0 && self.areas().any(inside) {
            return Ok(());
        }
        let (start, blocks, all) = (extent.start, extent.blocks, self.blocks());
        Err(Error::corruption(format!("{blocks} blocks at {start} are not on a volume of {all} blocks")))
    }
}

/// The device that a run is on, of a volume of two devices or of one.
pub(crate) fn role_of(is_two: bool, extent: Extent) -> Role {
    if is_two && extent.start >= SECOND { Role::Capacity } else { Role::Speed }
}

/// The devices that a file is on.
pub(crate) fn roles_of(is_two: bool, extents: &[Extent]) -> Roles {
    let on = extents.iter().filter(|e| !e.is_hole()).map(|&e| Roles::only(role_of(is_two, e)));
    on.fold(Roles::default(), Roles::and)
}

/// Where the capacity device's first byte is in the line of bytes.
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
    fn a_run_says_by_its_number_where_it_is() {
        let (low, high) = (Extent::new(40, 2), Extent::new(SECOND + 40, 2));
        assert_eq!((role_of(true, low), role_of(true, high)), (Role::Speed, Role::Capacity));
        assert_eq!(role_of(false, high), Role::Speed, "one device of more than 8 TiB");
        let on = roles_of(true, &[low, Extent::hole(3)]);
        assert_eq!(on, Roles::only(Role::Speed));
        assert_eq!(on.and(roles_of(true, &[high])), Roles::ALL);
        assert!(roles_of(true, &[Extent::hole(1)]).is_empty());
        let grown = Geometry::two(100, 300).grown(Role::Capacity, 400).grown(Role::Speed, 50);
        assert_eq!((grown, grown.blocks()), (Geometry::two(100, 400), 500));
        assert_eq!(Geometry::from(9).grown(Role::Capacity, 400), Geometry::from(9));
    }
}
