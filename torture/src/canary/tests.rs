//! The table of canaries and the sources agree.

#![allow(clippy::disallowed_methods, reason = "reads the sources, not a store")]

use super::table::{CANARIES, Catcher};
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
    let listed: BTreeSet<String> = CANARIES.iter().map(|c| c.name.to_owned()).collect();
    assert_eq!(listed.len(), CANARIES.len(), "a name stands twice in the table");
    let placed: BTreeSet<String> = places.into_keys().collect();
    assert_eq!(listed, placed);
}

#[test]
fn every_canary_has_a_row_that_exists() {
    for canary in CANARIES {
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
    for canary in CANARIES {
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
