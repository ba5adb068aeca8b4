//! Test scripts are run.

use crate::sources::{below, members};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the folders that a source passes to `datadriven`, relative to the crate.
fn walked(source: &str) -> impl Iterator<Item = &str> {
    source.split("datadriven::walk(\"").skip(1).filter_map(|after| after.split('"').next())
}

/// Collects the folders with a script below a directory, relative to the crate.
fn with_scripts(dir: &Path, within: &Path, out: &mut BTreeSet<String>) {
    for path in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            with_scripts(&path, within, out);
        } else if dir.ends_with("scripts") && path.extension().is_some_and(|e| e == "txt") {
            out.insert(dir.strip_prefix(within).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// `datadriven` passes for an absent or empty folder, so an unused folder of scripts would go
/// unnoticed.
#[test]
fn every_folder_of_scripts_is_walked_and_every_walk_has_scripts() {
    for (name, path) in members() {
        let (mut sources, mut there) = (Vec::new(), BTreeSet::new());
        for part in ["src", "tests"].map(|part| path.join(part)).iter().filter(|part| part.is_dir()) {
            below(part, &mut sources);
            with_scripts(part, &path, &mut there);
        }
        // This file names no folder, and contains the call in a string.
        sources.retain(|source| !source.ends_with("structure/scripts.rs"));
        let texts: Vec<String> = sources.iter().map(|source| fs::read_to_string(source).unwrap()).collect();
        let walked: BTreeSet<String> =
            texts.iter().flat_map(|text| walked(text)).map(str::to_owned).collect();
        assert_eq!(walked, there, "{name}: the folders that tests walk, and those with scripts");
    }
}
