//! The prefix of a key that its filter entry covers besides the whole key.
//!
//! The filters of a table may hold the prefixes of its keys, so that a scan of the keys with one
//! prefix passes over tables without such a key. The properties of a table name the kind of prefix,
//! so a table stays readable when the option changes, and a scan needs no option: its bounds decide
//! whether all of its keys have one prefix of that kind.
//!
//! Invariant: if a key has a prefix, all keys that begin with that prefix have the same one.

use base::hash::key_hash;
use std::fmt;

/// Which part of a key is its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyPrefix {
    /// This many first bytes. A shorter key has no prefix.
    Fixed(u8),
    /// All bytes up to the first one with this value, and that one. A key without it has no prefix.
    Delimiter(u8),
}

/// Tells the hash of a prefix from that of a key.
const PREFIX_SALT: u64 = 0x70e5_1f3c_a86d_49b3;

impl KeyPrefix {
    /// Returns the prefix of a key.
    ///
    /// ```
    /// use lavastore_table::KeyPrefix;
    ///
    /// assert_eq!(KeyPrefix::Fixed(2).of(b"user7"), Some(&b"us"[..]));
    /// assert_eq!(KeyPrefix::Delimiter(b'/').of(b"user/7/name"), Some(&b"user/"[..]));
    /// assert_eq!(KeyPrefix::Delimiter(b'/').of(b"user"), None);
    /// ```
    #[inline]
    pub fn of(self, user_key: &[u8]) -> Option<&[u8]> {
        match self {
            KeyPrefix::Fixed(len) => user_key.get(..usize::from(len)),
            KeyPrefix::Delimiter(byte) => {
                let at = user_key.iter().position(|&b| b == byte)?;
                user_key.get(..=at)
            }
        }
    }

    /// Returns the prefix of all keys from `lower` to before `upper`, if they have the same one.
    pub(crate) fn of_range<'k>(self, lower: &'k [u8], upper: &[u8]) -> Option<&'k [u8]> {
        self.of(lower).filter(|prefix| upper.starts_with(prefix) || is_end(prefix, upper))
    }

    /// Returns the number in the properties of a table; never 0.
    pub fn code(self) -> u64 {
        match self {
            KeyPrefix::Fixed(len) => u64::from(len) << 8 | 1,
            KeyPrefix::Delimiter(byte) => u64::from(byte) << 8 | 2,
        }
    }

    /// Returns the kind with this number; `None`: this release does not know it.
    pub fn from_code(code: u64) -> Option<KeyPrefix> {
        let value = u8::try_from(code >> 8).ok()?;
        match code & 0xff {
            1 => Some(KeyPrefix::Fixed(value)),
            2 => Some(KeyPrefix::Delimiter(value)),
            _ => None,
        }
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPrefix::Fixed(len) => write!(f, "fixed({len})"),
            KeyPrefix::Delimiter(byte) => write!(f, "delimiter({})", byte.escape_ascii()),
        }
    }
}

/// True if `upper` is the first key after all that begin with `prefix`.
fn is_end(prefix: &[u8], upper: &[u8]) -> bool {
    let Some((last, rest)) = upper.split_last() else { return false };
    match prefix.get(rest.len()..).and_then(<[u8]>::split_first) {
        Some((own, behind)) => {
            prefix.starts_with(rest) && own.checked_add(1) == Some(*last) && behind.iter().all(|&b| b == 0xff)
        }
        None => false,
    }
}

/// Returns the hash of a prefix in a filter.
#[inline]
pub(crate) fn prefix_hash(prefix: &[u8]) -> u64 {
    key_hash(prefix) ^ PREFIX_SALT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range has a prefix only if each key in it has that prefix: compared with all short keys
    /// over three bytes.
    #[test]
    fn keys_of_a_range_have_its_prefix() {
        let bytes = [0u8, 1, 0xff];
        let mut keys = vec![Vec::new()];
        for from in 0..40 {
            let longer = bytes.map(|b| [&keys[from][..], &[b]].concat());
            keys.extend(longer);
        }
        let kinds = [KeyPrefix::Fixed(0), KeyPrefix::Fixed(1), KeyPrefix::Fixed(2), KeyPrefix::Delimiter(1)];
        let mut found = 0;
        for kind in kinds {
            for lower in &keys {
                for upper in keys.iter().filter(|upper| *upper > lower) {
                    let Some(prefix) = kind.of_range(lower, upper) else { continue };
                    let within = keys.iter().filter(|key| *key >= lower && *key < upper);
                    within.for_each(|key| {
                        assert_eq!(kind.of(key), Some(prefix), "{kind:?} {lower:?} {upper:?}")
                    });
                    found += 1;
                }
            }
            assert_eq!(KeyPrefix::from_code(kind.code()), Some(kind));
        }
        assert!(found > 100, "{found}");
        assert_eq!(KeyPrefix::Fixed(2).of_range(b"a\xff", b"b"), Some(&b"a\xff"[..]));
        assert_eq!([0, 3, 1 << 16 | 1].map(KeyPrefix::from_code), [None; 3]);
    }
}
