//! The table of canaries and the sources agree.

#![allow(clippy::disallowed_methods, reason = "reads the sources, not a store")]

use super::seeded::Catcher;
use super::table::canaries;
use crate::rows::ROWS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, out);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            out.push(entry);
        }
    }
}

/// Every `canary::is("…")` of the engine, with how often it stands there.
fn places() -> BTreeMap<String, usize> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"), &mut files);
    let mut out = BTreeMap::new();
    for file in files.iter().filter(|f| !f.ends_with("base/src/canary.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        for rest in text.split("canary::is(\"").skip(1) {
            *out.entry(rest.split('"').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    out
}

#[test]
fn every_canary_stands_once_in_the_sources_and_once_in_the_table() {
    let places = places();
    let twice: Vec<_> = places.iter().filter(|(_, n)| **n != 1).collect();
    assert!(twice.is_empty(), "one place each: {twice:?}");
    let listed: BTreeSet<String> = canaries().map(|c| c.name.to_owned()).collect();
    assert_eq!(listed.len(), canaries().count(), "a name stands twice in the table");
    let placed: BTreeSet<String> = places.into_keys().collect();
    assert_eq!(listed, placed);
}

#[test]
fn every_canary_has_a_row_that_exists() {
    for canary in canaries() {
        if let Catcher::Row { row, .. } = canary.by {
            assert!(ROWS.iter().any(|r| r.name == row), "{}: there is no row {row}", canary.name);
        }
    }
}

/// The table in the docs is made from this one: `LAVASTORE_BLESS=1 cargo test -p torture canary` writes it anew.
#[test]
fn the_docs_show_the_table() {
    const BEGIN: &str = "<!-- canaries -->\n";
    const END: &str = "<!-- end of canaries -->";
    let mut table = String::from("\n| seeded bug | what is broken | caught by |\n|---|---|---|\n");
    for canary in canaries() {
        let by = match canary.by {
            Catcher::Row { row, .. } => format!("row `{row}`"),
            Catcher::Test { package, name, .. } => format!("`{package}`, test `{name}`"),
        };
        table += &format!("| `{}` | {} | {by} |\n", canary.name, canary.about);
    }
    table.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/RELIABILITY.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (shown, after) = rest.split_once(END).expect("where it ends");
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        assert_eq!(shown, table, "run with LAVASTORE_BLESS=1");
    }
}

/// The module path of a test, from the file it stands in: `src/commit/pace.rs` is `commit::pace`, `tests/api/sync.rs` is
/// `sync` of the binary `api`.
fn module_of(file: &Path) -> Vec<String> {
    let parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let skipped = if parts.first().is_some_and(|first| first == "tests") { 2 } else { 1 };
    parts.into_iter().skip(skipped).collect()
}

/// Whether a file of the package has the test: the function, in the modules that the name says.
fn has_test(package: &Path, target: &str, name: &str) -> bool {
    let folder = match target.split_once("--test ") {
        Some((_, binary)) => Path::new("tests").join(binary),
        None => PathBuf::from("src"),
    };
    let (modules, function) = name.rsplit_once("::").unwrap_or(("", name));
    let modules: Vec<&str> = modules.split("::").filter(|module| !module.is_empty()).collect();
    let mut files = Vec::new();
    // A test binary is a folder, or one file.
    let one = package.join(&folder).with_extension("rs");
    match one.is_file() {
        true => files.push(one),
        false => sources(&package.join(folder), &mut files),
    }
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap();
        let of_file = module_of(file.strip_prefix(package).unwrap());
        let inside = modules.iter().zip(&of_file).all(|(a, b)| a == b) && modules.len() >= of_file.len();
        let inline =
            modules.iter().skip(of_file.len()).all(|module| text.contains(&format!("mod {module} {{")));
        inside && inline && text.contains(&format!("fn {function}("))
    })
}

/// A name that no test has would be met once in ten commits, when the canary's turn comes.
#[test]
fn every_canary_has_a_test_that_exists() {
    for canary in canaries() {
        if let Catcher::Test { package, target, name } = canary.by {
            let folder = package.strip_prefix("lavastore-").unwrap_or(package);
            let package_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(folder);
            assert!(has_test(&package_dir, target, name), "{}: {package} has no test {name}", canary.name);
        }
    }
}
