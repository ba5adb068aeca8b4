//! On which of two devices a file should be, as its name says.
//!
//! The speed device gets what is written in small pieces that somebody waits for: the log of a store, its manifest, and what it keeps on a second
//! disk where it knows of one. It is small, and what merely is read often is left to caches. All else goes to the capacity device, names that
//! nobody knows included. Who creates a file can say otherwise ([`io::CreateOptions::placement`]).
//!
//! A name is enough for that: nothing on the device tells what a file wished for. Only its blocks do where it is, and it
//! may be on both.

use crate::geometry::Role;
use std::path::Path;

/// How names begin that go to the speed device: groups of records in memory, the manifest, which manifest counts, locks, and what the second disk of
/// a store is known by.
const BEGINNINGS: [&str; 5] = ["STAGING", "MANIFEST-", "CURRENT", "LOCK", "SPEED"];
/// How they end: groups of the log, tables and values that a store keeps on its second disk.
const ENDS: [&str; 3] = ["log", "ksst-1", "vsst-1"];

/// The device for a file of this name.
pub(crate) fn by_name(path: &Path) -> Role {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match BEGINNINGS.iter().any(|with| name.starts_with(with)) || ENDS.contains(&ending) {
        true => Role::Speed,
        false => Role::Capacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_go_to_the_speed_device() {
        for (name, role) in [
            ("/db/000000000012.log", Role::Speed),
            ("/db/STAGING", Role::Speed),
            ("/db/STAGING-1", Role::Speed),
            ("/db/MANIFEST-000000000001", Role::Speed),
            ("/db/CURRENT.tmp", Role::Speed),
            ("/db/SPEED", Role::Speed),
            ("/db/SPEED-LOCK", Role::Speed),
            ("/db/000000000007.ksst-1", Role::Speed),
            ("/db/000000000007.vsst-1", Role::Speed),
            ("/db/000000000007.ksst", Role::Capacity),
            ("/db/000000000007.vsst", Role::Capacity),
            ("/log/catalog", Role::Capacity),
            ("/", Role::Capacity),
        ] {
            assert_eq!(by_name(Path::new(name)), role, "{name}");
        }
    }
}
