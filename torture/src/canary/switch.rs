//! The switch of seeded bugs, which exists in patched copies only.

/// The environment variable with the name of the canary of a process.
pub(super) const VARIABLE: &str = "LAVASTORE_CANARY";
/// The crate that gets the module of the switch.
const HOME: &str = "crates/base/";
/// The file of the module, and its text.
pub(super) const MODULE: (&str, &str) = ("crates/base/src/seeded.rs", include_str!("seeded.txt"));
/// The file that declares the module, and the declaration.
pub(super) const DECLARATION: (&str, &str) = ("crates/base/src/lib.rs", "#[doc(hidden)]\npub mod seeded;\n");

/// Returns the expression that is true in the process of the canary `name`, for a source file.
/// `read` returns the text of a file.
pub(super) fn condition(
    name: &str,
    file: &str,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    if file.starts_with(HOME) {
        return Ok(format!("crate::seeded::is(\"{name}\")"));
    }
    let (package, _) = file.split_once("/src/").ok_or_else(|| format!("{file} is no source of a package"))?;
    let manifest = read(&format!("{package}/Cargo.toml"))?;
    if manifest.lines().any(|line| line.starts_with("base.") || line.starts_with("base =")) {
        return Ok(format!("base::seeded::is(\"{name}\")"));
    }
    // A crate that does not depend on that one asks the environment each time.
    Ok(format!("std::env::var(\"{VARIABLE}\").is_ok_and(|name| name == \"{name}\")"))
}
