//! Golden files of a format: compares newly written files with the checked-in ones. Included by
//! path in the tests of all crates with a format.
//!
//! `LAVASTORE_BLESS=1 cargo test` rewrites them, which is right only together with a new version in
//! the header.

use std::path::Path;

/// Name, new contents, and checked-in contents.
pub type Golden<'a> = (&'a str, Vec<u8>, &'a [u8]);

/// Compares each file with that of `tests/golden` in the crate at `root`, or rewrites all of them
/// on request.
///
/// # Panics
/// If a file differs.
#[allow(clippy::disallowed_methods, reason = "writes into the source tree, not a store")]
pub fn check(root: &str, files: &[Golden<'_>]) {
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        let dir = Path::new(root).join("tests/golden");
        files.iter().for_each(|(name, now, _)| std::fs::write(dir.join(name), now).unwrap());
        return;
    }
    for (name, now, golden) in files {
        assert!(now == golden, "the format has changed: give it a new version than that of {name}");
    }
}
