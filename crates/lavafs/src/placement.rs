//! Placement of files on two devices by name.
//!
//! The speed device gets the files of small latency-critical writes: the logs and manifests of a
//! store, and the files of its fast tier. The speed device is small, and files that are only read
//! often are left to caches. All other files go to the capacity device, including those of unknown
//! names. The creator of a file can override this ([`io::CreateOptions::placement`]).
//!
//! The name is sufficient: the device stores no preference. Only the blocks of a file determine its
//! device, and a file may have blocks on both.

use crate::geometry::Role;
use std::path::Path;

/// Name prefixes of files on the speed device: record groups in memory, the manifest, the pointer
/// to the current manifest, locks, and the markers of the fast tier.
const BEGINNINGS: [&str; 5] = ["STAGING", "MANIFEST-", "CURRENT", "LOCK", "SPEED"];
/// Extensions of files on the speed device: log groups, and the tables and values on the fast tier.
const ENDS: [&str; 3] = ["log", "ksst-1", "vsst-1"];

/// Returns the device for a file with this name.
pub(crate) fn by_name(path: &Path) -> Role {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match BEGINNINGS.iter().any(|with| name.starts_with(with)) || ENDS.contains(&ending) {
        true => Role::Fast,
        false => Role::Capacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_go_to_the_speed_device() {
        for (name, role) in [
            ("/db/000000000012.log", Role::Fast),
            ("/db/STAGING", Role::Fast),
            ("/db/STAGING-1", Role::Fast),
            ("/db/MANIFEST-000000000001", Role::Fast),
            ("/db/CURRENT.tmp", Role::Fast),
            ("/db/SPEED", Role::Fast),
            ("/db/SPEED-LOCK", Role::Fast),
            ("/db/000000000007.ksst-1", Role::Fast),
            ("/db/000000000007.vsst-1", Role::Fast),
            ("/db/000000000007.ksst", Role::Capacity),
            ("/db/000000000007.vsst", Role::Capacity),
            ("/log/catalog", Role::Capacity),
            ("/", Role::Capacity),
        ] {
            assert_eq!(by_name(Path::new(name)), role, "{name}");
        }
    }
}
