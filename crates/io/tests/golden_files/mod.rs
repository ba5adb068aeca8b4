//! Golden files of a format: what is written now is compared with what was checked in. For the tests of all crates that have
//! a format, which take it in by its path.
//!
//! `LAVASTORE_BLESS=1 cargo test` writes them anew, which is right only while the version in the header changes with them.

use std::path::Path;

/// Name, what is written now, and what was checked in.
pub type Golden<'a> = (&'a str, Vec<u8>, &'a [u8]);

/// Compares each file with that of `tests/golden` in the crate at `root`, or writes all anew where that is asked for.
///
/// # Panics
/// If one is not what it was.
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
