//! Common part of the footers of tables, value files and log indexes: 64 bytes whose last 16 are,
//! in every version,
//!
//! ```text
//! 48  checksum of the other 60 bytes, masked for its place   u32
//! 52  format version                                         u32
//! 56  magic                                                  8 bytes
//! ```
//!
//! A release refuses a newer version by name. But a damaged footer must not pass for a newer one:
//! "use a newer release" would be the wrong advice, and a repair would give up a store for one bit
//! of one file. So a version above the newest known one counts as newer only if the checksum holds
//! with no known version in its place.

use crate::checksum;

/// Bytes of a footer.
pub const LEN: usize = 64;
const SUM_AT: usize = 48;
const VERSION_AT: usize = 52;
const MAGIC_AT: usize = 56;

/// Result of checking the last 16 bytes of a footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FooterState {
    /// Its checksum holds, and this release reads its version.
    Sound,
    /// A version that only a newer release reads.
    Newer(u32),
    /// Damaged.
    Damaged,
}

/// Writes the checksum of an otherwise complete footer; `mask` is that of its place
/// ([`checksum::mask`]).
pub fn seal(footer: &mut [u8; LEN], mask: u32) {
    let sum = sum_of(footer) ^ mask;
    footer[SUM_AT..VERSION_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Checks a footer whose magic is right; `newest` is the newest version that the caller reads,
/// `mask` that of its place.
pub fn judge(footer: &[u8; LEN], mask: u32, newest: u32) -> FooterState {
    let [.., v0, v1, v2, v3, _, _, _, _, _, _, _, _] = *footer;
    let version = u32::from_le_bytes([v0, v1, v2, v3]);
    let holds = |version: u32| {
        let mut as_known = *footer;
        as_known[VERSION_AT..MAGIC_AT].copy_from_slice(&version.to_le_bytes());
        (sum_of(&as_known) ^ mask).to_le_bytes() == as_known[SUM_AT..VERSION_AT]
    };
    match version {
        1.. if version <= newest && holds(version) => FooterState::Sound,
        _ if version > newest && !(1..=newest).any(holds) => FooterState::Newer(version),
        _ => FooterState::Damaged,
    }
}

fn sum_of(footer: &[u8; LEN]) -> u32 {
    checksum::checksum_of(&[&footer[..SUM_AT], &footer[VERSION_AT..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: u32 = 0x1234_5678;

    fn sealed(version: u32) -> [u8; LEN] {
        let mut footer = [7; LEN];
        footer[VERSION_AT..MAGIC_AT].copy_from_slice(&version.to_le_bytes());
        seal(&mut footer, MASK);
        footer
    }

    #[test]
    fn a_flipped_bit_is_damage_and_never_a_newer_version() {
        for (version, newest) in [(1, 1), (1, 3), (3, 3)] {
            let footer = sealed(version);
            assert_eq!(judge(&footer, MASK, newest), FooterState::Sound);
            assert_eq!(judge(&footer, MASK + 1, newest), FooterState::Damaged, "from another place");
            for bit in 0..MAGIC_AT * 8 {
                let mut damaged = footer;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    judge(&damaged, MASK, newest),
                    FooterState::Damaged,
                    "bit {bit} of version {version}"
                );
            }
        }
    }

    #[test]
    fn a_newer_version_is_recognized_despite_its_checksum() {
        assert_eq!(judge(&sealed(2), MASK, 1), FooterState::Newer(2));
        let mut footer = sealed(4);
        footer[SUM_AT] ^= 1;
        assert_eq!(judge(&footer, MASK, 3), FooterState::Newer(4));
        assert_eq!(judge(&sealed(0), MASK, 3), FooterState::Damaged);
    }
}
